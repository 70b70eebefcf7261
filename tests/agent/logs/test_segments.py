"""A stream of bytes in segments: whatever is written is read, whole and in order, but for the oldest that was dropped."""

import re
import threading
import tracemalloc
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from taco_launch.agent.logs import segments
from taco_launch.agent.logs.merge import LogMerge
from taco_launch.agent.logs.segments import SegmentReader, Writer
from tests.agent.conftest import scratch
from tests.support.log_segments import drain

# Bytes are written, a number is the size of a read, None opens the writer anew.
STEPS = st.lists(st.binary(min_size=1, max_size=40) | st.integers(1, 50) | st.none(), max_size=30)
LIMITS = st.integers(2, 80)
LINES = st.lists(st.sampled_from([b"\n", b"\r", b"a", b"bc", b"\n\n", b"long line "]), max_size=40).map(b"".join)


def kept(stem: Path) -> bytes:
    """Return the bytes that lie on the disk, and see that the names of the segments tell their places."""
    present = segments.segments(stem)
    pieces = [path.read_bytes() for _offset, path in present]
    for (offset, _path), piece, (after, _next) in zip(present, pieces, present[1:], strict=False):
        assert offset + len(piece) == after
    return b"".join(pieces)


@given(STEPS, LIMITS)
def test_any_interleaving_of_reader_and_writer(steps: list[bytes | int | None], limit: int) -> None:
    with scratch() as folder:
        stem = folder / "rank-0"
        writer, reader = Writer(stem, limit), SegmentReader(stem)
        written, seen = b"", 0
        for step in (*steps, *[50] * (sum(len(s) for s in steps if isinstance(s, bytes)) + 2)):
            if isinstance(step, bytes):
                writer.write(step)
                written += step
            elif step is None:
                writer = Writer(stem, limit)
            else:
                data = reader.read(step)
                assert len(data) <= step
                assert data == written[reader.offset - len(data) : reader.offset]
                seen += len(data)
        assert (reader.offset, seen + reader.skipped) == (len(written), len(written))
        left = kept(stem)
        assert written.endswith(left)
        assert min(len(written), limit // 2) <= len(left) <= limit
        assert segments.size(stem) == len(written)
        again = SegmentReader(stem)
        assert drain(again) == left
        assert again.skipped == len(written) - len(left)


@given(st.lists(st.binary(min_size=1, max_size=30), max_size=10), LIMITS, st.integers(0, 300))
def test_a_reader_begins_anywhere(pieces: list[bytes], limit: int, offset: int) -> None:
    with scratch() as folder:
        stem = folder / "rank-0"
        writer, written = Writer(stem, limit), b"".join(pieces)
        for piece in pieces:
            writer.write(piece)
        oldest = len(written) - len(kept(stem))
        reader = SegmentReader(stem, offset)
        assert drain(reader) == written[max(offset, oldest) :]
        assert reader.offset == max(offset, len(written))


@pytest.mark.parametrize("limit", [1 << 30, 40_000], ids=["whole", "rotating"])
def test_reader_and_writer_side_by_side(tmp_path: Path, limit: int) -> None:
    stem = tmp_path / "rank-0"
    written = b"".join(b"%06d\n" % number for number in range(30_000))
    reader, pieces = SegmentReader(stem), []

    def write() -> None:
        writer = Writer(stem, limit)
        for begin in range(0, len(written), 1000):
            writer.write(written[begin : begin + 1000])

    thread = threading.Thread(target=write)
    thread.start()
    while thread.is_alive() or reader.offset < len(written):
        data = reader.read(777)
        assert data == written[reader.offset - len(data) : reader.offset]
        pieces.append(data)
    thread.join()
    assert len(b"".join(pieces)) + reader.skipped == len(written)
    if limit > len(written):
        assert reader.skipped == 0


def test_nothing_is_there(tmp_path: Path) -> None:
    for stem in (tmp_path / "rank-0", tmp_path / "no" / "rank-0"):
        assert (segments.segments(stem), segments.size(stem), segments.tail(stem, 5), SegmentReader(stem).read()) == (
            [],
            0,
            0,
            b"",
        )


def test_streams_with_names_alike_are_apart(tmp_path: Path) -> None:
    for name in ("rank-1", "rank-10", "rank-1.x"):
        Writer(tmp_path / name, 100).write(name.encode())
    (tmp_path / "rank-1.notes.log").write_bytes(b"no segment")
    (tmp_path / "rank-1.².log").write_bytes(b"no segment either")
    assert segments.segments(tmp_path / "rank-1") == [(0, tmp_path / "rank-1.0.log")]
    assert drain(SegmentReader(tmp_path / "rank-1")) == b"rank-1"
    assert drain(SegmentReader(tmp_path / "rank-10")) == b"rank-10"


def test_logs_are_private(tmp_path: Path) -> None:
    Writer(tmp_path / "rank-0", 100).write(b"x")
    assert [path.stat().st_mode & 0o777 for path in tmp_path.iterdir()] == [0o600, 0o600]


@settings(max_examples=150)
@given(LINES, st.integers(0, 12), LIMITS, st.integers(1, 20))
@example(b"\n", 1, 80, 1)
@example(b"a\nb", 1, 80, 1)
@example(b"a\nb\n", 1, 80, 2)
def test_tail(written: bytes, lines: int, limit: int, chunk: int) -> None:
    with scratch() as folder, pytest.MonkeyPatch.context() as patch:
        patch.setattr(segments, "CHUNK", chunk)
        stem = folder / "rank-0"
        Writer(stem, limit).write(written)
        found = re.findall(rb"[^\n]*\n|[^\n]+", kept(stem))
        expected = b"".join(found[max(len(found) - lines, 0) :])
        assert segments.tail(stem, lines) == len(written) - len(expected)


def test_tail_while_the_oldest_is_dropped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stem = tmp_path / "rank-0"
    gone = (0, tmp_path / "rank-0.0.log")  # it is listed, and gone when it is opened
    listed = segments.segments
    monkeypatch.setattr(segments, "segments", lambda stem: [gone, *listed(stem)])
    (tmp_path / "rank-0.100.log").write_bytes(b"one\ntwo\n")
    assert segments.tail(stem, 1) == 104
    assert segments.tail(stem, 10) == 100


def test_memory_is_flat(tmp_path: Path) -> None:
    line = b"x" * 99 + b"\n"
    piece = line * (segments.CHUNK // len(line))
    writer, merge = Writer(tmp_path / "rank-0", 8 << 20), LogMerge(tmp_path / "merged", 8 << 20)
    reader = SegmentReader(tmp_path / "merged")
    merge.add(tmp_path / "rank-0", "localhost/0")
    tracemalloc.start()
    try:
        seen = 0
        for _piece in range(200):
            writer.write(piece)
            while merge.step():
                pass
            while data := reader.read():
                seen += len(data)
        _now, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert (seen, reader.skipped) == (200 * (len(piece) + len(piece) // 100 * len(b"localhost/0 | ")), 0)
    assert peak < 12 << 20
    assert sum(path.stat().st_size for path in tmp_path.glob("*.log")) <= 16 << 20
