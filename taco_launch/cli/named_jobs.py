"""What the verbs share that do something to jobs by their names: each on its own, and another's only after a question."""

import getpass
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING

import click

from taco_launch.cli import render
from taco_launch.cli.completion import complete_job
from taco_launch.cli.options import Settings
from taco_launch.errors import TacoLaunchError, UsageError

if TYPE_CHECKING:
    from taco_launch.remote.head import Head

names_argument = click.argument("names", nargs=-1, required=True, metavar="NAME...", shell_complete=complete_job)
yes_option = click.option("--yes", is_flag=True, help="Do not ask, also where the job is somebody else's.")


def each(names: tuple[str, ...], act: Callable[[str], None]) -> int:
    """Do something with every job; one that fails does not keep the others from it. Gives the first failure's code."""
    code = 0
    for name in dict.fromkeys(names):
        try:
            act(name)
        except TacoLaunchError as error:
            render.error(error.message, error.hint)
            code = code or error.exit_code
    return code


def agreed(settings: Settings, head: "Head", name: str, verb: str, *, yes: bool) -> bool:
    """Say whether a job may be stopped, deleted or suspended, as `verb` says: one's own always, another's where asked.

    Raises:
        UsageError: it is another's, and there is nobody to ask.
        NoJobError: there is none of that name.
    """
    from taco_launch.flows import jobs

    if yes:
        return True
    owner = jobs.get(head, name).spec.owner
    if owner in ("", getpass.getuser()):
        return True
    whose = f"job {name} is {owner}'s"
    if sys.stdin is None or not sys.stdin.isatty():
        raise UsageError(f"{whose}, and nobody to ask", hint=f"ask {owner}, or add --yes to {verb} it all the same")
    if click.confirm(f"{whose}: {verb} it?", err=True):
        return True
    settings.talk(f"{name}: left as it is")
    return False
