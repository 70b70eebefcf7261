"""init: a first inventory from the names of hosts."""

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from taco_launch.cli.options.common import access_of, access_options, add_option, settings_of, talk_options
from taco_launch.errors import HostError, TacoLaunchError, UsageError

if TYPE_CHECKING:
    from taco_launch.inventory.scaffold import HostSketch
    from taco_launch.model.host.hosts import Inventory
    from taco_launch.remote.credentials import Credentials

_SUBJECTS = ("network", "gpu", "rdma")


@click.command()
@talk_options
@access_options
@click.argument("hosts", nargs=-1, required=True, metavar="HOST...")
@add_option(
    "--to",
    "target",
    type=click.Path(path_type=Path, dir_okay=False),
    default=Path("hosts.yaml"),
    show_default=True,
    metavar="FILE",
    help="Write the inventory to FILE; an existing file is never overwritten.",
)
@add_option("--cluster", metavar="NAME", default="demo", show_default=True, help="Name of the cluster.")
@add_option("--user", metavar="NAME", help="Login on the hosts. Default: that of the ssh configuration.")
@add_option("--image", metavar="IMAGE", help="Training image of the containers. Default: left to be filled in.")
@add_option(
    "--facts/--no-facts", "look", default=True, help="Contact the hosts for GPUs, interface and RDMA. Default: yes."
)
@click.pass_context
def init(
    ctx: click.Context,
    /,
    *,
    hosts: tuple[str, ...],
    target: Path,
    cluster: str,
    user: str | None,
    image: str | None,
    look: bool,
    **access: Any,
) -> None:
    """Write a first inventory from the names of your hosts.

    HOST is a name that ssh reaches, or a range such as 'gpu[1-8]'. The hosts are contacted for the number of GPUs, the
    interface between them, and RDMA. If one does not answer, nothing is written: fix it, or use --no-facts.

    \b
    Examples:
      taco-launch init 'gpu[1-4]' --user root
      taco-launch init gpu1 gpu2 --image registry.example.com/taco-train:1 --to hosts.yaml
      taco-launch init gpu1 gpu2 --no-facts
    """
    from taco_launch.command import shell
    from taco_launch.inventory import load, scaffold
    from taco_launch.inventory.ranges import expand

    settings = settings_of(ctx)
    if target.exists():
        raise UsageError(f"{target} exists", hint="name another file: --to FILE")
    try:
        names = tuple(dict.fromkeys(name for text in hosts for name in expand(text)))
    except ValueError as error:
        raise UsageError(f"HOST: {error}") from None
    found = {name: scaffold.HostSketch() for name in names}
    text = scaffold.text(found, cluster=cluster, file=str(target), user=user, image=image)
    inventory = load.parse(text.encode(), "the new inventory")  # a wrong name, before any host is contacted
    if look:
        found = _sketch_hosts(inventory, access_of(access))
        text = scaffold.text(found, cluster=cluster, file=str(target), user=user, image=image)
        load.parse(text.encode(), "the new inventory")
    try:
        descriptor = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o644)
        with open(descriptor, "w", encoding="utf-8") as file:
            file.write(text)
    except OSError as error:
        raise TacoLaunchError(f"{target}: {error.strerror}") from None
    click.echo(f"{target}: cluster {cluster}, hosts: {len(found)}")
    typed = shell(("taco-launch", "-i", str(target)))
    settings.talk(f"next: check it: {typed} inventory; then {typed} setup --dry-run")


def _sketch_hosts(inventory: "Inventory", access: "Credentials") -> "dict[str, HostSketch]":
    """Return what the hosts of an inventory have.

    Raises:
        HostError: one does not answer.
    """
    from taco_launch.flows.facts import gather
    from taco_launch.inventory.scaffold import HostSketch
    from taco_launch.remote.fanout import connect

    with connect(inventory, inventory.hosts, access) as fanout:
        answers = gather(fanout, _SUBJECTS)
    found: dict[str, HostSketch] = {}
    for answer in answers:
        if answer.value is None or answer.error is not None:
            error = answer.error
            message = error.message if error else f"{answer.host}: no answer"
            skip = "or write the inventory without contacting hosts: --no-facts"
            raise HostError(message, hint=f"{error.hint}; {skip}" if error and error.hint else skip)
        found[answer.host] = HostSketch.of(answer.value)
    return found
