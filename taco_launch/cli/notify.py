"""notify: try out the addresses that get messages."""

import time
from typing import Any

import click

from taco_launch.agent.messages.deliver import post
from taco_launch.cli.options.common import access_of, add_option, settings_of, verb
from taco_launch.cli.options.suggestions import SuggestingGroup
from taco_launch.cli.output import render
from taco_launch.core.errors import FAILED, OK, TacoLaunchError, UsageError
from taco_launch.core.messages import address

_HERE, _HEAD, _BOTH = "here", "head", "both"


@click.group(cls=SuggestingGroup)
def notify() -> None:
    """Try out the addresses that get messages."""


@verb("test", group=notify, access=True, output=True)
@click.argument("addresses", nargs=-1, metavar="[ADDRESS]...")
@add_option(
    "--from",
    "sender",
    type=click.Choice([_HERE, _HEAD, _BOTH]),
    default=_BOTH,
    show_default=True,
    help="Which machine sends: this one, as nightly runs do, or the head, as jobs do.",
)
def test(ctx: click.Context, addresses: tuple[str, ...], *, sender: str, **access: Any) -> int:
    """Send a test message to each ADDRESS.

    The default is the addresses of the inventory's `notify`. Each is tried once and has 10 s. The addresses have the forms of the inventory's `notify`.

    \b
    Examples:
      taco-launch notify test mailto:team@example.com
      taco-launch -i hosts.yaml notify test
      taco-launch -i hosts.yaml notify test --from head 'https://chat.example.com/hook#SECRET'

    \b
    Exit codes: 0 each message was delivered, 1 one was not.
    """
    settings = settings_of(ctx)
    cluster = settings.cluster(access_of(access))
    inventory = cluster.inventory
    to = addresses or tuple(notice.to for notice in inventory.notify)
    if not to:
        raise UsageError(
            f"{inventory.source or 'this machine'} has no `notify`",
            hint="taco-launch notify test ADDRESS, or add to the inventory, for example: notify: [mailto:team@example.com]",
        )
    for each in to:
        try:
            address.check(each)
        except ValueError as error:
            raise UsageError(f"{each!r} {error}", hint=address.FORMS) from None
    message = {
        "name": inventory.cluster,
        "event": "test",
        "reason": f"This is a test of taco-launch, {time.strftime('%Y-%m-%d %H:%M:%S')}.",
        "hosts": [host.name for host in inventory.hosts[:8]],
        "table": [["cell", "verdict"], ["an example", "ok"]],
    }
    rows = []
    head = next(host for host in inventory.hosts if host.name == inventory.head)
    both = (_HERE, _HEAD) if head.connection == "ssh" else (_HERE,)
    for machine in both if sender == _BOTH else (sender,):
        for number, each in enumerate(to, 1):
            try:
                problem = post(each, message) if machine == _HERE else cluster.backend.send_message(each, message)
            except TacoLaunchError as error:  # the head does not answer
                problem = error.message
            rows.append((number, machine, address.shown(each), problem))
    if settings.output in ("json", "yaml"):
        keys = ("number", "from", "to", "problem")
        render.data([dict(zip(keys, row, strict=True)) for row in rows], settings.output)
    else:
        shown = [
            (
                str(number),
                machine,
                render.printable(to),
                render.printable(f"failed: {problem}") if problem else "delivered",
            )
            for number, machine, to, problem in rows
        ]
        render.table(("ADDRESS", "FROM", "TO", "RESULT"), shown)
    return FAILED if any(problem for *_who, problem in rows) else OK
