"""The merged log: whole lines behind their labels, and under the labels what each stream holds, but for overwritten states."""

import re
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from taco_launch.agent.logs import lines as lines_of
from taco_launch.agent.logs.lines import LineReader
from taco_launch.agent.logs.merge import LogMerge
from taco_launch.agent.logs.segments import SegmentReader, Writer
from tests.agent.conftest import scratch
from tests.support.log_segments import drain

NO_ROTATION = 1 << 30
PIECES = st.lists(st.sampled_from([b"\n", b"\r", b"\r\n", b"a", b"\xff\x00", b"| ", b"word "]), max_size=6).map(
    b"".join
)
# (stream, bytes) is a write, None a step of the merge.
STEPS = st.lists(st.tuples(st.integers(0, 2), PIECES) | st.none(), max_size=25)


class Streams:
    """Three streams and their merged log."""

    def __init__(self, folder: Path, limit: int = NO_ROTATION) -> None:
        self.stems = [folder / f"rank-{index}" for index in range(3)]
        self.written = [b"", b"", b""]
        self.merge = LogMerge(folder / "merged", NO_ROTATION)
        self._merged = folder / "merged"
        self._writers = [Writer(stem, limit) for stem in self.stems]
        for index, stem in enumerate(self.stems):
            self.merge.add(stem, f"<{index}>")

    def write(self, index: int, data: bytes, at: int | None = None) -> None:
        self._writers[index].write(data, at)
        self.written[index] += data

    def step(self) -> None:
        while self.merge.step():
            pass

    def finish(self) -> None:
        for stem in self.stems:
            self.merge.finish(stem)
        self.step()

    @property
    def merged(self) -> bytes:
        return drain(SegmentReader(self._merged))

    def lines(self, index: int) -> list[bytes]:
        """Return what stands behind each label of a stream in the merged log, up to the next label, without states of a line."""
        first, *rest = re.split(rb"<(\d)> \| ", self.merged)
        assert first == b""
        found = [text for number, text in zip(rest[::2], rest[1::2], strict=True) if int(number) == index]
        return [text for text in found if not text.endswith(b"\r")]


def lines(data: bytes) -> list[bytes]:
    """Cut at newlines, and at carriage returns that no newline follows."""
    return re.findall(rb"[^\r\n]*(?:\r\n|\n|\r)|[^\r\n]+", data)


def kept(data: bytes) -> list[bytes]:
    """Return the lines of a stream that has ended, of each that was overwritten its last state."""
    found, state = [], b""
    for line in lines(data):
        if line.endswith(b"\r") or (state and not line.strip() and not line.endswith(b"\n")):
            state = line[:-1] if line.strip() else state
        else:
            found.append(line if line.strip() or not state else state + b"\n")
            state = b""
    found += [state] if state else []
    return [line if line.endswith(b"\n") else line + b"\n" for line in found]


@given(STEPS)
@example([(0, b"10%\r"), None, (0, b"\n"), None])
@example([(0, b"10%\r\r\n"), None, (0, b"20%\r "), None])
@example([(0, b"a"), (1, b"b"), None, (0, b"\n"), None])
def test_every_stream_is_whole_whatever_the_interleaving(steps: list[tuple[int, bytes] | None]) -> None:
    with scratch() as folder:
        streams = Streams(folder)
        for step in steps:
            if step is None:
                streams.merge.step()
            else:
                streams.write(*step)
        streams.finish()
        for index, written in enumerate(streams.written):
            assert streams.lines(index) == kept(written)


@given(STEPS)
@example([(0, b"10%\r"), None, (0, b"20%\r"), None])
def test_a_whole_line_comes_at_once(steps: list[tuple[int, bytes] | None]) -> None:
    with scratch() as folder:
        streams = Streams(folder)
        for step in steps:
            if step is not None:
                streams.write(*step)
                continue
            streams.step()
            for index, written in enumerate(streams.written):
                assert streams.lines(index) == kept(written[: written.rfind(b"\n") + 1])


def test_a_step_tells_whether_there_was_something(tmp_path: Path) -> None:
    streams = Streams(tmp_path)
    assert not streams.merge.step()
    streams.write(0, b"a\nb")
    assert streams.merge.step()
    assert not streams.merge.step()
    assert streams.merged == b"<0> | a\n"
    streams.merge.finish(streams.stems[0])
    assert streams.merge.step()
    assert not streams.merge.step()
    assert streams.merged == b"<0> | a\n<0> | b\n"


def test_labels_of_any_bytes(tmp_path: Path) -> None:
    merge = LogMerge(tmp_path / "merged", NO_ROTATION)
    merge.add(tmp_path / "rank-0", "h\udcff/0")
    Writer(tmp_path / "rank-0", NO_ROTATION).write(b"x\n")
    merge.step()
    assert SegmentReader(tmp_path / "merged").read() == b"h\xff/0 | x\n"


@given(st.lists(st.sampled_from([b"\n", b"ab", b"c" * 30]), max_size=20))
def test_a_line_over_the_bound_is_whole_all_the_same(pieces: list[bytes]) -> None:
    with scratch() as folder, pytest.MonkeyPatch.context() as patch:
        patch.setattr(lines_of, "_LINE_BOUND", 20)
        streams = Streams(folder)
        for piece in pieces:
            streams.write(0, piece)
            streams.step()
        streams.finish()
        written = b"".join(pieces)
        ended = not written or written.endswith(b"\n")
        assert b"".join(streams.lines(0)) == written + (b"" if ended else b"\n")


