"""What `shell` prints, a shell reads back as exactly the words that went in, from one line."""

import os
import subprocess

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from taco_launch.core.command import shell

AWKWARD = [
    "", " ", "two words", "new\nline", "\r", "\t", "'", '"', "it's", "\\", "\\n", "\\'", "`id`", "$(id)", "$HOME", "${X}",
    "$'x'", "!", "!!", "*", "?", "[a]", "{a,b}", "~", "~root", "#", ";", "&", "|", "<", ">", "a=b", "-n", "--", "%s",
    "naïve", "你好", "\x01", "\x7f", "\x85", "\xa0", "\u2028", "\u200b", "\udcff", "\udcc3\udca9", "\x011", "e\u0301", "😀",
]  # fmt: skip
BYTES = st.binary(max_size=30).map(lambda data: data.replace(b"\0", b"").decode("utf-8", "surrogateescape"))
WORDS = st.one_of(
    BYTES,
    st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=30),
    st.text("\\'\"$`!\n\r 01x{}\x01\udcff", max_size=12),
)


def read_back(argv: list[str], locale: str) -> list[bytes]:
    """Return the words that bash reads from the line, each ended by NUL on its stdout."""
    script = b"printf '%s\\0' " + shell(argv).encode("utf-8", "surrogateescape")
    done = subprocess.run(["bash", "-c", script], env={"LC_ALL": locale}, stdout=subprocess.PIPE, check=True)
    return done.stdout.split(b"\0")[:-1]


@settings(max_examples=60)
@given(st.lists(WORDS, min_size=1, max_size=30), st.sampled_from(["C", "C.UTF-8"]))
@example(AWKWARD, "C")
@example(AWKWARD, "C.UTF-8")
def test_bash_reads_back_every_word(argv: list[str], locale: str) -> None:
    assert read_back(argv, locale) == [word.encode("utf-8", "surrogateescape") for word in argv]


@given(st.lists(WORDS, max_size=8))
def test_it_is_always_one_line_that_can_be_seen(argv: list[str]) -> None:
    assert shell(argv).isprintable()


@pytest.mark.parametrize("path", ["/bin/sh"])
def test_any_posix_shell_reads_printable_words(path: str) -> None:
    words = [word for word in AWKWARD if word.isprintable()]
    done = subprocess.run([path, "-c", f"printf '%s\\0' {shell(words)}"], stdout=subprocess.PIPE, check=True)
    assert done.stdout.split(b"\0")[:-1] == [os.fsencode(word) for word in words]


@pytest.mark.parametrize(
    ("argv", "line"),
    [
        ((), ""),
        (("mpirun", "-np", "2"), "mpirun -np 2"),
        (("sh", "-c", "echo $RANK"), "sh -c 'echo $RANK'"),
        (("echo", "a\nb"), "echo $'a\\012b'"),
        (("x", ""), "x ''"),
    ],
)
def test_plain_words_stay_plain(argv: tuple[str, ...], line: str) -> None:
    assert shell(argv) == line
