"""knobs: the environment variables and MCA parameters that are known, what they do and what they take."""

import re
import shutil
import sys
from collections.abc import Iterator, Sequence
from typing import Any

import click
from click.shell_completion import CompletionItem

from taco_launch.cli.options.common import settings_of, verb
from taco_launch.cli.output import render
from taco_launch.core.errors import UsageError
from taco_launch.core.launch import knobs as table
from taco_launch.core.launch.knobs import Knob
from taco_launch.core.launch.knobs.knob import LIBRARIES
from taco_launch.core.model.codec import to_json

# What is wider in the table of a terminal is cut; a reason is left this much at least.
_WIDEST_DEFAULT = 14
_NARROWEST_WHY = 10
# Spaces between two columns of a table on a terminal.
_BETWEEN = 3
_CLAUSE_END = re.compile(r"[.:;](?: |$)|, (?:and|which|so|also) ")


def _complete(_ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    start = incomplete.lower()
    return [CompletionItem(knob.name) for knob in table.matching(incomplete) if knob.name.lower().startswith(start)]


@verb(output=True)
@click.argument("names", nargs=-1, metavar="[NAME|PREFIX]...", shell_complete=_complete)
def knobs(ctx: click.Context, names: tuple[str, ...]) -> None:
    """List tuning variables of NCCL, Horovod, Open MPI and UCX.

    A name, or a part of a name that only one knob has, shows the whole entry. Any other part of a name shows a table of the
    knobs that have it, and no argument a table of all, by library. On a terminal the table is cut to its width and paged.

    \b
    Examples:
      taco-launch knobs NCCL_IB_HCA
      taco-launch knobs NCCL_IB_ LIGHT_
      taco-launch knobs gdr
      taco-launch knobs btl_tcp -o wide
    """
    found = tuple(dict.fromkeys(knob for name in names for knob in _matching(name))) if names else table.TABLE
    output = settings_of(ctx).output
    if output in ("json", "yaml"):
        render.data({"knobs": [_data(knob) for knob in found]}, output)
    elif len(names) == len(found) == 1:
        _print_entry(found[0])
    else:
        _print_table(found, wide=output == "wide")


def _matching(name: str) -> tuple[Knob, ...]:
    found = table.matching(name)
    if not found:
        near = table.closest(name)
        hint = f"did you mean {near}?" if near else "list all knobs: taco-launch knobs"
        raise UsageError(f"no knob matches {name!r}", hint=hint)
    return found


def _data(knob: Knob) -> dict[str, Any]:
    """Return a knob as JSON values: its name and library first."""
    values = to_json(knob)
    derived = {"library": knob.library, "reads": knob.reads, "values": knob.allowed}
    return {"name": values.pop("name"), **derived, **{key: values[key] for key in values if key not in derived}}


def _print_entry(knob: Knob) -> None:
    lines = (
        ("Name", knob.name),
        ("Aliases", ", ".join(knob.aliases)),
        ("Library", knob.library),
        ("Given with", _given(knob)),
        ("Values", knob.allowed),
        ("Unit", knob.unit),
        ("Read", knob.reads),
        ("Default", knob.default or "none"),
        ("History", knob.history),
        ("Since", knob.since),
        ("Gone in", knob.until),
        ("Instead", knob.instead),
        ("Applies", knob.applies),
        ("Why", knob.why),
        ("Source", knob.source),
    )
    for key, value in lines:
        if value:
            click.echo(f"{key + ':':<12}{value}")


def _given(knob: Knob) -> str:
    """Return how a knob is given, nothing for one that no version reads any more."""
    if knob.instead or knob.given:
        return knob.given
    value = knob.example
    other = f"--mca {knob.name} {value}" if knob.mca else f"-x {knob.name}={value}"
    return f"--knob {knob.name}={value} or {other}"


def _print_table(found: tuple[Knob, ...], *, wide: bool) -> None:
    if wide:
        header = ["NAME", "LIBRARY", "DEFAULT", "VALUES", "SINCE", "UNTIL", "APPLIES", "ALIASES", "WHY", "SOURCE"]
        render.table(header, [_wide(knob) for knob in found])
        return
    rows = [[knob.name, knob.default, _clause(knob.why)] for knob in found]
    if sys.stdout.isatty():
        rows = _fitted(rows, shutil.get_terminal_size().columns)
    lines = render.columns(["NAME", "DEFAULT", "WHY"], rows).splitlines()
    render.paged("\n".join((lines[0], *_grouped(found, lines[1:]))) + "\n")


def _grouped(found: Sequence[Knob], lines: Sequence[str]) -> Iterator[str]:
    """Yield the lines of a table with a title above those of each library, if there are several."""
    libraries = dict.fromkeys(knob.library for knob in found)
    for library in libraries:
        if len(libraries) > 1:
            yield f"\n{click.style(LIBRARIES[library], bold=True)}:"
        yield from (line for knob, line in zip(found, lines, strict=True) if knob.library == library)


def _wide(knob: Knob) -> list[str]:
    first = [knob.name, knob.library, knob.default, knob.allowed, knob.since, knob.until, knob.applies]
    return [*first, ",".join(knob.aliases), knob.why, knob.source]


def _clause(text: str) -> str:
    """Return the first clause of a sentence."""
    return _CLAUSE_END.split(text, maxsplit=1)[0]


def _fitted(rows: list[list[str]], width: int) -> list[list[str]]:
    """Cut defaults and reasons so that a table of (name, default, why) is no wider than `width`; names stay whole."""
    rows = [[name, _cut(default, _WIDEST_DEFAULT), why] for name, default, why in rows]
    before = sum(max(len(row[column]) for row in rows) + _BETWEEN for column in (0, 1))
    return [[name, default, _cut(why, max(width - before, _NARROWEST_WHY))] for name, default, why in rows]


def _cut(text: str, most: int) -> str:
    return text if len(text) <= most else f"{text[: most - 3]}..."
