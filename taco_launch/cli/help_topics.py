"""help: a topic, such as exit codes or the keys of a job file, or the help of a command."""

import re
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from importlib import import_module, resources
from typing import Any

import click
from click.shell_completion import CompletionItem

from taco_launch.cli import verbs
from taco_launch.cli.options import suggestions
from taco_launch.cli.options.common import settings_of, verb
from taco_launch.cli.output import render
from taco_launch.core.errors import UsageError

TOPICS = {
    "environment": "Environment variables and the configuration file.",
    "exit-codes": "Exit codes of every command, and errors as data.",
    "inventory": "Keys of the inventory file.",
    "job-file": "Keys of a job file.",
    "matrix": "Keys of a benchmark matrix.",
    "profiles": "Options of the mpirun command line: the profiles, and a profile of your own.",
}
# The module with `json_schema` of the documents that a topic is about; pydantic takes longer to import than the rest.
_SCHEMAS = {
    "inventory": "taco_launch.hosts.inventory.to_document",
    "job-file": "taco_launch.jobs.documents.job_schema",
    "matrix": "taco_launch.bench.run.matrix_schema",
}
_LINK = re.compile(r"\[([^\]]+)\]\([^)]*\)")
_CELL = re.compile(r"(?<!\\)\|")
# How much alike a word and a name are that is suggested for it: "retries" is not meant to be "metrics" (0.71).
_ALIKE = 0.75
# Columns of a terminal that a text takes at most.
_WIDTH = 100


def _complete(ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    group = ctx.find_root().command
    commands = group.list_commands(ctx) if isinstance(group, click.Group) else []
    return [CompletionItem(word) for word in (*TOPICS, *commands) if word.startswith(incomplete)]


@verb("help", output=True)
@click.argument("words", nargs=-1, metavar="[TOPIC|COMMAND]...", shell_complete=_complete)
def help_(ctx: click.Context, words: tuple[str, ...]) -> None:
    """Explain a topic, such as exit-codes, or a command.

    Topics: environment, exit-codes, inventory, job-file, matrix, profiles. Without one, lists them.

    \b
    Examples:
      taco-launch help exit-codes
      taco-launch help job-file
      taco-launch help bench run
    """
    output = settings_of(ctx).output
    if not words:
        if output in ("json", "yaml"):
            render.data({"topics": dict(TOPICS)}, output)
            return
        click.echo("Topics:\n" + "\n".join(f"  {name:<13}{about}" for name, about in TOPICS.items()))
        click.echo(
            "\nA topic: taco-launch help TOPIC; a command: taco-launch help COMMAND; all commands: taco-launch --help"
        )
    elif len(words) == 1 and words[0] in TOPICS:
        if output in ("json", "yaml"):
            render.data({"topic": words[0], "text": text_of(words[0])}, output)
        else:
            render.paged(plain(text_of(words[0])))
    else:
        render.paged(_command(ctx.find_root(), words))


def text_of(topic: str) -> str:
    """Return the text of a topic as Markdown, with the keys of the document that it is about."""
    text = resources.files("taco_launch.cli.topics").joinpath(f"{topic}.md").read_text("utf-8")
    if topic not in _SCHEMAS:
        return text
    schema = import_module(_SCHEMAS[topic]).json_schema()
    return "\n".join((text, *_keys("Keys", schema), *_sections(schema)))


def _sections(schema: Mapping[str, Any]) -> Iterator[str]:
    for name, part in sorted(schema.get("$defs", {}).items()):
        if part.get("properties"):
            yield from _keys(name, part)


def _keys(title: str, schema: Mapping[str, Any]) -> Iterator[str]:
    yield f"## {title}\n\n| Key | Meaning |\n|---|---|"
    needed = schema.get("required", ())
    for key, value in schema.get("properties", {}).items():
        about = value.get("description", "").replace("|", "\\|")
        yield f"| `{key}` | {'required: ' if key in needed else ''}{about} |"
    yield ""


def plain(markdown: str) -> str:
    """Return Markdown as a terminal shows it: tables in columns, without marks of code and links."""
    lines: list[str] = []
    rows: list[list[str]] = []
    fenced = False
    for line in (*markdown.splitlines(), ""):
        if line.startswith("|") and not fenced:
            rows.append([_words(cell) for cell in _CELL.split(line.strip().strip("|"))])
            continue
        if rows:
            lines += _table(rows)
            rows = []
        if line.startswith("```"):
            fenced = not fenced
        elif fenced:
            lines.append(f"  {line}")
        elif line.startswith("#"):
            lines.append(click.style(line.lstrip("# ").upper(), bold=True))
        else:
            lines += _wrapped(_words(line), _WIDTH)
    return "\n".join(lines).rstrip() + "\n"


def _words(text: str) -> str:
    return _LINK.sub(r"\1", text).replace("`", "").replace("\\|", "|").strip()


def _table(rows: Sequence[Sequence[str]]) -> Iterator[str]:
    """Yield a table in columns, the last one wrapped."""
    body = [row for index, row in enumerate(rows) if index > 1]
    first, *_rest = zip(*body, strict=True)
    width = min(max(map(len, first)), 40) + 2
    for row in body:
        text = " — ".join(cell for cell in row[1:] if cell)
        head = row[0]
        if len(head) + 2 > width:
            yield f"  {head}"
            head = ""
        for index, part in enumerate(_wrapped(text, _WIDTH - width - 2) or [""]):
            yield f"  {head if index == 0 else '':<{width}}{part}".rstrip()


def _wrapped(text: str, width: int) -> list[str]:
    return textwrap.wrap(text, width, break_on_hyphens=False, break_long_words=False) or [""]


def _command(root: click.Context, words: Sequence[str]) -> str:
    """Return the help of a command.

    Raises:
        UsageError: it does not exist; with the nearest command or topic.
    """
    context = root
    for word in words:
        group = context.command
        found = group.get_command(context, word) if isinstance(group, click.Group) else None
        if found is None:
            known = (*TOPICS, *(group.list_commands(context) if isinstance(group, click.Group) else ()))
            near = suggestions.nearest(word, known, _ALIKE)
            hint = f"did you mean {near!r}?" if near else "all topics: taco-launch help"
            raise UsageError(f"no topic or command {' '.join(words)!r}", hint=hint)
        command = found.load() if isinstance(found, verbs.Verb) else found
        context = click.Context(command, info_name=word, parent=context)
    return context.get_help() + "\n"
