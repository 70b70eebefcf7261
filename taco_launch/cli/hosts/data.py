"""data: the data sets of an inventory, which jobs name."""

import click

from taco_launch.cli.options.common import settings_of, verb
from taco_launch.cli.options.suggestions import SuggestingGroup
from taco_launch.cli.output import render

_UNKNOWN = "N/A"


@click.group(cls=SuggestingGroup)
def data() -> None:
    """List the data sets that jobs may name.

    The inventory names them (`data:`), and a job mounts one with `run --data NAME:PATH`.
    """


@verb("list", group=data, inventory=True, output=True)
def list_(ctx: click.Context, /) -> None:
    """List the data sets of the inventory. Contacts no host.

    \b
    Example:
      taco-launch -i hosts.yaml data list
    """
    settings = settings_of(ctx)
    sets = settings.load().data
    if settings.output in ("json", "yaml"):
        keys = ("name", "path", "mode", "description", "owner")
        render.data({"data": [{key: getattr(one, key) for key in keys} for one in sets]}, settings.output)
        return
    rows = [
        (one.name, "ReadOnlyMany" if one.mode == "ro" else "ReadWriteMany", one.description or "-", one.owner or "-")
        for one in sets
    ]
    wide = settings.output == "wide"
    header = ("NAME", "ACCESSMODE", "DESCRIPTION", "OWNER", "AGE", *(("PATH",) if wide else ()))
    lines = [(*row, _UNKNOWN, *((one.path,) if wide else ())) for row, one in zip(rows, sets, strict=True)]
    click.echo(render.columns(header, lines))
