"""init: a first inventory from the names of hosts."""

import os
import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import click

from taco_launch.cli.hosts.examples import complete_example, copy_example
from taco_launch.cli.hosts.trust import confirm_host_keys, show_keys, show_refused
from taco_launch.cli.options.common import access_of, add_option, again, settings_of, verb
from taco_launch.cli.output import host_errors
from taco_launch.core.command import shell
from taco_launch.core.errors import FAILED, HostError, TacoLaunchError, UsageError
from taco_launch.core.model.host.hosts import Inventory
from taco_launch.hosts import trust as flow
from taco_launch.hosts.fanout import Answer, connect
from taco_launch.hosts.gather_facts import gather
from taco_launch.hosts.inventory import load, scaffold
from taco_launch.hosts.inventory.ranges import expand, fold
from taco_launch.hosts.inventory.scaffold import HostSketch
from taco_launch.hosts.remote.credentials import Credentials

_SUBJECTS = ("network", "gpu", "rdma")
# As hosts/ssh/ssh_socket.py words it.
_NO_ADDRESS = "no address for"
_WITH_SLOTS = re.compile(r"[\w.-]+:\d+")  # as -H and hostfiles have it


@verb(access=True, inventory=False)
@click.argument("hosts", nargs=-1, metavar="HOST...|[FOLDER]")
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
@add_option("--user", metavar="NAME", help="User name on the hosts. Default: the one in the ssh configuration.")
@add_option("--identity-file", metavar="FILE", help="Private key for the hosts. Default: as ssh would choose it.")
@add_option(
    "--image", metavar="IMAGE", help="Training image of the containers. Default: a placeholder that you replace."
)
@add_option(
    "--facts/--no-facts",
    "look",
    default=True,
    help="Contact the hosts to find their GPUs, network interface and RDMA devices. Default: yes.",
)
@add_option("--yes", is_flag=True, help="Do not ask: accept every new host key.")
@add_option("--replace", is_flag=True, help="Accept changed host keys as well, such as those of reinstalled hosts.")
@add_option(
    "--example",
    metavar="NAME",
    shell_complete=complete_example,
    help="Copy a complete example to FOLDER instead, by default ./NAME; `--example list` shows the names.",
)
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
    example: str | None,
    **more: Any,
) -> None:
    """Write a first inventory from the names of your hosts.

    HOST is a name that ssh reaches, or a range such as 'gpu[1-8]'. Unknown host keys are shown with their fingerprints and
    kept if you agree, as by `trust`; a changed key is taken with --replace only. Then the hosts are contacted for the number of GPUs, the interface between them, and
    RDMA. If one does not answer, nothing is written: fix it, or use --no-facts.

    With --example, a complete example is copied instead: a job, its program and an inventory to edit. FOLDER must be empty,
    or must not exist.

    \b
    Examples:
      taco-launch init 'gpu[1-4]' --user root --identity-file ~/.ssh/cluster
      taco-launch init gpu1 gpu2 --image registry.example.com/taco-train:1 --to hosts.yaml
      taco-launch init gpu1 gpu2 --no-facts
      taco-launch init --example 01-hello my-job
    """
    settings = settings_of(ctx)
    if example is not None:
        copy_example(ctx, example, hosts)
        return
    if not hosts:
        raise UsageError(
            "HOST... is missing", hint="name the hosts: taco-launch init gpu1 gpu2; examples: --example list"
        )
    typed = shell(("taco-launch", "-i", str(target)))
    if target.exists():
        raise UsageError(
            f"{target} exists",
            hint=f"continue with this file: {typed} trust, then {typed} setup --dry-run; or name another file: --to FILE",
        )
    key, yes = _private_key(more.pop("identity_file")), more.pop("yes")
    try:
        names = tuple(dict.fromkeys(name for text in hosts for name in expand(text)))
    except ValueError as error:
        raise UsageError(f"HOST: {error}") from None

    with_slots = next((name for name in names if _WITH_SLOTS.fullmatch(name)), "")
    if with_slots:
        host = with_slots.partition(":")[0]
        raise UsageError(
            f"HOST: {with_slots!r} is a host with a number of slots, which init finds by itself",
            hint=f"taco-launch init {host}; for another number, write slots: N below {host} in the file",
        )

    def written(found: Mapping[str, HostSketch]) -> str:
        return scaffold.text(found, cluster=cluster, file=str(target), user=user, key=key, image=image)

    text = written({name: scaffold.HostSketch() for name in names})
    inventory = load.parse(text.encode(), "the new inventory")  # a wrong name, before any host is contacted
    if look:
        credentials = access_of(more)
        silent = _trusted(ctx, inventory, credentials, yes=yes)
        if silent is None:
            settings.talk(f"{target} is not written")
            ctx.exit(FAILED)
        text = written(_sketch_hosts(replace(inventory, source=str(target)), credentials, silent))
        load.parse(text.encode(), "the new inventory")
    try:
        descriptor = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o644)
        with open(descriptor, "w", encoding="utf-8") as file:
            file.write(text)
    except OSError as error:
        raise TacoLaunchError(f"{target}: {error.strerror}") from None
    click.echo(f"{target}: cluster {cluster}, hosts: {len(names)}")
    steps = [] if image else [f"name the training image in {target} (container: {{image: NAME:TAG}})"]
    steps += [] if look else [f"{typed} trust"]
    settings.talk(f"next: {'; then '.join([*steps, f'{typed} setup --dry-run', f'{typed} setup'])}")


