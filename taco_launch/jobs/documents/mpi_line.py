"""The line of a manifest's Launcher: what starts the ranks there -> its parts, where all of them have a counterpart in a job."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from taco_launch.core.launch.command_line.nested_launcher import inner
from taco_launch.jobs.command_lines import launcher_line
from taco_launch.jobs.command_lines import launcher_options as table
from taco_launch.jobs.command_lines.launcher_line import LauncherLine, UnclearError

_STARTERS = ("mpirun", "hydra", "horovodrun")


def read(words: Sequence[str], variables: Mapping[str, str], *, hydra: bool) -> LauncherLine:
    """Read a line that starts with `variables`; `hydra` says that the manifest names an MPI with Hydra.

    Raises:
        UnclearError: it is no launcher's, or an option of it has no counterpart in a job.
    """
    launcher = inner((*words, "PROGRAM"))  # a line that lacks one is a launcher's all the same
    if launcher is None or launcher.begin or launcher.kind not in _STARTERS:
        name = "mpiexec.hydra" if hydra else "mpirun"
        raise UnclearError(0, f"is not {name}, so it is not known how it starts the ranks")
    if hydra and launcher.kind == "mpirun":
        launcher = replace(launcher, kind="hydra")
    line = launcher_line.read(words, launcher, variables)
    for part in line.of(table.REFUSED):
        raise UnclearError(part.index, part.why)
    return line
