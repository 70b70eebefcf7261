"""A launcher as the command of a job, which is refused: the same job as it is typed here."""

import itertools
from collections.abc import Sequence

from taco_launch.core.command import BARE, shell
from taco_launch.core.launch.command_line.nested_launcher import inner
from taco_launch.core.model.launchers import LAUNCHERS
from taco_launch.jobs.command_lines.launcher_line import read
from taco_launch.jobs.command_lines.mpirun_line import UnclearError

_LAUNCHER = "--launcher"
_PER_HOST = "--per-host"
# Whose programs find each other by what torchrun sets, or Hydra; those of the others by what mpirun does.
_OURS = {
    **dict.fromkeys(("torch", "deepspeed", "accelerate", "composer", "colossalai"), "torchrun"),
    "hydra": "hydra",
}
_SIZES = frozenset(("--np", "--hosts", "--slots-per-host", "--workers", "--gpus", "--slots-per-worker"))


def line(
    verb: str, own: Sequence[str], command: Sequence[str], *, sized: bool = False, launcher: str = "mpirun"
) -> str:
    """Return a job's line with what a launcher's line says as options; what `own` says already goes before it.

    `sized`: how many ranks there are is said elsewhere; `launcher` is ours.
    """
    found = inner(command)
    if found is None:
        return f"{verb} {shell((*own, '--', *command))}"
    fitting = _OURS.get(found.kind)
    if _PER_HOST in own or (fitting and LAUNCHERS[launcher].is_open_mpi):
        own, launcher = _without_launcher(own), fitting or "mpirun"
        own = (_LAUNCHER, fitting, *own) if fitting else own
    command = command[found.begin :]
    try:
        pasted = read(command, found)
    except UnclearError as error:
        return f"{verb} {shell((*own, '--'))} COMMAND ({command[error.index]!r} of {found.name}: {error.problem})"
    more = list(own)
    if not sized and not _SIZES & set(own):
        more += pasted.size
    for option, value in pasted.more:
        more += [option, value] if option not in own else []
    if pasted.hosts and "-H" not in own:
        more += ["-H", pasted.hosts]
    names = {value.partition("=")[0] for option, value in itertools.pairwise(own) if option in ("-x", "--mca")}
    for text in pasted.env:
        more += ["-x", text] if text.partition("=")[0] not in names else []
    for name, value in pasted.mca if LAUNCHERS[launcher].is_open_mpi else ():
        more += ["--mca", name, value] if name not in names else []
    if pasted.hostfile and not {"-i", "-H"} & {*verb.split(), *own}:
        verb = f"{BARE} -i {shell((pasted.hostfile,))}{verb.removeprefix(BARE)}"
    return f"{verb} {shell((*more, '--', *pasted.program))}"


def _without_launcher(own: Sequence[str]) -> tuple[str, ...]:
    """Leave out --launcher with its value, and --per-host."""
    at = own.index(_LAUNCHER) if _LAUNCHER in own else len(own)
    return tuple(word for index, word in enumerate(own) if index not in (at, at + 1) and word != _PER_HOST)
