"""doctor and version: what this machine has, for a first look and for bug reports."""

import os

import click

from taco_launch.cli.options.common import inventory_option, output_options, settings_of, talk_options
from taco_launch.cli.output import render
from taco_launch.errors import FAILED

_COLOURS = {"ok": "green", "note": "yellow", "error": "red"}


@click.command()
@inventory_option
@output_options
@talk_options
@click.pass_context
def doctor(ctx: click.Context) -> int:
    """Check this machine: Python, ssh, Docker, mpirun, inventory.

    Contacts no host; `taco-launch facts` and `taco-launch setup --check` do that. A note is a part that only some commands
    need. The exit code is 1 if a check fails.

    \b
    Examples:
      taco-launch doctor
      taco-launch -i hosts.yaml doctor --json
    """
    from taco_launch.flows.doctor import CheckState, checks

    settings = settings_of(ctx)
    found = tuple(checks(os.environ, settings.load, settings.source))
    if settings.output in ("json", "yaml"):
        rows = [{"name": one.name, "state": one.state.value, "found": one.found, "todo": one.todo} for one in found]
        render.data({"checks": rows}, settings.output)
    else:
        for one in found:
            state = click.style(f"{one.state.value:5}", fg=_COLOURS[one.state.value])
            click.echo(f"{state}  {render.printable(f'{one.name}: {one.found}')}")
            if one.todo:
                click.echo(f"       {render.printable(one.todo)}")
    return FAILED if any(one.state is CheckState.ERROR for one in found) else 0


@click.command()
@output_options
@talk_options
@click.pass_context
def version(ctx: click.Context) -> int:
    """Show the versions of taco-launch, its agent and libraries.

    Paste the output into a bug report.

    \b
    Example:
      taco-launch version
    """
    from taco_launch.flows.doctor import versions

    found = versions()
    settings = settings_of(ctx)
    if settings.output in ("json", "yaml"):
        render.data(dict(found), settings.output)
        return 0
    for name, value in found.items():
        click.echo(f"{name + ':':<13}{render.printable(value)}")
    return 0
