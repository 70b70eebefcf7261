"""Every command of this program in a message, a hint or a known failure is one that the command line accepts."""

import ast
import re
import shlex
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from taco_launch.core.signatures.table import TABLE
from tests.support.paths import ROOT
from tests.support.shown_commands import VALUE, refusal, simple_commands

# What words of a sentence follow the program's name, where it is no command.
_PROSE = (
    "adds chooses did does follows from gives go has is keeps knew needs no on or runs sets snapshot starts "
    "supports that use uses was with would"
)
_START = re.compile(r"(?<!# )(?P<tick>`?)\btaco-launch (?=[\w-])")
# A command in a sentence ends where the sentence goes on; one that has its own line is whole.
_END = re.compile(r"[\n`,;()\"]| \||(?<=\S)(?<!\.)[.:](?=\s|$)|$")
_ALTERNATIVES = re.compile(r"(?<=\w)\|[\w|]+")
_OWN_LINE = re.compile(r"(?:^|\n) +(?:[^\n]*\| )?$")
# So a verb that is only named in a sentence is told from one that is to be typed.
_TYPED = re.compile(r"(?:`|: |; |\b[Rr]un )$")
# Names of values that hold the program, with its inventory where one was named.
_PROGRAM = re.compile(r"(?:\w+\.)*_?typed")


def said(path: Path) -> Iterator[tuple[int, str]]:
    """Yield the line and the text of every string of a file, f-strings with plausible values."""
    tree = ast.parse(path.read_text("utf-8"))
    inside = {
        id(part)
        for node in ast.walk(tree)
        if isinstance(node, ast.JoinedStr)
        for part in ast.walk(node)
        if part is not node
    }
    for node in ast.walk(tree):
        if id(node) in inside:
            continue
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.lineno, node.value
        elif isinstance(node, ast.JoinedStr):
            yield node.lineno, _filled(node)


def _filled(text: ast.JoinedStr) -> str:
    """Return an f-string with values; one that continues a word is an option that may be missing."""
    said = ""
    for part in text.values:
        if isinstance(part, ast.Constant):
            said += str(part.value)
        elif isinstance(part, ast.FormattedValue) and not said[-1:].isalnum():
            said += "taco-launch" if _PROGRAM.fullmatch(ast.unparse(part.value)) else VALUE
    return said


def told(text: str) -> Iterator[list[str]]:
    """Yield the words of each command in a text."""
    for start in _START.finditer(text):
        before, rest = text[: start.end("tick")], text[start.end("tick") :]
        if start["tick"]:
            command = rest.partition("`")[0]
        elif _OWN_LINE.search(before):
            command = rest.partition("\n")[0]
        else:
            command = _END.split(rest, maxsplit=1)[0]
        with suppress(ValueError):  # an apostrophe of a sentence
            words = [word.strip("[]") for word in next(simple_commands(_ALTERNATIVES.sub("", command)))]
            bare = len(words) == 2 and not _TYPED.search(before)
            if not bare and words[1] not in _PROSE.split():
                yield words


def refused(text: str) -> list[str]:
    return [f"{shlex.join(words)}: {refusal(words)}" for words in told(text) if refusal(words)]


@pytest.mark.parametrize("folder", sorted(path.name for path in (ROOT / "taco_launch").iterdir() if path.is_dir()))
def test_commands_in_messages_are_accepted(folder: str) -> None:
    files = sorted((ROOT / "taco_launch" / folder).rglob("*.py"))
    assert [f"{path}:{line}: {one}" for path in files for line, text in said(path) for one in refused(text)] == []


def test_commands_in_known_failures_are_accepted() -> None:
    assert any("taco-launch " in entry.next for entry in TABLE)
    assert [one for entry in TABLE for text in (entry.cause, entry.next) for one in refused(text)] == []


@pytest.mark.parametrize(
    "text",
    [
        "Remove them: taco-launch prune.",
        "`taco-launch frobnicate` shows it",
        "run taco-launch get --no-such JOB to see it",
        "`taco-launch stop`",
    ],
)
def test_what_the_command_line_refuses_is_found(text: str) -> None:
    assert len(refused(text)) == 1


@pytest.mark.parametrize(
    "text",
    ["see taco-launch stacks JOB (py-spy dump)", "`taco-launch -i FILE run -- python3 train.py`", "taco-launch itself"],
)
def test_what_the_command_line_accepts_is_no_fault(text: str) -> None:
    assert refused(text) == []
