"""doctor and version: what this machine has, for a first look and for bug reports."""

import os
from collections.abc import Iterator
from dataclasses import replace

import click

from taco_launch.cli import verbs
from taco_launch.cli.options import user_config
from taco_launch.cli.options.common import Settings, TacoOption, config_path, settings_of, verb
from taco_launch.cli.output import render
from taco_launch.core.errors import FAILED, TacoLaunchError
from taco_launch.hosts.doctor import Check, CheckState, Named, checks, shown_value, versions
from taco_launch.hosts.inventory import VARIABLE

# Variables that are not options: docs/reference/environment.md.
OTHERS = frozenset(
    f"TACO_LAUNCH_{name}"
    for name in ("STATE", "LEASES", "CLUSTER", "SUDO_PASSWORD", "REGISTRY_PASSWORD", "WHEEL_CACHE", "OPENMPI5", "MPICH")
)
_COLOURS = {"ok": "green", "note": "yellow", "error": "red"}


@verb(inventory=True, output=True)
def doctor(ctx: click.Context) -> int:
    """Check this machine: Python, ssh, Docker, mpirun, inventory.

    Shows the configuration file and the variables that set options. Contacts no host; `taco-launch facts` and
    `taco-launch setup --check` do that. A note is a part that only some commands need. The exit code is 1 if a check fails.

    \b
    Examples:
      taco-launch doctor
      taco-launch -i hosts.yaml doctor --json
    """
    config, settings = _configured(settings_of(ctx))
    named = Named(settings.source, _origin(settings)) if settings.source else None
    found = (*checks(os.environ, settings.load, named), config, *_variables(ctx))
    if settings.output in ("json", "yaml"):
        rows = [{"name": one.name, "state": one.state.value, "found": one.found, "todo": one.todo} for one in found]
        render.data({"checks": rows}, settings.output)
    else:
        for one in found:
            state = click.style(f"{one.state.value:5}", fg=_COLOURS[one.state.value])
            first, *more = map(render.printable, f"{one.name}: {one.found}".split("\n"))
            click.echo("\n".join((f"{state}  {first}", *(f"     {line}" for line in more))))
            if one.todo:
                click.echo(f"       {render.printable(one.todo)}")
    return FAILED if any(one.state is CheckState.ERROR for one in found) else 0


def _configured(settings: Settings) -> tuple[Check, Settings]:
    """Return the check of the user's configuration file, and the settings with what it sets."""
    path = config_path(os.environ)
    name = "configuration file"
    try:
        config = user_config.read(path, os.getuid())
    except TacoLaunchError as error:
        return Check(name, CheckState.ERROR, error.message, error.hint or ""), settings
    found = [key for key in ("inventory", "output", "containers") if getattr(config, key)]
    shown = ", ".join(found) or ("sets nothing" if path.exists() else "not used: no such file")
    return Check(name, CheckState.OK, f"{path}: {shown}"), replace(settings, default_inventory=config.inventory)


def _origin(settings: Settings) -> str:
    """Return where the name of the inventory is from."""
    if settings.inventory is not None:
        return "-i"
    return VARIABLE if os.environ.get(VARIABLE) else str(config_path(os.environ))


def _variables(ctx: click.Context) -> Iterator[Check]:
    """Yield the variables that are set, each with the option that it sets."""
    names = sorted(name for name in os.environ if name.startswith("TACO_LAUNCH_") and name != VARIABLE)
    options = dict(_options(ctx.find_root())) if any(name not in OTHERS for name in names) else {}
    for name in names:
        value = shown_value(name, os.environ[name])
        if name in OTHERS:
            yield Check(name, CheckState.OK, value)
        elif name in options:
            yield Check(name, CheckState.OK, f"{value} (option {options[name]})")
        else:
            yield Check(name, CheckState.NOTE, f"{value} (no option of this name)", "taco-launch help environment")


def _options(ctx: click.Context) -> Iterator[tuple[str, str]]:
    """Yield the variable and the name of each option of a command and of those below it."""
    path = ctx.command_path.partition(" ")[2]
    for param in ctx.command.get_params(ctx):
        if isinstance(param, TacoOption) and not param.is_eager and not param.hidden:
            yield param.variable(ctx), f"{max(param.opts, key=len)}{f' of {path}' if path else ''}"
    if isinstance(ctx.command, click.Group):
        for name in ctx.command.list_commands(ctx):
            command = ctx.command.get_command(ctx, name)
            if command is not None:
                below = command.load() if isinstance(command, verbs.Verb) else command
                yield from _options(click.Context(below, info_name=name, parent=ctx))


@verb(output=True)
def version(ctx: click.Context) -> int:
    """Show the versions of taco-launch, its agent and libraries.

    Paste the output into a bug report.

    \b
    Example:
      taco-launch version
    """
    found = versions()
    settings = settings_of(ctx)
    if settings.output in ("json", "yaml"):
        render.data(dict(found), settings.output)
        return 0
    for name, value in found.items():
        click.echo(f"{name + ':':<13}{render.printable(value)}")
    return 0
