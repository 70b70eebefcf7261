"""How the supervisor starts a placed job: mpirun on its own host, or what stands for it on each."""

import subprocess
from typing import Any, List, Mapping, Optional, Tuple, Union

from taco_launch.agent import processes, program
from taco_launch.agent.folders import JobFolder
from taco_launch.agent.gang import Gang
from taco_launch.agent.hosted import Failure, HostCommands
from taco_launch.agent.launcher import spawn
from taco_launch.agent.ranks import Ranks
from taco_launch.launch.env import launch_agent
from taco_launch.model.jobs import JobSpec
from taco_launch.model.plans import LaunchPlan

Launcher = Union["subprocess.Popen[bytes]", HostCommands]


def start(
    spec: JobSpec,
    folder: JobFolder,
    gang: Gang,
    ranks: Ranks,
    launch: LaunchPlan,
    caller: Mapping[str, Any],
    attempt: int,
) -> Tuple[Launcher, str, List[List[int]]]:
    """Start a job whose guards know what its ranks are given; `caller` is who submitted it.

    Gives the launcher, what there is to say of it, and its process on this host, (pid, start), where this one started it.

    Raises:
        HostError: mpirun cannot be run.
    """
    if spec.launcher != "mpirun":
        commands = HostCommands(spec, gang, ranks)
        commands.start(launch, caller, attempt)
        return (
            commands,
            f"{spec.launcher} is started on {len(launch.commands)} host{'s' if launch.commands[1:] else ''}",
            [],
        )
    environment = {**caller["environment"], **dict(launch.env)}
    if gang.remote:
        environment.update(launch_agent(program.wrapper(folder, "daemon")))
    mpirun = spawn(launch.executed, spec.cwd, environment, caller["umask"])
    entry = processes.identify(mpirun.pid)
    roots = [] if entry is None else [[entry.pid, entry.start]]
    for root in roots:
        gang.here.order("launched", root=root)
    return mpirun, f"mpirun is process {mpirun.pid}", roots


def failed_on(launcher: Optional[Launcher]) -> str:
    """Name the host whose own launcher failed first, "" where none has, or there is only mpirun's."""
    return launcher.failed_on if isinstance(launcher, HostCommands) else ""


def failure(launcher: Optional[Launcher]) -> Failure:
    """Say what has failed where ranks have to be ended for that; mpirun ends them itself."""
    return launcher.failure() if isinstance(launcher, HostCommands) else ("", None)