def _private_key(named: str | None) -> str | None:
    """Return the path of a private key as an inventory names it: from / or ~/.

    Raises:
        UsageError: there is no such file.
    """
    if named is None:
        return None
    if not Path(named).expanduser().is_file():
        raise UsageError(f"--identity-file: there is no file {named}", hint="make a key: ssh-keygen -t ed25519")
    return named if named.startswith("~/") else str(Path.cwd() / named)


def _trusted(
    ctx: click.Context, inventory: Inventory, access: Credentials, *, yes: bool
) -> tuple[Answer[Any], ...] | None:
    """Show new host keys and keep them; return which hosts cannot be asked, None where a key is refused.

    Raises:
        UsageError: stdin is not a terminal, so the question cannot be asked.
    """
    found = flow.read_host_keys(flow.prepare(inventory, inventory.hosts, access))
    settings, replaces = settings_of(ctx), ctx.params["replace"]
    keys, refused = found.to_write(replace=replaces), found.refused(replace=replaces)
    show_keys(settings, (*keys, *refused))
    if refused:
        show_refused(refused, lambda _key: again(ctx, "--replace"))
        return None
    if keys and not confirm_host_keys(settings, keys, found.file, yes=yes):
        return None
    return found.failed


def _sketch_hosts(inventory: Inventory, access: Credentials, silent: tuple[Answer[Any], ...]) -> dict[str, HostSketch]:
    """Return what the hosts of an inventory have; all that do not answer, as the `silent` ones before, are shown.

    Raises:
        HostError: one does not answer.
    """
    names = {answer.host for answer in silent}
    with connect(inventory, tuple(host for host in inventory.hosts if host.name not in names), access) as fanout:
        answers = gather(fanout, _SUBJECTS)
    failed = [*silent, *(answer for answer in answers if answer.error is not None)]
    if failed:
        failed = [_hinted(answer) for answer in failed]
        host_errors.show(failed, {host.name: host.address for host in inventory.hosts})
        gone = fold(tuple(answer.host for answer in failed))
        raise HostError(
            f"{inventory.source} was not written, because the facts of {gone} could not be read",
            hint="fix that, or "
            + (f"run init without {gone}, or " if len(failed) < len(inventory.hosts) else "")
            + "write the inventory without contacting hosts: --no-facts",
        )
    return {answer.host: HostSketch.of(answer.value) for answer in answers if answer.value is not None}


def _hinted(answer: Answer[Any]) -> Answer[Any]:
    """Return what a host answered, with a hint that fits `init`: before there is an inventory."""
    error = answer.error
    if error is None:
        return answer
    hint = (error.hint or "").replace("identity_file in the inventory", "--identity-file FILE")
    if _NO_ADDRESS in error.message:
        hint = f"type its IP address instead of the name, or add a line to /etc/hosts of this machine: ADDRESS {answer.host}"
    return replace(answer, error=HostError(error.message, hint or None))
