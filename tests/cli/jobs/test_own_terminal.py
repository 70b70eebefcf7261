"""What is typed on its way to a command elsewhere: nothing is lost or added but for the escape."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from taco_launch.cli.jobs import own_terminal
from taco_launch.cli.jobs.own_terminal import Escapes


def passed(*pieces: bytes) -> tuple[bytes, bool]:
    found = Escapes()
    return b"".join(found.passed(piece) for piece in pieces), found.left


@pytest.mark.parametrize(
    ("typed", "goes", "left"),
    [
        (b"~.", b"", True),
        (b"ls\r~.", b"ls\r", True),
        (b"ls\n~.more", b"ls\n", True),
        (b"~~.", b"~.", False),
        (b"~/bin\r", b"~/bin\r", False),
        (b"a~.", b"a~.", False),
        (b"\r~\r~.", b"\r~\r", True),
        (b"~", b"", False),
    ],
)
def test_the_escape(typed: bytes, goes: bytes, left: bool) -> None:
    assert passed(typed) == (goes, left)
    assert passed(*(bytes([byte]) for byte in typed)) == (goes, left)


@given(st.binary(max_size=60), st.lists(st.integers(0, 60), max_size=4))
def test_whatever_the_pieces_it_comes_in(data: bytes, cuts: list[int]) -> None:
    places = [0, *sorted(cuts), len(data)]
    pieces = [data[begin:end] for begin, end in itertools.pairwise(places)]
    assert passed(*pieces) == passed(data)
    if b"~" not in data:
        assert passed(data) == (data, False)


@pytest.mark.parametrize(("kind", "known"), [("xterm-256color", "xterm-256color"), ("", "dumb"), ("x y", "dumb")])
def test_the_kind_of_a_terminal(monkeypatch: pytest.MonkeyPatch, kind: str, known: str) -> None:
    monkeypatch.setenv("TERM", kind)
    assert own_terminal.terminal().kind == known
