"""`bash -c 'mpirun ...'` of manifests: read where a shell would only start that program, as a shell itself says."""

import shlex
import subprocess

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from taco_launch.jobs.command_lines.launcher_line import UnclearError
from taco_launch.jobs.command_lines.shell_line import read

SPECIAL = "|&;<>(){}*?[]#!~$`\\\n\"'"


@given(st.text(alphabet="ab =/-" + SPECIAL, max_size=12))
@example("printf a~b")
@example("a #b")
@example("a '#' b#c")
@example("~")
@example("'a' \"b c\" 'd\"e'")
def test_what_is_read_is_what_a_shell_makes_of_it(text: str) -> None:
    try:
        found = read(("sh", "-c", f"show {text}"))
    except UnclearError:
        return
    assert found is not None
    words, variables = found
    assert variables == {}
    script = "show() { for word; do printf '%s\\0' \"$word\"; done; }; show " + text
    done = subprocess.run(["sh", "-c", script], capture_output=True, text=True, check=True, cwd="/proc/self/fdinfo")
    assert list(words[1:]) == done.stdout.split("\0")[:-1]


@given(
    st.lists(
        st.text(alphabet=st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=8), min_size=1
    )
)
def test_quoted_words_are_read_or_refused(words: list[str]) -> None:
    try:
        found = read(("/bin/bash", "-lc", shlex.join(["mpirun", *words])))
    except UnclearError:
        return
    assert found == (("mpirun", *words), {})


@pytest.mark.parametrize(
    "text", ["a|b", "a && b", "a; b", "a\nb", "a $B", 'a "$B"', "a `b`", "a > b", "a *", "a ~", "a {b,c}"]
)
def test_what_a_shell_would_do_is_refused(text: str) -> None:
    with pytest.raises(UnclearError):
        read(("bash", "-c", text))


@pytest.mark.parametrize(
    "words", [("mpirun", "-c", "2"), ("bash", "run.sh"), ("bash",), ("bash", "-c"), ("bash", "--posix", "a")]
)
def test_what_is_no_line_of_a_shell(words: tuple[str, ...]) -> None:
    assert read(words) is None


def test_a_comment_at_the_end() -> None:
    assert read(("bash", "-c", "mpirun pi -g 1 #-n 200 #-w 2; rm x")) == (("mpirun", "pi", "-g", "1"), {})


def test_variables_and_continued_lines() -> None:
    assert read(("bash", "-ec", "A=1 B='x y' exec mpirun \\\n  -np 2 pi\n")) == (
        ("mpirun", "-np", "2", "pi"),
        {"A": "1", "B": "x y"},
    )
