"""Lines as they become whole, each with the time at which it started."""

import re
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from taco_launch.agent.logs import lines as lines_of
from taco_launch.agent.logs import segments
from taco_launch.agent.logs.lines import LineReader, behind
from taco_launch.agent.logs.segments import Writer
from tests.agent.conftest import scratch

STEP = 10_000  # microseconds: what comes closer together has one time
TEXTS = st.lists(st.sampled_from([b"\n", b"\r", b"\r\n", b"a", b"\xff\x00", b"word "]), min_size=1, max_size=5).map(
    b"".join
)
# Steps since the write before and what is written, or None: somebody reads.
STEPS = st.lists(st.tuples(st.integers(1, 5), TEXTS) | st.none(), max_size=25)


def cut(data: bytes) -> list[bytes]:
    """Cut at newlines, and at carriage returns that no newline follows."""
    return re.findall(rb"[^\r\n]*(?:\r\n|\n|\r)|[^\r\n]+", data)


def timed(writes: list[tuple[int, bytes]]) -> list[tuple[bytes, int]]:
    """Return each line of what was written with the time of its first byte."""
    text, at, found, place = b"".join(data for _at, data in writes), [], [], 0
    for when, data in writes:
        at += [when] * len(data)
    for line in cut(text):
        found.append((line, at[place]))
        place += len(line)
    return found


def seen(pieces: list[tuple[bytes, int]]) -> list[tuple[bytes, int]]:
    return [(line, at) for text, at in pieces for line in cut(text)]


def drained(lines: LineReader) -> list[tuple[bytes, int]]:
    pieces: list[tuple[bytes, int]] = []
    while found := lines.read():
        pieces += found
    return pieces


@given(STEPS)
@example([(1, b"a"), None, (1, b"b\n")])
@example([(1, b"a\r"), None, (3, b"\nb"), None, (3, b"\n")])
@example([(1, b"a\r"), (3, b"\n")])
@example([(1, b"a\nb"), (2, b"c\nd"), None])
def test_each_line_has_the_time_of_its_first_byte(steps: list[tuple[int, bytes] | None]) -> None:
    with scratch() as folder:
        writer, lines, now = Writer(folder / "r", 1 << 20), LineReader(folder / "r"), 1
        pieces: list[tuple[bytes, int]] = []
        written: list[tuple[int, bytes]] = []
        for step in [*steps, None]:
            if step is not None:
                now += step[0]
                written.append((now * STEP, step[1]))
                writer.write(step[1], now * STEP)
                continue
            pieces += drained(lines)
            assert lines.offset == sum(len(text) for text, _at in pieces)
        expected = timed(written)
        ended = expected[:-1] if expected and not expected[-1][0].endswith(b"\n") else expected
        assert seen(pieces) == ended
        lines.finished = True
        pieces += drained(lines)
        assert seen(pieces) == expected


@given(STEPS, st.integers(0, 60))
def test_without_the_rest_of_a_line(steps: list[tuple[int, bytes] | None], offset: int) -> None:
    with scratch() as folder:
        writer, written, now = Writer(folder / "r", 1 << 20), [], 1
        for step in filter(None, steps):
            now += step[0]
            written.append((now * STEP, step[1]))
            writer.write(step[1], now * STEP)
        lines = LineReader(folder / "r", offset, beheaded=False, headless=True)
        lines.finished = True
        pieces = drained(lines)
        place, expected = 0, []
        for line, at in timed(written):
            if place > offset:
                expected.append((line, at))
            place += len(line)
        # Where it starts between a carriage return and its newline, what follows is taken for the rest of a line.
        assert seen(pieces) == expected


def test_lines_that_were_dropped(tmp_path: Path) -> None:
    writer = Writer(tmp_path / "r", 20)
    whole, cut_off = LineReader(tmp_path / "r", beheaded=False), LineReader(tmp_path / "r")
    writer.write(b"beg", STEP)
    assert cut_off.read() == []
    for number in range(2, 12):
        writer.write(b"line %d\n" % number, number * STEP)
    kept = b"".join(path.read_bytes() for _start, path in segments.segments(tmp_path / "r"))
    assert cut_off.read() == [(b"begline 2\n", STEP)]  # it had that segment open
    assert (cut_off.read(), whole.read()) == ([], [])
    assert (cut_off.skipped, whole.skipped) == (segments.size(tmp_path / "r") - len(kept) - 10, cut_off.skipped + 10)
    whole.finished = cut_off.finished = True
    assert b"".join(text for text, _at in drained(cut_off)) == kept
    assert b"".join(text for text, _at in drained(whole)) == kept[kept.index(b"\n") + 1 :]


def test_a_line_beyond_the_bound_comes_in_pieces(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lines_of, "_LINE_BOUND", 10)
    writer, lines = Writer(tmp_path / "r", 1 << 20), LineReader(tmp_path / "r")
    pieces = []
    for number in range(1, 5):
        writer.write(b"x" * 8, number * STEP)
        pieces += lines.read()
    writer.write(b"\nnext\n", 9 * STEP)
    pieces += lines.read()
    assert b"".join(text for text, _at in pieces) == b"x" * 32 + b"\nnext\n"
    assert [at for _text, at in pieces] == [STEP, STEP, STEP, 9 * STEP]


@pytest.mark.parametrize(
    ("text", "labelled"),
    [
        (b"", b""),
        (b"a", b"> a"),
        (b"a\n", b"> a\n"),
        (b"a\nb", b"> a\n> b"),
        (b"a\r\nb\n", b"> a\r\n> b\n"),
        (b"1%\r2%\r\n", b"> 1%\r> 2%\r\n"),
        (b"1%\r", b"> 1%\r"),
        (b"\n\n", b"> \n> \n"),
    ],
)
def test_a_label_before_every_line(text: bytes, labelled: bytes) -> None:
    assert behind(b"> ", text) == labelled
    assert behind(b"> ", text, in_line=True) == labelled[2:]
