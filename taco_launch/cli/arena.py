"""arena: the commands of Arena's guides, as they are typed there."""

import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import click

from taco_launch.cli.options.common import Settings, access_of, settings_of, verb
from taco_launch.cli.output import arena_tables, render
from taco_launch.core.command import shell
from taco_launch.core.errors import UsageError
from taco_launch.core.model.job_rows import JobRow
from taco_launch.core.model.launchers import launcher_of
from taco_launch.jobs.command_lines.arena import arena_line
from taco_launch.jobs.command_lines.arena.arena_elastic import SCALES

# The namespace's name where none was created.
_DEFAULT = "default"
# What the container of a job has.
_OF_CONTAINER = ("--image", "--worker-image", "--data", "--shm-size")


@verb(context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False})
@click.argument("words", nargs=-1, type=click.UNPROCESSED)
def arena(ctx: click.Context, words: tuple[str, ...]) -> Any:
    """Run an Arena command as Arena's documentation writes it.

    \b
    submit mpi|mpijob|pytorch|pytorchjob   start a job in the background
    scalein|scaleout etjob --name NAME --count N
    list, get NAME, logs [-f] [-i INSTANCE] [-t N] NAME
    top node|job, data list, delete NAME..., prune --since TIME

    Flags have their names in Arena, also the old ones in camel case. What changes nothing without Kubernetes is noted; what
    would have the job run otherwise is refused, with what to do here. -v shows the command that is run instead.

    The inventory is named before: taco-launch -i hosts.yaml arena ..., or by TACO_LAUNCH_INVENTORY.

    \b
    Examples:
      alias arena='taco-launch -i hosts.yaml arena'
      arena submit pytorch --name=mnist --workers=3 --gpus=1 "python mnist.py"
      arena submit mpi --name=vgg16 --workers=4 --gpus=1 "mpirun -np 4 python vgg16.py"
      arena get mnist
      arena logs mnist -i mnist-worker-0 -t 5
    """
    settings = settings_of(ctx)
    inventory = settings.load()
    line = arena_line.read(words, (_DEFAULT, inventory.cluster))
    own, notes = line.words, list(line.notes)
    if own[0] == "submit" and inventory.container is None:
        own = _without_container(own, notes)
    for note in notes:
        settings.talk(f"note: {note}")
    if own[0] == "list":
        click.echo(_listed(settings, arena_tables.job_list))
        return 0
    if own[0] == "get" and len(own) == 2:
        click.echo(arena_tables.one_job(settings.backend(access_of({})).get(own[1]), time.time()))
        return 0
    if own == ("top", "job"):
        click.echo(_listed(settings, arena_tables.top_jobs))
        return 0
    if own == ("top", "node"):
        click.echo(_top_nodes(settings))
        return 0
    if own[0] in SCALES:
        own = _resize(settings, *own[1:])
    if own[0] == "logs" and len(own) > 1 and "--instance" not in own and not _has_launcher(settings, own[1]):
        own = (*own, "--rank", "0")  # Arena shows the master's log
    if settings.verbose:
        settings.talk(f"as {shell(('taco-launch', *own))}")
    root = ctx.find_root()
    # git on this machine has them, and no job
    root.obj = replace(settings, git_secrets={**settings.git_secrets, **dict(line.git)})
    return _run(root, own)


def _run(root: click.Context, words: Sequence[str]) -> Any:
    """Run another verb, as if it had been typed."""
    assert isinstance(root.command, click.Group)
    name, command, rest = root.command.resolve_command(root, list(words))
    assert command is not None
    with command.make_context(name, rest, parent=root) as context:
        return command.invoke(context)


def _resize(settings: Settings, name: str, added: str) -> tuple[str, ...]:
    """Return the line of `resize` that adds so many hosts to those of a job, or gives so many up.

    Raises:
        UsageError: the job would have no host.
    """
    hosts = len(settings.backend(access_of({})).get(name).record.hosts)
    number = hosts + int(added)
    if number < 1:
        raise UsageError(f"job {name}: has {hosts} host{'' if hosts == 1 else 's'}, so it cannot give up {-int(added)}")
    return ("resize", name, str(number))


def _without_container(words: Sequence[str], notes: list[str]) -> tuple[str, ...]:
    """Leave out what a container has; without one a job runs on the host itself."""
    at = words.index("--")
    left = [number for number in range(at) if words[number] in _OF_CONTAINER]
    notes += [
        f"{words[number]} {words[number + 1]} is ignored: the inventory has no container, so the job runs on the host itself"
        for number in left
    ]
    gone = {number + offset for number in left for offset in (0, 1)}
    return tuple(word for number, word in enumerate(words) if number not in gone)


def _listed(settings: Settings, table: Callable[[Sequence[JobRow], float], str]) -> str:
    rows, warnings = settings.backend(access_of({})).list()
    for warning in warnings:
        render.warning(settings, warning)
    return table(rows, time.time())


def _top_nodes(settings: Settings) -> str:
    nodes = settings.backend(access_of({})).nodes(settings.load())
    for node in nodes:
        if node.problem:
            render.warning(settings, f"{node.host.name}: {node.problem}")
    return arena_tables.top_nodes(nodes)


def _has_launcher(settings: Settings, name: str) -> bool:
    return launcher_of(settings.backend(access_of({})).get(name).spec).is_mpi
