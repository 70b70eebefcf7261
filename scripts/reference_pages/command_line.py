"""The command reference: every verb with its help, options and examples, from click."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator

import click

from reference_pages.markdown import code, prose, table
from taco_launch.cli.main import cli
from taco_launch.cli.verbs import Verb

_INTRODUCTION = """\
# Command line

This page is generated from the commands by `scripts/generate_docs.py`; `taco-launch VERB --help` prints the same.
Every command takes `-h` or `--help`. Times are written `90`, `90s`, `15m`, `3h` or `2d`.
[Exit codes](exit-codes.md) and [environment variables](environment.md) have pages of their own.
"""
# A paragraph that click prints as it is.
_AS_IT_IS = "\b\n"


def page() -> str:
    """Return the page."""
    context = click.Context(cli, info_name="taco-launch", **cli.context_settings)
    parts = [_INTRODUCTION, *_command(context)]
    return "\n".join(parts)


def _command(context: click.Context) -> Iterator[str]:
    command = context.command
    name = context.command_path.partition(" ")[2]
    yield f"## {name or 'Options of every command'}\n"
    yield f"```text\n{' '.join([context.command_path, *command.collect_usage_pieces(context)])}\n```\n"
    yield from _help(command.help or "")
    options = [
        param
        for param in command.get_params(context)
        if isinstance(param, click.Option) and not param.hidden and "--help" not in param.opts
    ]
    yield from table(("Option", "Meaning"), filter(None, (_option(option, context) for option in options)))
    yield from _help(command.epilog or "")
    if isinstance(command, click.Group):
        for name in command.list_commands(context):
            below = command.get_command(context, name)
            assert below is not None
            if not below.hidden:
                loaded = below.load() if isinstance(below, Verb) else below
                yield from _command(click.Context(loaded, info_name=name, parent=context))


def _help(text: str) -> Iterator[str]:
    for part in re.split(r"\n{2,}", inspect.cleandoc(text).replace("\f", "")):
        if part.startswith(_AS_IT_IS):
            lines = part.removeprefix(_AS_IT_IS).splitlines()
            yield f"```text\n{chr(10).join(lines)}\n```\n"
        elif part:
            yield f"{prose(part)}\n"


def _option(option: click.Option, context: click.Context) -> tuple[str, str] | None:
    record = option.get_help_record(context)
    return None if record is None else (code(record[0]), prose(record[1]))
