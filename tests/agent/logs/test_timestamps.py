"""When the bytes of a log came: the index tells it of every byte, whatever happens to the log and to the index."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from taco_launch.agent.logs import segments, timestamps
from taco_launch.agent.logs.segments import SegmentReader, Writer
from tests.agent.conftest import scratch
from tests.support.patience import HANG

STEP = 10_000  # microseconds: what comes closer together has one time
# Steps since the write before (clocks are set back, too), and what is written; None opens the writer anew.
WRITES = st.lists(st.tuples(st.integers(-3, 5), st.binary(min_size=1, max_size=30)) | st.none(), max_size=30)


def times(stem: Path, offset: int = 0, size: int = 7) -> list[tuple[int, int]]:
    """Return (place, time) of every byte from `offset` on, read in pieces of `size`."""
    reader, found = SegmentReader(stem, offset), []
    while data := reader.read(size):
        begin = reader.offset - len(data)
        told = reader.times()
        assert told[0][0] == begin
        ends = [*(place for place, _at in told[1:]), reader.offset]
        for (place, at), end in zip(told, ends, strict=True):
            assert end > place
            found += [(byte, at) for byte in range(place, end)]
    reader.close()
    return found


@given(WRITES, st.integers(2, 80), st.integers(0, 200), st.integers(1, 40))
@example([(0, b"a"), (-3, b"b"), (2, b"c")], 80, 0, 7)
def test_every_byte_has_the_time_of_its_write(
    writes: list[tuple[int, bytes] | None], limit: int, offset: int, size: int
) -> None:
    with scratch() as folder:
        writer, now, written = Writer(folder / "rank-0", limit), 1_700_000_000_000_000, []
        for write in writes:
            if write is None:
                writer.close()
                writer = Writer(folder / "rank-0", limit)
                continue
            now += write[0] * STEP
            writer.write(write[1], now)
            written += [now] * len(write[1])
        found = times(folder / "rank-0", offset, size)
        oldest = min([start for start, _path in segments.segments(folder / "rank-0")], default=0)
        assert found == [(place, written[place]) for place in range(max(offset, oldest), len(written))]
        # An index goes with its segment.
        indices = {path.stem for path in folder.glob("*.times")}
        assert indices <= {path.stem for path in folder.glob("*.log")}


@given(st.lists(st.integers(0, 2 * STEP), max_size=40))
def test_no_time_is_wrong_by_more_than_a_step(gaps: list[int]) -> None:
    with scratch() as folder:
        writer, now, written = Writer(folder / "r", 1 << 20), 1_700_000_000_000_000, []
        for gap in gaps:
            now += gap
            writer.write(b"x", now)
            written.append(now)
        for (place, at), expected in zip(times(folder / "r"), written, strict=True):
            assert abs(at - expected) < STEP, place


def test_the_clock_is_this_hosts(tmp_path: Path) -> None:
    before = timestamps.now()
    Writer(tmp_path / "r", 100).write(b"x")
    ((_place, at),) = times(tmp_path / "r")
    assert before <= at <= timestamps.now()


def test_a_reader_sees_times_that_come_while_it_reads(tmp_path: Path) -> None:
    writer, reader = Writer(tmp_path / "r", 1 << 20), SegmentReader(tmp_path / "r")
    for number in range(1, 50):
        writer.write(b"line\n", number * STEP)
        assert reader.read() == b"line\n"
        assert reader.times() == [(5 * (number - 1), number * STEP)]


def test_a_log_without_an_index(tmp_path: Path) -> None:
    (tmp_path / "r.0.log").write_bytes(b"old\n")  # of a version that had none
    assert times(tmp_path / "r") == [(place, 0) for place in range(4)]
    assert segments.since(tmp_path / "r", 5) == 0


@pytest.mark.parametrize("torn", [1, 15, 16, 17])
def test_half_an_entry_is_cut_off(tmp_path: Path, torn: int) -> None:
    """As a full disk or a machine that lost power leaves it."""
    Writer(tmp_path / "r", 1000).write(b"one\n", 1 * STEP)
    Writer(tmp_path / "r", 1000).write(b"two\n", 9 * STEP)
    index = tmp_path / "r.0.times"
    os.truncate(index, index.stat().st_size - torn)
    known = [1 * STEP if torn <= 16 else 0] * 4
    assert [at for _place, at in times(tmp_path / "r")][:4] == known
    Writer(tmp_path / "r", 1000).write(b"three\n", 20 * STEP)
    assert [at for _place, at in times(tmp_path / "r")][8:] == [20 * STEP] * 6


def test_an_index_that_cannot_be_written_is_no_harm(tmp_path: Path) -> None:
    (tmp_path / "r.0.times").mkdir()
    writer = Writer(tmp_path / "r", 1000)
    for number in range(10):
        writer.write(b"line\n", number * 10 * STEP)
    assert (tmp_path / "r.0.log").read_bytes() == b"line\n" * 10
    assert {at for _place, at in times(tmp_path / "r")} == {0}
    (tmp_path / "r.0.times").rmdir()
    writer.write(b"line\n", 1000 * STEP)
    assert times(tmp_path / "r")[-1] == (54, 1000 * STEP)


def test_a_full_disk_that_takes_half_an_entry(tmp_path: Path) -> None:
    script = """
import resource, sys
from pathlib import Path
from taco_launch.agent.logs import segments
def limit(size):
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, resource.getrlimit(resource.RLIMIT_FSIZE)[1]))
writer = segments.Writer(Path(sys.argv[1]), 1 << 20)
for number in range(1, 5):
    writer.write(b"x", number * 10_000)
limit(70)  # Python ignores SIGXFSZ: a write beyond is cut short
writer.write(b"y", 90_000)
writer.write(b"z", 200_000)
limit(1 << 20)
writer.write(b"!", 300_000)
"""
    subprocess.run([sys.executable, "-c", script, str(tmp_path / "r")], check=True, timeout=HANG)
    assert (tmp_path / "r.0.log").read_bytes() == b"xxxxyz!"
    # The time of what came before is all that is known of those two.
    assert [at for _place, at in times(tmp_path / "r")] == [10_000, 20_000, 30_000, 40_000, 40_000, 40_000, 300_000]


def test_an_index_stays_small(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(timestamps, "_FREE_BYTES", 160)
    writer = Writer(tmp_path / "r", 1 << 20)
    for number in range(2000):
        writer.write(b".", number * STEP)  # a dot every 10 ms
    index = (tmp_path / "r.0.times").stat().st_size
    assert index <= 2000 + 160 + 32
    late = [number * STEP - at for number, (_place, at) in enumerate(times(tmp_path / "r"))]
    assert max(late[:10]) == 0
    assert max(late) <= 16 * STEP


@given(st.lists(st.integers(0, 50), min_size=1, max_size=30), st.integers(0, 1500), st.integers(4, 100))
@example([0], 0, 100)
def test_since(gaps: list[int], when: int, limit: int) -> None:
    with scratch() as folder:
        writer, now, written = Writer(folder / "r", limit), 1, []
        for gap in gaps:
            now += gap
            writer.write(b"ab", now * STEP)
            written += [now * STEP] * 2
        oldest = segments.segments(folder / "r")[0][0]
        expected = [place for place, at in enumerate(written) if place >= oldest and at >= when * STEP]
        assert segments.since(folder / "r", when * STEP) == (expected[0] if expected else len(written))
