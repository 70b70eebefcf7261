"""A launcher as the command of a job: refused where ours would start it for each rank, with the line as it is typed here."""

import itertools
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from taco_launch.command import BARE, shell
from taco_launch.errors import UsageError

if TYPE_CHECKING:
    from taco_launch.model.jobs import JobSpec

# In a context's `meta`: the options of the command line, but for the inventory.
OWN = "taco_launch.own"
_LAUNCHER = "--launcher"
_PER_HOST = "--per-host"
_SIZES = frozenset(("--np", "--hosts", "--slots-per-host", "--workers", "--gpus"))


def refuse(spec: "JobSpec", verb: str, own: Sequence[str], options: Mapping[str, Any]) -> None:
    """Refuse a command that is a launcher where that cannot be meant.

    `verb` is how the command is typed up to its options, `own` are these, `options` all that was asked for, also by a file.

    Raises:
        UsageError: with the same job as it is typed here.
    """
    from taco_launch.launch.inner import clashes, inner

    found = inner(spec.command)
    if found is None or not clashes(spec, found):
        return
    each = "host" if spec.per_host else "rank"
    itself = spec.launcher == "mpirun" and found.kind == "mpirun"
    lines = [
        f"the command is a launcher itself: each {each} would start the whole line of {found.name}"
        + (", and mpirun refuses to be started by mpirun" if itself else ", a job of its own each time")
    ]
    if found.kind == "torch":
        lines.append("its line once on each host, where RANK and WORLD_SIZE count hosts: --launcher env --per-host")
    lines.append(f"the line as it stands, for each {each}: sh -c '...'")
    names = ("np", "host_count", "slots_per_host", "workers", "gpus")
    sized = "np" not in options or any(options.get(name) is not None for name in names)
    raise UsageError("\n  ".join(lines), hint=line(verb, own, spec.command, sized=sized, launcher=spec.launcher))


def line(
    verb: str, own: Sequence[str], command: Sequence[str], *, sized: bool = False, launcher: str = "mpirun"
) -> str:
    """Give a job's line with what a launcher's line says as options; what `own` says already goes before it.

    `sized`: how many ranks there are is said elsewhere; `launcher` is ours.
    """
    from taco_launch.inventory.launcher_line import read
    from taco_launch.inventory.mpirun_line import UnclearError
    from taco_launch.launch.inner import inner

    found = inner(command)
    if found is None:
        return f"{verb} {shell((*own, '--', *command))}"
    if _PER_HOST in own or (found.kind == "torch" and launcher == "mpirun"):
        own, launcher = _without_launcher(own), "torchrun" if found.kind == "torch" else "mpirun"
        own = own if launcher == "mpirun" else (_LAUNCHER, launcher, *own)
    try:
        pasted = read(command, found)
    except UnclearError as error:
        return f"{verb} {shell((*own, '--'))} COMMAND ({command[error.index]!r} of {found.name}: {error.problem})"
    more = list(own)
    if not sized and not _SIZES & set(own):
        more += pasted.size
    if pasted.hosts and "-H" not in own:
        more += ["-H", pasted.hosts]
    names = {value.partition("=")[0] for option, value in itertools.pairwise(own) if option in ("-x", "--mca")}
    for text in pasted.env:
        more += ["-x", text] if text.partition("=")[0] not in names else []
    for name, value in pasted.mca if launcher == "mpirun" else ():
        more += ["--mca", name, value] if name not in names else []
    if pasted.hostfile and not {"-i", "-H"} & {*verb.split(), *own}:
        verb = f"{BARE} -i {shell((pasted.hostfile,))}{verb.removeprefix(BARE)}"
    return f"{verb} {shell((*more, '--', *pasted.program))}"


def _without_launcher(own: Sequence[str]) -> tuple[str, ...]:
    """Leave out --launcher with its value, and --per-host."""
    at = own.index(_LAUNCHER) if _LAUNCHER in own else len(own)
    return tuple(word for index, word in enumerate(own) if index not in (at, at + 1) and word != _PER_HOST)
