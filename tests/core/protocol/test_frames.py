"""Frames of a caller: what is said is what is heard, whatever the pieces, and what is none is refused."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from taco_launch.core.errors import UsageError
from taco_launch.core.protocol.calls.caller_input import (
    MOST_DATA,
    Alive,
    CallerInput,
    EndOfInput,
    Hangup,
    InputData,
    WindowSize,
    input_of,
)
from taco_launch.core.protocol.frames import FrameReader

FRAMES = st.lists(
    st.one_of(
        st.binary(max_size=200).map(lambda data: InputData(data=data)),
        st.tuples(st.integers(0, 9999), st.integers(0, 9999)).map(lambda s: WindowSize(rows=s[0], columns=s[1])),
        st.sampled_from([Alive(), EndOfInput(), Hangup()]),
    ),
    max_size=6,
)


def reader() -> FrameReader:
    return FrameReader(input_of, MOST_DATA)


@given(FRAMES, st.integers(1, 50))
def test_what_is_said_is_heard(frames: list[CallerInput], size: int) -> None:
    data = b"".join(frame.encode() for frame in frames)
    heard = reader()
    found = [each for at in range(0, len(data), size) for each in heard.feed(data[at : at + size])]
    assert found == frames


@pytest.mark.parametrize(
    "data",
    [
        b"exit\n",
        b"[]\n",
        b'{"op":"nosuch"}\n',
        b'{"op":"input","bytes":-1}\n',
        b'{"op":"input","bytes":1048577}\n',
        b'{"op":"input","bytes":true}\n',
        b'{"op":"alive","bytes":1}\nx',
        b'{"op":"window","rows":-1,"columns":1}\n',
        b'{"op":"window","rows":10001,"columns":1}\n',
        b'{"op":"window","rows":1}\n',
        b"x" * (1 << 16),
        b"[" * 60_000 + b"\n",
    ],
)
def test_what_is_no_frame(data: bytes) -> None:
    with pytest.raises(UsageError, match="not a taco-launch message"):
        reader().feed(data)


@given(st.binary(max_size=300))
def test_any_bytes_are_frames_or_refused(data: bytes) -> None:
    try:
        found = reader().feed(data)
    except UsageError:
        return
    assert all(isinstance(each, CallerInput) for each in found)
