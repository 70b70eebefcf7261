"""The command reference, from click: a page for each command, and an index with the options that most of them take."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator, Mapping
from itertools import groupby

import click

from reference_pages.markdown import code, prose, table
from taco_launch.cli.main import cli
from taco_launch.cli.options.common import TacoOption
from taco_launch.cli.verbs import Verb, group_of

_INTRODUCTION = """\
# Command line

These pages are generated from the commands by `scripts/generate_docs.py`; `taco-launch COMMAND --help` prints the same.
Times are written `90`, `90s`, `15m`, `3h` or `2d`. [Exit codes](../exit-codes.md) and [environment variables](../environment.md)
have pages of their own.
"""
# In the search, a command's own page comes first.
_FIRST = "---\nsearch:\n  boost: 3\n---\n\n"
_COMMON = "Options of most commands"
# The command whose options others take too, in whole groups.
_MODEL = "run"
# So many equal options are listed by their names, with a link to the model.
_MANY = 20
_NAMES = re.compile(r"-[\w-]+(?:(?:, | / )-[\w-]+)*")
# A paragraph that click prints as it is.
_AS_IT_IS = "\b\n"


def pages() -> Mapping[str, str]:
    """Return the text of each page by its name."""
    root = click.Context(cli, info_name="taco-launch", **cli.context_settings)
    commands = tuple(_commands(root))
    (model,) = (each for each in commands if _name(each) == _MODEL)
    of_model = _options(model)
    common = [option for option in _options(root) if option[0] != "--version"]
    common += [option for option in of_model if option[0].startswith("--ask-sudo-password")]
    common.append(("-h, --help", "Show the help of the command and exit.", ""))
    index = [_INTRODUCTION, *_help(cli.epilog or "")]
    for title, each in groupby(commands, key=lambda context: group_of(_name(context).partition(" ")[0])):
        index += [f"## {title}\n", *table(("Command", "What it does"), map(_entry, each))]
    index += [f"## {_COMMON}\n", *table(("Option", "Meaning"), map(_row, common))]
    found = {_file(each): "\n".join(_page(each, common, [] if each is model else of_model)) for each in commands}
    return {"index": "\n".join(index), **found}


def _commands(context: click.Context) -> Iterator[click.Context]:
    """Yield the commands that are no groups, in the order of the help."""
    group = context.command
    if not isinstance(group, click.Group):
        yield context
        return
    names = group.list_commands(context)
    for name in sorted(names, key=lambda name: _first_of_group(name, names)) if context.parent is None else names:
        below = group.get_command(context, name)
        assert below is not None
        if not below.hidden:
            loaded = below.load() if isinstance(below, Verb) else below
            yield from _commands(click.Context(loaded, info_name=name, parent=context))


def _first_of_group(name: str, names: list[str]) -> int:
    """Return where the first verb stands that is in the same group of the help."""
    return next(at for at, each in enumerate(names) if group_of(each) == group_of(name))


def _name(context: click.Context) -> str:
    return context.command_path.partition(" ")[2]


def _file(context: click.Context) -> str:
    return _name(context).replace(" ", "-")


def _entry(context: click.Context) -> tuple[str, str]:
    return f"[{code(_name(context))}]({_file(context)}.md)", prose(context.command.get_short_help_str(limit=200))


def _page(
    context: click.Context, common: list[tuple[str, str, str]], model: list[tuple[str, str, str]]
) -> Iterator[str]:
    """Yield the parts of a command's page; options that are on the index or the model's page are named there only."""
    command = context.command
    options = _options(context)
    yield f"{_FIRST}# {_name(context)}\n"
    yield f"```text\n{' '.join([context.command_path, *command.collect_usage_pieces(context)])}\n```\n"
    yield from _help(command.help or "")
    same = [option for option in options if option in model and option not in common]
    same = same if len(same) >= _MANY else []
    own = [option for option in options if option not in common and option not in same]
    for title, each in groupby(sorted(own, key=lambda option: _place(option, own)), key=lambda option: option[2]):
        yield f"## {title or 'Options'}\n"
        yield from table(("Option", "Meaning"), map(_row, each))
    if same:
        yield f"## Options of {_MODEL}\n"
        yield f"These mean the same as for [{_MODEL}]({_MODEL}.md): {', '.join(code(_names(option[0])) for option in same)}.\n"
    names = [code(option[0].partition(" ")[0].rstrip(",")) for option in common if option in options]
    yield f"Also: {', '.join((*names, '`-h`'))}; see [options of most commands](index.md#{_COMMON.lower().replace(' ', '-')}).\n"
    yield from _help(command.epilog or "")


def _place(option: tuple[str, str, str], options: list[tuple[str, str, str]]) -> int:
    """Return where the first option stands that is in the same group."""
    return next(at for at, each in enumerate(options) if each[2] == option[2])


def _options(context: click.Context) -> list[tuple[str, str, str]]:
    """Return how each option is typed, what it means, and its group in the help, "" if it is in none."""
    found = []
    for option in context.command.get_params(context):
        if isinstance(option, click.Option) and not option.hidden and not {"--help", "--help-all"} & set(option.opts):
            record = option.get_help_record(context)
            if record is not None:
                found.append((record[0], record[1], _group(option)))
    return found


def _names(typed: str) -> str:
    """Return the names of an option, without what it takes."""
    found = _NAMES.match(typed)
    assert found is not None
    return found[0]


def _row(option: tuple[str, str, str]) -> tuple[str, str]:
    return code(option[0]), prose(option[1])


def _group(option: click.Option) -> str:
    return option.group if isinstance(option, TacoOption) else ""


def _help(text: str) -> Iterator[str]:
    for part in re.split(r"\n{2,}", inspect.cleandoc(text).replace("\f", "")):
        if part.startswith(_AS_IT_IS):
            lines = part.removeprefix(_AS_IT_IS).splitlines()
            yield f"```text\n{chr(10).join(lines)}\n```\n"
        elif part:
            yield f"{prose(part)}\n"
