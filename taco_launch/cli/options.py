"""Options that stand before or after the verb, and what they amount to."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, TypeVar

import click

if TYPE_CHECKING:
    from taco_launch.model.hosts import Inventory
    from taco_launch.remote.head import Head

F = TypeVar("F", bound=Callable[..., Any])
FORMATS = ("table", "wide", "json", "yaml")


@dataclass(frozen=True)
class Settings:
    """What the options common to all verbs say."""

    inventory: str | None = None
    output: str = "table"
    verbose: bool = False
    quiet: bool = False

    def load(self) -> "Inventory":
        """Read the inventory that was named, or the default."""
        import os

        from taco_launch.inventory.load import load

        return load(self.inventory, os.environ)

    def head(self) -> "Head":
        """Reach the head. It is this machine in this version."""
        from taco_launch.remote.head import Head
        from taco_launch.remote.local import Local

        return Head(Local())

    def talk(self, message: str) -> None:
        """Say something on stderr, unless -q was given."""
        if not self.quiet:
            click.echo(message, err=True)


def _keep(ctx: click.Context, param: click.Parameter, value: Any) -> None:
    if value is None or value is False:
        return
    settings = ctx.ensure_object(Settings)
    name = str(param.name)
    changed = {"output": "json"} if name == "as_json" else {name: value}
    # The innermost context is current; every context of one call shares the object of the outermost.
    ctx.find_root().obj = ctx.obj = replace(ctx.find_root().obj or settings, **changed)


def inventory_option(function: F) -> F:
    """Add -i."""
    return click.option(
        "-i",
        "--inventory",
        metavar="FILE",
        expose_value=False,
        callback=_keep,
        help="Inventory of hosts. Default: $TACO_LAUNCH_INVENTORY, else this machine.",
    )(function)


def output_options(function: F) -> F:
    """Add -o and --json."""
    function = click.option(
        "--json", "as_json", is_flag=True, expose_value=False, callback=_keep, help="The same as -o json."
    )(function)
    return click.option(
        "-o",
        "--output",
        type=click.Choice(FORMATS),
        expose_value=False,
        callback=_keep,
        help="How to print. Default: table.",
    )(function)


def talk_options(function: F) -> F:
    """Add -v and -q."""
    function = click.option(
        "-v", "--verbose", is_flag=True, expose_value=False, callback=_keep, help="Say more on stderr."
    )(function)
    return click.option(
        "-q", "--quiet", is_flag=True, expose_value=False, callback=_keep, help="Say nothing but errors on stderr."
    )(function)


def settings_of(ctx: click.Context) -> Settings:
    """Give the settings of the running command."""
    found = ctx.find_root().obj
    return found if isinstance(found, Settings) else Settings()
