"""The frame of an answer: what a command said is given back byte for byte, and what is cut is called cut."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from taco_launch.core.facts.text.sections import PROBE, Section, answer, failure, files, read, unasked
from taco_launch.core.model.host.fact_value import Absent, Unknown

HEAD = b"m probe 1 1790000000.000000001\n"
DONE = b"m done 1790000000.500000000\n"


def one(text: bytes) -> Section:
    return read(HEAD + text + DONE)["a.b"]


def test_a_whole_answer() -> None:
    found = read(
        b"hello\nm probe\n" + HEAD + b"m begin a.b\nx\n\nm end a.b 3\nm err one\nm err  two\n" + DONE + b"bye\n"
    )
    assert found == {
        "a.b": Section("a.b", "x\n", "one\n two\n", 3),
        PROBE: Section(PROBE, "began 1790000000.000000001\nended 1790000000.500000000\n", "", 0),
    }


@pytest.mark.parametrize(("said", "told"), [(b"", b"\n"), (b"x", b"x\n"), (b"x\n", b"x\n\n"), (b"\n\n", b"\n\n\n")])
def test_output_is_given_as_it_was(said: bytes, told: bytes) -> None:
    assert one(b"m begin a.b\n" + told + b"m end a.b 0\n").stdout.encode() == said


# what `plain` takes off, and the marker itself, cannot stand in a line
@given(st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\x1b\r\ufeff")))
def test_any_text_is_given_as_it_was(text: str) -> None:
    assert one(b"m begin a.b\n" + text.replace("m ", "n ").encode() + b"\nm end a.b 0\n").stdout == text.replace(
        "m ", "n "
    )


def test_markers_of_another_answer_are_text() -> None:
    said = "n begin a.c\nn end a.b 0\nn done 1\n"
    assert one(b"m begin a.b\n" + said.encode() + b"\nm end a.b 0\n").stdout == said


def test_bytes_that_are_no_utf8_become_escapes() -> None:
    assert one(b"m begin a.b\n\xff\xfe\nm end a.b 0\n").stdout == "\\xff\\xfe"


def test_what_stands_before_the_first_marker_may_be_on_its_line() -> None:
    assert read(b"Welcome! " + HEAD + b"m begin a.b\n\nm end a.b 0\n" + DONE)["a.b"].exit_code == 0


@pytest.mark.parametrize(
    "cut",
    [
        b"m begin a.b\nx",
        b"m begin a.b\nx\n",
        b"m begin a.b\nx\n\nm end a.b 12",  # of 127
        b"m begin a.b\nx\n\nm end a.b 0\n",  # what it complains about would follow
        b"m begin a.b\nx\n\nm end a.c 0\n",
        b"m begin a.b\nx\nm begin a.c\n",
    ],
)
def test_a_section_without_its_end_is_cut(cut: bytes) -> None:
    found = read(HEAD + cut)
    assert found["a.b"].exit_code is None
    assert found[PROBE].exit_code is None
    assert failure(found, "a.b") == Unknown("a.b: the answer was cut off")


def test_a_section_that_is_told_twice() -> None:
    again = b"m begin a.b\nx\n\nm end a.b 0\n"
    assert one(again + again).stdout == "x\n"
    found = read(HEAD + again + again.replace(b"x", b"y") + DONE)
    assert failure(found, "a.b") == Unknown("a.b: the answer was cut off: it is reported twice with different values")


@pytest.mark.parametrize(
    "noise", [b"", b"m probe 1", b"m probe 1 17900", b"m probe 2 1790000000\n", b"probe 1 1790000000\n"]
)
def test_no_answer_at_all(noise: bytes) -> None:
    assert read(noise) == {}


def section(stdout: str = "", stderr: str = "", code: Any = 0) -> dict[str, Section]:
    return {"a.b": Section("a.b", stdout, stderr, code)}


@pytest.mark.parametrize(
    ("sections", "why"),
    [
        (section("x"), None),
        (section("x", "warning", 0), None),
        (section("", "tool: not found\n", 127), Absent("tool: not found")),
        (section("", "cat: /x: No such file or directory\n", 1), Absent("cat: /x: No such file or directory")),
        (section("", "cat: can't open '/x': No such file or directory\n", 1), Absent("cat: can't open '/x': No such file or directory")),
        (section("", "ls: /x: No such file or directory\nls: /y: Permission denied\n", 1), Unknown("ls: /x: No such file or directory; ls: /y: Permission denied (exit code 1)")),
        (section("part\n", "cat: /x: No such file or directory\n", 1), Unknown("cat: /x: No such file or directory (exit code 1)")),
        (section("only stdout\n", "", 9), Unknown("only stdout (exit code 9)")),
        (section("", "", 124), Unknown("a.b: no answer in time")),
        (section("", "bad\x07bell\n", 2), Unknown("bad\\x07bell (exit code 2)")),
        ({}, Unknown("a.b: this part is missing from the probe's answer")),
    ],
)  # fmt: skip
def test_why_there_is_no_answer(sections: dict[str, Section], why: Any) -> None:
    assert failure(sections, "a.b") == why
    if why is not None:
        assert answer(sections, "a.b") == why


def test_a_long_complaint_is_shortened() -> None:
    why = failure(section("", "x" * 5000, 1), "a.b")
    assert isinstance(why, Unknown)
    assert len(why.reason) < 350


def test_subjects_that_are_not_there() -> None:
    whole, cut = read(HEAD + DONE), read(HEAD)
    assert unasked(section("x"), "a") is None
    assert unasked(whole, "a") == Unknown("not asked")
    assert unasked({}, "a") == Unknown("not asked")
    assert unasked(cut, "a") == Unknown("the probe's answer ends before this part")
    assert unasked(read(HEAD, "the line is cut"), "a") == Unknown("the line is cut")
    assert unasked(read(HEAD + DONE, "the line is cut"), "a") == Unknown("not asked")


def test_files() -> None:
    told = files(
        section(
            "/a:one\n/a:\n/a:t:wo\n/d/x:1\n/d/y/z:2\n",
            "grep: /gone: No such file or directory\ngrep: /closed: Permission denied\n",
            2,
        ),
        "a.b",
    )
    assert told.text("/a") == "one\n\nt:wo"
    assert told.text("/empty") == ""
    assert told.text("/gone") == Absent("/gone: No such file or directory")
    assert told.text("/closed") == Unknown("/closed: Permission denied")
    assert told.below("/d") == (("x", "1"), ("y/z", "2"))


def test_files_of_a_cut_answer() -> None:
    told = files(section("/a:1\n/d/x:1\n/d/y:2", "", None), "a.b")
    assert told.text("/a") == "1"
    assert told.text("/d/y") == Unknown("/d/y: the answer was cut off")
    assert told.text("/later") == Unknown("/later: the answer was cut off")
    assert told.below("/d") == (("x", "1"),)


def test_files_where_grep_is_missing() -> None:
    assert files(section("", "grep: not found\n", 127), "a.b").text("/a") == Absent("grep: not found")


def test_complaints_without_end_are_kept_up_to_a_limit() -> None:
    """They come from a container, too: so many lines one by one would take minutes."""
    told = read(HEAD + b"m begin a.b\nm end a.b 1\n" + b"m err no\n" * 300_000 + DONE)
    assert told["a.b"].stderr == "no\n" * 1000


def test_an_end_that_is_told_twice_has_no_time() -> None:
    """A container may tell one, and have its host's clock taken for wrong."""
    told = read(HEAD + b"m done 5\nm done 7\n")
    assert told["probe"].stdout.splitlines()[1] == "ended "
    assert told["probe"].exit_code == 0
