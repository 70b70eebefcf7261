"""What the shell offers for jobs, for hosts of the inventory, and for words in a list with commas."""

import os
from collections.abc import Callable, Iterable

import click
from click.shell_completion import CompletionItem

from taco_launch.agent.store.folders import Jobs, is_name, state_folder
from taco_launch.cli.options.common import settings_of
from taco_launch.core.errors import TacoLaunchError, UsageError

Completer = Callable[[click.Context, click.Parameter, str], list[CompletionItem]]


def complete_job(ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Offer the jobs of this machine; nobody else is asked while somebody types."""
    if settings_of(ctx).is_remote:
        return []
    # What a shell offers stands in the line that is typed as it is: a name is words to it, and whoever may write there
    # could have it run others.
    try:
        found = Jobs(state_folder(os.environ, os.geteuid())).all()
    except UsageError:  # a command says why
        return []
    return [
        CompletionItem(folder.name) for folder in found if is_name(folder.name) and folder.name.startswith(incomplete)
    ]


def complete_hosts(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Offer the hosts and groups that were not named yet, each as a word."""
    given = ctx.params.get(str(param.name)) or ()
    hosts, groups = _known(ctx)
    return _items("", (word for word in (*hosts, *groups) if word not in given), incomplete)


def complete_host_list(ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Offer the hosts and groups for the end of a list such as h1:8,h2."""
    before, last = _split(incomplete)
    given = {word.partition(":")[0] for word in before.split(",")}
    hosts, groups = _known(ctx)
    return _items(before, (word for word in (*hosts, *groups) if word not in given), last)


def complete_list(words: Iterable[str]) -> Completer:
    """Make what offers `words` for the end of a list with commas."""
    known = tuple(words)

    def complete(_ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        before, last = _split(incomplete)
        return _items(before, (word for word in known if word not in before.split(",")), last)

    return complete


def _known(ctx: click.Context) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the names of the inventory's hosts and groups; none where it cannot be read, which the verb itself tells."""
    try:
        inventory = settings_of(ctx).load()
    except TacoLaunchError:
        return (), ()
    return tuple(host.name for host in inventory.hosts), tuple(name for name, _hosts in inventory.groups)


def _split(incomplete: str) -> tuple[str, str]:
    before, comma, last = incomplete.rpartition(",")
    return before + comma, last


def _items(before: str, words: Iterable[str], last: str) -> list[CompletionItem]:
    return [CompletionItem(before + word) for word in words if word.startswith(last)]
