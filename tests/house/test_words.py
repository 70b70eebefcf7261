"""Words of messages, help and docstrings: standard terms, short sentences, docstrings that start with what a function does."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import click

from taco_launch.cli.main import cli
from taco_launch.cli.verbs import Verb

ROOT = Path(__file__).resolve().parents[2]
_SAID = re.compile(r'^\s+"""(?:Give|Say) .*', re.MULTILINE)
# Invented terms, and what to write instead: docs/glossary.md. The documentation's own list: tests/docs/test_words.py.
BANNED = {
    r"\bmend(?:ed|s)?\b": "fix",
    r"\bbegins\b|\bbegun\b|\bbegan\b|\bto begin\b": "start",
    r"\bfirst contact\b": "bootstrap",
    r"\b(?:is|was|are|were) (?:not )?told\b": "is reported, or passed",
    r"\basked for\b": "requested",
    r"\bstands? (?:in|for|behind|before|there|twice|beside|above|below)\b": "is",
    r"\bc[ao]mes? to nothing\b": "has no effect",
    r"\bthere (?:is|are) none\b": "not found",
    r"\bnobody to ask\b": "stdin is not a terminal",
    r"\bwhat is there\b": "what exists",
    r"\b(?:the|a|no|each) nights?\b(?![/.])": "a nightly run",
    r"\bgoes on\b|\bgo on\b": "continues",
    r"\bhas it not\b": "lacks it",
    r"\bmachine that you type on\b": "controller",
}
LONGEST = 40
# What other programs print, which is matched as they print it.
_PATTERN = re.compile(r"\\[dSswb]|\(\?P|\(\?:|SELECT |CREATE ")


def messages() -> Iterator[tuple[str, str]]:
    """Yield the place and text of every string of several words in the package that is no docstring."""
    for path in sorted((ROOT / "taco_launch").rglob("*.py")):
        tree = ast.parse(path.read_text("utf-8"))
        bare = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
        for node in ast.walk(tree):
            text = node.value if isinstance(node, ast.Constant) and id(node) not in bare else None
            if isinstance(text, str) and text.count(" ") > 1 and not _PATTERN.search(text):
                yield f"{path.relative_to(ROOT)}:{getattr(node, 'lineno', 0)}", " ".join(text.split())


def helps(command: click.Command, name: str = "taco-launch") -> Iterator[tuple[str, str]]:
    """Yield the help of a command, of its options and of the commands below it, without examples."""
    command = command.load() if isinstance(command, Verb) else command
    for part in re.split(r"\n\s*\n", f"{command.help or ''}\n\n{command.epilog or ''}"):
        if not part.strip().startswith("\b"):
            yield name, " ".join(part.split())
    for param in command.params:
        if isinstance(param, click.Option) and param.help:
            yield f"{name} {param.opts[0]}", " ".join(param.help.split())
    if isinstance(command, click.Group):
        for below, inner in command.commands.items():
            yield from helps(inner, f"{name} {below}")


def test_docstrings_return_and_yield() -> None:
    found = [
        f"{path.relative_to(ROOT)}: {line.strip()}"
        for folder in ("taco_launch", "scripts", "tests")
        for path in sorted((ROOT / folder).rglob("*.py"))
        for line in _SAID.findall(path.read_text("utf-8"))
    ]
    assert found == []


def test_messages_and_help_have_no_invented_terms() -> None:
    found = [
        f"{where}: {text}: write: {instead}"
        for where, text in (*messages(), *helps(cli))
        for term, instead in BANNED.items()
        if re.search(term, text, re.IGNORECASE)
    ]
    assert found == []


def test_no_sentence_of_the_help_is_too_long() -> None:
    sentences = [(where, one) for where, text in helps(cli) for one in re.split(r"(?<=[.!?:;])\s+", text)]
    assert [(where, one) for where, one in sentences if len(one.split()) > LONGEST] == []


def test_the_terms_are_looked_for() -> None:
    assert [term for term in BANNED if re.search(term, "it was told that nights and what is there")] != []