def test_a_line_over_the_bound_goes_out_before_its_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lines_of, "_LINE_BOUND", 20)
    streams = Streams(tmp_path)
    for _piece in range(10):
        streams.write(0, b"x" * 9)
        streams.step()
    assert streams.merged.startswith(b"<0> | " + b"x" * 60)


def test_a_line_over_the_bound_is_not_mixed_with_another_stream(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lines_of, "_LINE_BOUND", 20)
    streams = Streams(tmp_path)
    streams.write(0, b"a" * 30)
    streams.step()
    streams.write(1, b"b\n")
    streams.step()
    streams.write(0, b"a" * 5 + b"\n")
    streams.finish()
    # However it is cut: what is on a line behind a label is of that label's stream.
    for line in streams.merged.decode().splitlines():
        label, _bar, text = line.partition(" | ")
        assert set(text) == {"<0>": {"a"}, "<1>": {"b"}}[label]
    assert streams.merged.count(b"a") == 35


def test_the_states_of_a_line_over_the_bound(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lines_of, "_LINE_BOUND", 20)
    streams = Streams(tmp_path)
    streams.write(0, b"a" * 30)
    streams.step()
    streams.write(0, b"a\rb\rc\n")
    streams.finish()
    assert streams.lines(0) == [b"a" * 31 + b"\n", b"c\n"]


def test_of_a_bar_one_state_in_five_seconds_is_told(tmp_path: Path) -> None:
    streams, start = Streams(tmp_path), 1_700_000_000_000_000
    for number in range(121):  # as tqdm does it, for twelve seconds, at the same time as another rank
        for rank in (0, 1):
            streams.write(rank, b"\r%d%%" % number, start + 100_000 * number)
        streams.step()
    told = b"".join(b"<%d> | %d%%\r" % (rank, number) for number in (0, 50, 100) for rank in (0, 1))
    assert streams.merged == told
    streams.write(0, b"\n")
    streams.write(1, b"\rdone \r\n")
    streams.finish()
    assert streams.merged == told + b"<0> | 120%\n<1> | done \r\n"


def test_a_state_that_is_no_bar_is_cut(tmp_path: Path) -> None:
    streams = Streams(tmp_path)
    streams.write(0, b"x" * 100_000 + b"\r" + b"y" * 100_000 + b"\r")
    streams.finish()
    assert streams.merged == b"<0> | " + b"x" * 4096 + b"\r<0> | " + b"y" * 4096 + b"\n"


def test_rotation_before_the_merge_is_told(tmp_path: Path) -> None:
    streams = Streams(tmp_path, 20)
    streams.write(0, b"first")
    streams.step()
    streams.write(0, b"-".join(b"%04d" % number for number in range(10)) + b"\n")
    streams.finish()
    text = streams.merged.decode()
    found = re.fullmatch(
        r"<0> \| (first.*)\n"
        r"<0> \| \[taco-launch: (\d+) bytes dropped by log rotation before they were merged\]\n"
        r"<0> \| (.*\n)",
        text,
    )
    assert found, text
    begin, dropped, rest = found[1], int(found[2]), found[3]
    written = streams.written[0].decode()
    assert len(begin) + dropped + len(rest) == len(written)
    assert written.startswith(begin)
    assert written.endswith(rest)


@given(
    st.lists(
        st.tuples(
            st.integers(0, 2), st.integers(-3, 5), st.lists(st.sampled_from([b"a", b"b\n"]), min_size=1).map(b"".join)
        )
        | st.none(),
        max_size=30,
    )
)
def test_a_merged_line_has_the_time_at_which_it_began_at_its_source(steps: list[tuple[int, int, bytes] | None]) -> None:
    with scratch() as folder:
        streams, now = Streams(folder), 1_700_000_000_000_000
        began: list[list[tuple[bytes, int]]] = [[], [], []]
        for step in [*steps, None]:
            if step is None:
                streams.step()
                continue
            index, later, data = step
            now += 10_000 * later
            streams.write(index, data, now)
            for line in lines(data):
                if began[index] and not began[index][-1][0].endswith(b"\n"):
                    began[index][-1] = (began[index][-1][0] + line, began[index][-1][1])
                else:
                    began[index].append((line, now))
        streams.finish()
        merged = LineReader(folder / "merged")
        found: list[list[tuple[bytes, int]]] = [[], [], []]
        while pieces := merged.read():
            for text, at in pieces:
                for line in text.splitlines(keepends=True):
                    found[int(line[1:2])].append((line[6:], at))
        ended = [[(line if line.endswith(b"\n") else line + b"\n", at) for line, at in of] for of in began]
        assert found == ended


def test_an_attempt_begins_behind_a_line_of_its_own(tmp_path: Path) -> None:
    first = LogMerge(tmp_path / "merged", NO_ROTATION)
    first.begin(1)
    first.add(tmp_path / "rank-0", "h/0")
    Writer(tmp_path / "rank-0", NO_ROTATION).write(b"one\n")
    first.step()
    first.close()
    second = LogMerge(tmp_path / "merged", NO_ROTATION)
    second.begin(2)
    second.add(tmp_path / "again-0", "h/0")
    Writer(tmp_path / "again-0", NO_ROTATION).write(b"two\n")
    second.step()
    assert SegmentReader(tmp_path / "merged").read() == b"h/0 | one\n[taco-launch: attempt 2]\nh/0 | two\n"
