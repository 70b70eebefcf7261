"""Words of messages, help, documentation and docstrings: standard terms, short sentences, docstrings that start with a verb."""

import ast
import re
from collections.abc import Iterator

import click

from taco_launch.cli.main import cli
from taco_launch.cli.verbs import Verb
from tests.docs.pages import ROOT, prose, text_of, written
from tests.support.words import BANNED_IN_PAGES, PEOPLE, invented, long_sentences

_SAID = re.compile(r'^\s+"""(?:Give|Say|State) .*', re.MULTILINE)
_COMMENT = re.compile(r"(?:^|\s)# (.*)")
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
    """Yield the help of a command, of its options and of the commands below it, exit codes included, without examples."""
    command = command.load() if isinstance(command, Verb) else command
    for part in re.split(r"\n\s*\n", f"{command.help or ''}\n\n{command.epilog or ''}"):
        text = " ".join(part.replace("\b", "").split())
        if not part.strip().startswith("\b") or text.startswith("Exit codes:"):
            yield name, text
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


def test_what_returns_nothing_does_not_claim_to() -> None:
    found = [
        f"{path.relative_to(ROOT)}:{node.lineno} {node.name}"
        for path in sorted((ROOT / "taco_launch").rglob("*.py"))
        for node in ast.walk(ast.parse(path.read_text("utf-8")))
        if isinstance(node, ast.FunctionDef)
        and (ast.get_docstring(node) or "").startswith("Return")
        and node.returns is not None
        and ast.unparse(node.returns) in ("None", "NoReturn")
    ]
    assert found == []


def pages() -> Iterator[tuple[str, str]]:
    """Yield the prose of each English page that people wrote, but of the one that explains the terms."""
    for page in (*written(), "CHANGELOG.md", "SECURITY.md"):
        if page != "docs/glossary.md" and not page.startswith(("docs/zh/", "README.zh-CN")):
            yield page, prose(text_of(page))


def comments() -> Iterator[tuple[str, str]]:
    """Yield the comments of shell scripts and YAML files that are shipped, and the pages of the examples."""
    files = {
        path for folder in ("taco_launch", "docker", "inventories", "scripts") for path in (ROOT / folder).rglob("*")
    }
    for path in sorted(path for path in files if path.is_file() and path.suffix in (".sh", ".yaml", ".yml", "")):
        text = path.read_text("utf-8", "replace")
        if path.suffix or text.startswith("#!"):
            for number, line in enumerate(text.splitlines(), 1):
                yield from ((f"{path.relative_to(ROOT)}:{number}", found) for found in _COMMENT.findall(line))
    for path in sorted((ROOT / "taco_launch/examples").rglob("README.md")):
        yield str(path.relative_to(ROOT)), " ".join(prose(path.read_text("utf-8")).split())


def test_nothing_has_invented_terms() -> None:
    said = [each for where, text in (*messages(), *helps(cli), *comments()) for each in invented(where, text)]
    assert said == []
    assert [each for where, text in helps(cli) for each in invented(where, text, PEOPLE)] == []
    for page, text in pages():
        assert invented(page, " ".join(text.split()), BANNED_IN_PAGES) == []


def test_no_sentence_is_too_long() -> None:
    glossary = ("docs/glossary.md", prose(text_of("docs/glossary.md")))
    for where, text in (*helps(cli), *pages(), glossary):
        assert long_sentences(where, text) == []


def test_the_terms_are_looked_for() -> None:
    assert invented("", "it was told that nights and what is there") != []
    places = {where.partition(":")[0] for where, _text in comments()}
    assert {
        "scripts/test",
        "taco_launch/core/facts/probe.sh",
        "inventories/example.yaml",
        "taco_launch/examples/01-hello/README.md",
    } <= places
