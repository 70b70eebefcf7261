"""knobs: the environment variables and MCA parameters that are known, what they do and what they take."""

from typing import TYPE_CHECKING, Any

import click
from click.shell_completion import CompletionItem

from taco_launch.cli import render
from taco_launch.cli.options import output_options, settings_of
from taco_launch.errors import UsageError

if TYPE_CHECKING:
    from taco_launch.launch.knobs import Knob


def _complete(_ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    from taco_launch.launch import knobs as table

    return [CompletionItem(knob.name) for knob in table.matching(incomplete)]


@click.command()
@output_options
@click.argument("names", nargs=-1, metavar="[NAME|PREFIX]...", shell_complete=_complete)
@click.pass_context
def knobs(ctx: click.Context, names: tuple[str, ...]) -> None:
    """Show what NCCL, Horovod, LightCC, Open MPI and UCX can be told, and where that is from.

    One whole name shows all that is known of it; a beginning shows a table of those with it, nothing shows all.

    \b
    Examples:
      taco-launch knobs NCCL_IB_HCA
      taco-launch knobs NCCL_IB_ LIGHT_
      taco-launch knobs btl_tcp -o wide
    """
    from taco_launch.launch import knobs as table

    found = tuple(dict.fromkeys(knob for name in names for knob in _matching(name))) if names else table.TABLE
    output = settings_of(ctx).output
    if output in ("json", "yaml"):
        render.data({"knobs": [_data(knob) for knob in found]}, output)
    elif len(names) == 1 and table.find(names[0]):
        _print_entry(found[0])
    else:
        _print_table(found, wide=output == "wide")


def _matching(name: str) -> "tuple[Knob, ...]":
    from taco_launch.launch import knobs as table

    found = table.matching(name)
    if not found:
        near = table.near(name)
        hint = f"did you mean {near}?" if near else "taco-launch knobs shows all names"
        raise UsageError(f"no knob begins with {name!r}", hint=hint)
    return found


def _data(knob: "Knob") -> dict[str, Any]:
    """Give a knob as JSON values: its name and library first."""
    from taco_launch.model.codec import to_json

    values = to_json(knob)
    derived = {"library": knob.library, "reads": knob.reads, "values": knob.allowed}
    return {"name": values.pop("name"), **derived, **{key: values[key] for key in values if key not in derived}}


def _print_entry(knob: "Knob") -> None:
    lines = (
        ("Name", knob.name),
        ("Aliases", ", ".join(knob.aliases)),
        ("Library", knob.library),
        (
            "Given with",
            f"--knob {knob.name}=VALUE or " + (f"--mca {knob.name} VALUE" if knob.mca else f"-x {knob.name}=VALUE"),
        ),
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


def _print_table(found: "tuple[Knob, ...]", *, wide: bool) -> None:
    header = ["NAME", "LIBRARY", "DEFAULT", "VALUES", "SINCE", "WHY"]
    more = ["UNTIL", "APPLIES", "ALIASES", "SOURCE"] if wide else []
    rows = []
    for knob in found:
        why = knob.why if wide else knob.why.partition(". ")[0].rstrip(".")
        row = [knob.name, knob.library, knob.default, knob.allowed, knob.since, why]
        rows.append(row + ([knob.until, knob.applies, ",".join(knob.aliases), knob.source] if wide else []))
    render.table(header + more, rows)
