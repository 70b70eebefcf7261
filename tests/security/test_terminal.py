"""What a rank or a host writes cannot obey on the terminal that shows it: review L1."""

import io
import re
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from taco_launch.cli.output import job_output
from taco_launch.hosts.remote.terminal import HostErrors, SafeStream, safe

# A control sequence, or a character that a terminal takes for the start of one or that turns text around.
OBEYED = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u202e\u2066]")
STYLE = re.compile(r"\x1b\[[0-9;:]*m")
ATTACKS = {
    "title": b"\x1b]0;root@bank\x07",
    "clear": b"\x1b[2J\x1b[H",
    "answer": b"\x1b[6n\x1b[c\x05",
    "line above": b"\x1b[1A\x1b[2Kgpu1/0 | forged",
    "8 bits": b"\x9b2J",
    "8 bits in UTF-8": "\x9b2J".encode(),
    "backspace": b"bad\b\b\bgood",
    "direction": "\u202egnp.exe".encode(),
    "half a sequence": b"\x1b[",
}


def shown(monkeypatch: pytest.MonkeyPatch, *chunks: bytes, terminal: bool = True) -> bytes:
    monkeypatch.setattr(sys.stdout, "isatty", lambda: terminal)
    monkeypatch.setenv("NO_COLOR", "1")
    out = io.BytesIO()
    log = job_output.LogOutput(out)
    for chunk in chunks:
        log.write(chunk)
    return out.getvalue()


@pytest.mark.parametrize("attack", ATTACKS.values(), ids=ATTACKS)
def test_a_terminal_gets_no_control_sequence_of_a_rank(attack: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    line = b"gpu1/0 | " + attack + b" end\n"
    text = shown(monkeypatch, line).decode()
    assert not OBEYED.search(text), text
    assert text.startswith("gpu1/0 | ")
    assert text.endswith(" end\n")
    assert shown(monkeypatch, line, terminal=False) == line, "a pipe gets what the rank wrote"
    assert not OBEYED.search(safe(attack.decode("utf-8", "surrogateescape")))


def test_colours_stay_and_end_with_their_line(monkeypatch: pytest.MonkeyPatch) -> None:
    """A concealed line is shown; a black one cannot hide the lines of other ranks, nor colour a label."""
    red, hidden = b"\x1b[1;31m", b"\x1b[8m"
    text = shown(monkeypatch, b"a/0 | " + red + b"x\x1b[0m y\na/0 | " + hidden + b"z\n", b"a/1 | w\n")
    assert text == b"a/0 | \x1b[1;31mx\x1b[0m y\na/0 | z\na/1 | w\n"
    progress = "a/0 | 50 % \u2588\ta\ra/0 | 60 %\r\n".encode()
    assert shown(monkeypatch, progress) == progress


@given(st.lists(st.one_of(st.binary(), st.sampled_from([*ATTACKS.values(), b"\x1b[31m", b"\x1b", b"[0", b"\n"]))))
def test_nothing_passes_wherever_it_is_cut(chunks: list[bytes]) -> None:
    stream = SafeStream()
    found = b"".join(map(stream, [*chunks, b"\n"])).decode()
    assert not OBEYED.search(STYLE.sub("", found))
    styles = [style.group() for style in STYLE.finditer(found)]
    assert not styles or styles[-1].strip("\x1b[m0;:") == "", "the last style is a reset"


class Terminal(io.BytesIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize("attack", ATTACKS.values(), ids=ATTACKS)
def test_a_hosts_errors_on_a_terminal(attack: bytes) -> None:
    out = Terminal()
    errors = HostErrors(out)
    for piece in (b"gpu1: ", attack[:2], attack[2:], b" the rest\n"):
        errors.write(piece)
    errors.flush()
    assert not OBEYED.search(STYLE.sub("", out.getvalue().decode()))


def test_a_hosts_errors_in_a_file_stay_as_they_are_and_have_an_end() -> None:
    out = io.BytesIO()
    errors = HostErrors(out)
    errors.write(b"\x1b[31mred\x1b[0m\n")
    for _chunk in range(10):
        errors.write(b"x" * (1 << 20))
    assert out.getvalue().startswith(b"\x1b[31mred\x1b[0m\n")
    assert len(out.getvalue()) == 1 << 22


@pytest.mark.parametrize("style", ["8", "0;8", "1;8;31", "08"])
def test_no_style_hides(style: str) -> None:
    assert safe(f"\x1b[{style}mhidden") == "hidden"


@pytest.mark.parametrize("style", ["38;5;8", "48;5;8", "1", "31"])
def test_colours_stay(style: str) -> None:
    assert safe(f"\x1b[{style}mseen") == f"\x1b[{style}mseen\x1b[0m"
