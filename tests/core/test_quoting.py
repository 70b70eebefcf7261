"""What `command.py` writes for shells, shells read as it was meant: every byte of arguments, environment and input."""

import random
import shutil
import subprocess

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from taco_launch.core.command import Command, login_line, start_line
from taco_launch.core.errors import UsageError

MARKER = f"{random.Random(1).getrandbits(128):032x}"
SHELLS = [["/bin/sh"], ["bash", "--posix"], ["dash"], ["busybox", "sh"]]
LOGIN_SHELLS = [["bash"], ["dash"], ["busybox", "sh"], ["csh"], ["tcsh"], ["fish"], ["zsh"]]
BYTES = st.binary(max_size=40).map(lambda data: data.replace(b"\0", b"").decode("utf-8", "surrogateescape"))
WORDS = st.one_of(BYTES, st.text("\\'\"$`!\n\r %01x{}\x01\x7f\x81\udc81\udcff-~*é", max_size=15))
NAMES = st.from_regex(r"[A-Za-z][A-Za-z0-9_]{0,8}", fullmatch=True).filter(
    lambda name: name.upper() not in {"UID", "EUID", "PPID", "PATH", "PWD", "OLDPWD", "SHLVL"}
)


def here(shells: list[list[str]]) -> list[object]:
    return [
        pytest.param(
            shell,
            id=shell[0],
            marks=pytest.mark.skipif(not shutil.which(shell[0]), reason=f"{shell[0]} is not installed"),
        )
        for shell in shells
    ]


def run(argv: list[str], command: Command) -> tuple[bytes, bytes, int]:
    """Run the shell as sshd would, and give what the program said and its exit code."""
    sent = start_line(command, whole=True) + command.stdin
    done = subprocess.run(argv, input=sent, capture_output=True, check=False, env={"PATH": "/usr/bin:/bin"})
    streams = []
    for stream in (done.stdout, done.stderr):
        before, begin, rest = stream.partition(f"{MARKER}:start ".encode())
        content, end, code = rest.partition(b"\n")[2].rpartition(f"{MARKER}:end ".encode())
        assert (before, bool(begin), bool(end)) == (b"", True, True), stream
        streams.append(content)
    return streams[0], streams[1], int(code)


def bytes_of(*words: str) -> bytes:
    return b"".join(word.encode("utf-8", "surrogateescape") + b"\0" for word in words)


def script() -> str:
    line = login_line(MARKER)
    assert line.startswith("exec /bin/sh -c '")
    return line[len("exec /bin/sh -c '") : -1]


@pytest.mark.parametrize("shell", here(SHELLS))
@settings(max_examples=25)
@given(words=st.lists(WORDS, max_size=8), env=st.dictionaries(NAMES, WORDS, max_size=4), stdin=st.binary(max_size=300))
@example(
    words=["new\nline\n\n", "\udc81\udc88", "-n", ""], env={"LC_ALL": "zz", "IFS": "a", "taco_m": "x"}, stdin=b"\n\0"
)
def test_posix_shells_start_the_program_with_exactly_what_was_given(
    shell: list[str], words: list[str], env: dict[str, str], stdin: bytes
) -> None:
    command = Command(("printf", r"%s\0", *words, "last"), env=tuple(env.items()))
    assert run([*shell, "-c", script()], command) == (bytes_of(*words, "last"), b"", 0)
    shown = run([*shell, "-c", script()], Command(("env", "-0"), env=tuple(env.items())))[0].split(b"\0")
    assert {bytes_of(f"{name}={value}")[:-1] for name, value in env.items()} <= set(shown)
    assert run([*shell, "-c", script()], Command(("cat",), stdin)) == (stdin, b"", 0)


@pytest.mark.parametrize("shell", here(LOGIN_SHELLS))
def test_login_shells_read_the_line_alike(shell: list[str]) -> None:
    line = login_line(MARKER)
    assert "!" not in line
    assert line.isprintable()
    command = Command(("sh", "-c", 'cat; echo "$0" >&2; exit 3', "it's\nme"), b"\0in\n", env=(("A", "'b"),))
    assert run([*shell, "-c", line], command) == (b"\0in\n", b"it's\nme\n", 3)


@pytest.mark.parametrize("shell", here(SHELLS))
def test_a_program_that_a_signal_ended_says_nothing_more(shell: list[str]) -> None:
    assert run([*shell, "-c", script()], Command(("sh", "-c", "echo aside >&2; kill -9 $$"))) == (b"", b"aside\n", 137)


@pytest.mark.parametrize("shell", here(SHELLS))
def test_words_of_a_shell_are_programs_here(shell: list[str]) -> None:
    """No function, keyword or builtin of the shell stands for a program."""
    for word in ("if", "eval", "exit", "no-such-program"):
        out, err, code = run([*shell, "-c", script()], Command((word, "1")))
        assert (out, code) == (b"", 127), word
        assert word.encode() in err


def test_a_large_argument() -> None:
    word = "\udcff" * 100_000
    assert run(["sh", "-c", script()], Command(("printf", "%s", word)))[0] == b"\xff" * 100_000


@pytest.mark.parametrize("name", ["", "1A", "A.B", "A-B", "A B", "A=B", "UID", "_", "é", "A\n"])
def test_names_that_no_shell_exports_are_refused(name: str) -> None:
    with pytest.raises(UsageError, match="no shell can export it"):
        start_line(Command(("true",), env=((name, "x"),)), whole=True)


def test_a_nul_is_refused() -> None:
    with pytest.raises(ValueError, match="NUL"):
        start_line(Command(("echo", "a\0b")), whole=True)
