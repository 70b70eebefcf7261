"""lab: hosts made of containers on this machine, and faults for them."""

import os
import re
import shutil
import sys
import time
from collections.abc import Sequence
from typing import Any

import click
from click.shell_completion import CompletionItem

from taco_launch.cli.options.common import Settings, add_option, settings_of, verb
from taco_launch.cli.options.suggestions import SuggestingGroup
from taco_launch.cli.output import lab_tables, render
from taco_launch.core.errors import TacoLaunchError, UsageError
from taco_launch.hosts.inventory.schema.names import did_you_mean
from taco_launch.lab import access, faults, registry
from taco_launch.lab import down as lab_down
from taco_launch.lab import status as lab_status
from taco_launch.lab import up as lab_up
from taco_launch.lab.docker import engine
from taco_launch.lab.docker import hosts as lab_hosts
from taco_launch.lab.docker.labels import REGISTRY, option_of
from taco_launch.lab.docker.reporter import Reporter
from taco_launch.lab.hardware import MACHINES


def _labs(_ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    try:
        names = {found.host.lab for found in lab_hosts.find()}
    except TacoLaunchError:
        return []
    return [CompletionItem(name) for name in sorted(names) if name.startswith(incomplete)]


def _hosts(ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    try:
        found = lab_hosts.find(ctx.params.get("lab") or "lab")
    except TacoLaunchError:
        return []
    return [CompletionItem(each.host.name) for each in found if each.host.name.startswith(incomplete)]


# Without a terminal, what is being done is printed at most this often.
_SHOWN_SECONDS = 10


def _of_inventory() -> str | None:
    """Return the name of the lab that `-i lab` or `-i lab:NAME` names, None without."""
    kind, _, name = (settings_of(click.get_current_context()).inventory or "").partition(":")
    return (name or kind) if kind == "lab" else None


_name = add_option(
    "--name",
    "lab",
    metavar="NAME",
    default=lambda: _of_inventory() or "lab",
    shell_complete=_labs,
    help="Name of the lab. Default: the lab that -i lab:NAME names, otherwise lab.",
)


@click.group(cls=SuggestingGroup)
def lab() -> None:
    """Run a rehearsal cluster of containers on this machine.

    Lab hosts work like any hosts: use `-i lab` (or `-i lab:NAME`) in place of an inventory file.
    """


@verb(group=lab)
@_name
@add_option("--hosts", "size", type=int, metavar="N", help="Number of hosts, gpu1 to gpuN. Default: 2.")
@add_option("--slots", type=int, metavar="N", help="Slots of each host. Default: its number of GPUs, else 2.")
@add_option(
    "--gpus",
    type=click.Choice((*MACHINES, "none")),
    help="Simulated GPUs, NICs and drivers of each host. Default: none.",
)
@add_option(
    "--release",
    metavar="CODENAME",
    help="Release that the hosts run, such as trixie; it must be a release of this machine's distribution (Debian or Ubuntu). "
    "Default: this machine's release.",
)
@add_option(
    "--docker",
    is_flag=True,
    default=None,
    help="The hosts come with Docker Engine, as images of cloud providers do. Default: set-up installs it.",
)
@add_option("--image/--no-image", "train", default=True, help="Put the training image into the registry. Default: yes.")
@add_option("--dry-run", is_flag=True, help="Show the plan and change nothing.")
@add_option("--yes", is_flag=True, help="Install packages and start a Docker Engine without asking.")
def up(
    ctx: click.Context, /, *, lab: str, size: int | None, train: bool, dry_run: bool, yes: bool, **more: Any
) -> None:
    """Bring up hosts gpu1, gpu2, ... and a registry. A lab that is up is unchanged.

    Needs root, or access to a Docker Engine. If packages have to be installed or an engine started, the plan is shown and
    you are asked. The first run builds images from the package archives of this machine: one minute for the hosts, two for
    the training image (from a checkout only), which stays in the registry for later labs. Hosts of another release are
    built from the same archives, and this machine must have the keys that sign them.

    If a new lab is interrupted or killed before it is up, it is removed again.

    \b
    Examples:
      taco-launch lab up --hosts 2 --gpus v100x8 --dry-run
      taco-launch -i lab inventory
      taco-launch lab up --name big --hosts 8 --slots 1
      taco-launch lab up --name new --release trixie
      taco-launch lab up --name ready --docker
    """
    settings = settings_of(ctx)
    request = lab_up.LabRequest(lab, size, **more)
    planned = lab_up.plan(request, os.environ, train=train)
    if dry_run:
        for line in (*planned.machine, *planned.lab) or ("nothing to do: the lab is up",):
            click.echo(line)
        return
    if planned.machine and not yes:
        _agree(planned.machine)
    talk = _talk(settings)
    try:
        made = lab_up.up(request, os.environ, talk, train=train)
    except KeyboardInterrupt:
        settings.talk(f"stopped; to start again: taco-launch lab up{option_of(lab)}")
        raise
    talk.show("")
    for change in made.changes if settings.verbose else ():
        settings.talk(change)
    count = len(made.hosts) - 1
    hosts = f"{render.counted(count, 'host')} and a registry"
    for name, state in made.down:
        settings.talk(
            f"{name} is {state}, and lab up does not change that; to change it: taco-launch lab fault{option_of(lab)} {name} {lab_hosts.WAKE[state]}"
        )
    was_up = f"the lab {made.name!r} was up already: nothing changed"
    settings.talk(f"the lab {made.name!r} is up: {hosts}" if made.changes else was_up)
    word = "lab" if lab == "lab" else f"lab:{lab}"
    push = "" if made.has_image else f"taco-launch lab push{option_of(lab)} IMAGE (your own image for jobs), then "
    settings.talk(f"next: {push}taco-launch -i {word} setup")


def _agree(changes: Sequence[str]) -> None:
    """Show what would be installed and started on this machine, and ask.

    Raises:
        UsageError: there is no terminal to ask on.
        Abort: the answer is no.
    """
    click.echo("The lab needs these changes on this machine:", err=True)
    for change in changes:
        click.echo(f"  {change}", err=True)
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        raise UsageError("stdin is not a terminal, so you cannot confirm", hint="check the list above, then pass --yes")
    click.confirm("Continue?", abort=True, err=True)


@verb(group=lab)
@_name
@add_option("--all", "all_labs", is_flag=True, help="Remove every lab on this machine.")
@add_option("--images", is_flag=True, help="Remove the images as well: the next lab takes some minutes longer.")
def down(ctx: click.Context, *, lab: str, all_labs: bool, images: bool) -> None:
    """Remove a lab: its hosts, volumes, network and keys. Images stay for the next one, also those in the registry.

    \b
    Examples:
      taco-launch lab down
      taco-launch lab down --all --images
    """
    settings = settings_of(ctx)
    removed = lab_down.down(None if all_labs else lab, os.environ, _talk(settings), images=images)
    if not removed.labs:
        settings.talk("there was no lab" if all_labs else f"there was no lab {lab!r}")
    for name, _ in removed.labs:
        settings.talk(f"the lab {name!r} is gone: containers, volumes, network, keys")
    if removed.kept:
        sizes = ", ".join(f"{tag} {size}" for tag, size in removed.kept)
        which = " --all" if all_labs else option_of(lab)
        settings.talk(f"kept for the next lab: {sizes} (taco-launch lab down{which} --images removes them)")


@verb(group=lab, output=True)
@add_option(
    "--name",
    "lab",
    metavar="NAME",
    default=_of_inventory,
    shell_complete=_labs,
    help="Name of the lab. Default: the lab that -i names, or all labs without -i.",
)
def status(ctx: click.Context, *, lab: str | None) -> None:
    """Show hosts, their state, faults and login commands.

    \b
    Examples:
      taco-launch lab status
      taco-launch lab status --name big --json
    """
    output = settings_of(ctx).output
    found = lab_status.status(lab, os.environ)
    if output in ("json", "yaml"):
        render.data({"labs": [lab_tables.document(each) for each in found]}, output)
        return
    if not found:
        click.echo("there is no lab; taco-launch lab up makes one", err=True)
    for index, each in enumerate(found):
        lab_tables.show(each, first=index == 0)


@verb(group=lab)
@_name
@click.argument("image")
def push(ctx: click.Context, *, lab: str, image: str) -> None:
    """Push a local image to the lab's registry.

    Prints the name by which hosts pull it. In a lab without a training image it becomes that one. Images stay in the registry for later labs, until `taco-launch lab down --images`.

    \b
    Examples:
      taco-launch lab push mine:1
      taco-launch lab push --name big quay.example/team/train:2
    """
    talk = _talk(settings_of(ctx))
    name = registry.name_of(image)
    tagged = image if image.endswith(f":{name.rpartition(':')[2]}") else f"{image}:latest"
    found = lab_status.one(lab, REGISTRY, os.environ)
    lab_hosts.require_on(found, "it accepts no image")
    registry.push(found.host, found.container, tagged, name, talk.show)
    talk.show("")
    click.echo(f"{registry.ADDRESS}/{name}")
    files = access.access(os.environ, os.geteuid(), lab)
    if files.known_hosts.is_file() and not files.image.is_file():  # the lab is of this user
        files.keep(files.image, f"{registry.ADDRESS}/{name}\n")
        word = "lab" if lab == "lab" else f"lab:{lab}"
        talk.say(f"the lab now uses this image for training; next: taco-launch -i {word} setup")


@verb("exec", context_settings={"allow_interspersed_args": False}, group=lab)
@_name
@click.argument("host", shell_complete=_hosts)
@click.argument("command", nargs=-1, required=True, type=click.UNPROCESSED, metavar="[--] COMMAND...")
def execute(ctx: click.Context, *, lab: str, host: str, command: tuple[str, ...]) -> int:
    """Run COMMAND in a lab host as root.

    It works through the container engine, so also when the network or sshd of the host is down.

    No shell reads it. The exit code is COMMAND's own.

    \b
    Examples:
      taco-launch lab exec gpu1 -- systemctl status ssh
      taco-launch lab exec gpu1 -- bash
    """
    command = command[1:] if command[0] == "--" else command
    if not command:
        raise UsageError("the command is missing", hint=f"taco-launch lab exec {host} -- bash")
    found = lab_status.one(lab, host, os.environ)
    lab_hosts.require_on(found, "nothing can run in it")
    sys.stdout.flush()
    terminal = sys.stdin.isatty() and sys.stdout.isatty()
    code = engine.interactive((found.container, *command), terminal=terminal)
    ctx.exit(code)


def _fault_list() -> str:
    width = max(len(f"{fault.name} {fault.argument}") for fault in faults.FAULTS)
    lines = [f"  {f'{fault.name} {fault.argument}':<{width}}  {fault.about}" for fault in faults.FAULTS]
    return "\n".join(lines)


class _FaultCommand(click.Command):
    """Its help has the table of faults, which only it reads, and -2h is an argument, not options."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Have a negative offset stand behind `--`."""
        negative = [word for word in args if re.fullmatch(r"-\d\w*", word)]
        if negative and "--" not in args:
            args = [*(word for word in args if word not in negative), "--", *negative]
        return super().parse_args(ctx, args)

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Add the table."""
        formatter.write(f"\nFaults, and what undoes them:\n{_fault_list()}\n")
        super().format_epilog(ctx, formatter)


def _faults(_ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    return [
        CompletionItem(fault.name, help=fault.about) for fault in faults.FAULTS if fault.name.startswith(incomplete)
    ]


@verb(cls=_FaultCommand, group=lab)
@_name
@click.argument("host", shell_complete=_hosts)
@click.argument("fault", metavar="FAULT", shell_complete=_faults)
@click.argument("argument", required=False)
def fault(ctx: click.Context, *, lab: str, host: str, fault: str, argument: str | None) -> None:
    """Inject a fault into a lab host, or undo one. A reboot undoes faults of the network.

    \b
    Examples:
      taco-launch lab fault gpu2 power-off
      taco-launch lab fault gpu1 cut 5s
      taco-launch lab fault gpu1 slow-link 100mbit
      taco-launch lab fault gpu2 loss 5
      taco-launch lab fault gpu3 slow-cpu 20
      taco-launch lab fault registry stop-sshd
    """
    chosen = faults.BY_NAME.get(fault)
    if chosen is None:
        known = ", ".join(faults.BY_NAME)
        raise UsageError(f"unknown fault {fault!r}; faults: {known}", hint=did_you_mean(fault, faults.BY_NAME) or None)
    faults.arguments(chosen, argument)
    settings_of(ctx).talk(faults.apply(lab_status.one(lab, host, os.environ), chosen, argument))


def _talk(settings: Settings) -> Reporter:
    """Print lines on stderr; show what is being done: on a terminal in a line that the next one replaces, else now and then."""
    if settings.quiet or not sys.stderr.isatty():
        shown = time.monotonic()

        def now_and_then(text: str) -> None:
            nonlocal shown
            if time.monotonic() - shown > _SHOWN_SECONDS:
                shown = time.monotonic()
                settings.talk(text)

        return Reporter(settings.talk, now_and_then)
    start = "\r\x1b[K"  # ECMA-48, 8.3.41: erase in line

    def show(text: str) -> None:
        click.echo(start + render.printable(text)[: shutil.get_terminal_size().columns - 1], err=True, nl=False)

    def say(message: str) -> None:
        click.echo(start, err=True, nl=False)
        settings.talk(message)

    return Reporter(say, show)
