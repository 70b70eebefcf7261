"""How the supervisor starts a placed job: mpirun on its own host, or what stands for it on each."""

import subprocess
from typing import Callable, List, NamedTuple, Optional, Tuple, Union

from taco_launch.agent import program, shared_ssh
from taco_launch.agent.host import processes
from taco_launch.agent.host.launcher_process import spawn
from taco_launch.agent.store.folders import JobFolder
from taco_launch.agent.store.records import Events
from taco_launch.agent.supervisor.gang_allocation import GangAllocation
from taco_launch.agent.supervisor.guard_connection import RemoteGuardConnection
from taco_launch.agent.supervisor.guard_pool import GuardPool, Note
from taco_launch.agent.supervisor.per_host_launch import Failure, HostCommands
from taco_launch.agent.supervisor.ranks import Ranks
from taco_launch.errors import PlacementError, UnusableError
from taco_launch.launch.env import OF_MPI, attempt_env, has_nccl_file, launch_agent, local_env, mark, proxy_agent
from taco_launch.model.jobs import JobSpec, Policy
from taco_launch.model.launchers import launcher_of
from taco_launch.model.plans import LaunchPlan, Placement
from taco_launch.protocol.calls.jobs import CallerEnvironment
from taco_launch.protocol.guard_messages import Launched, Prepare
from taco_launch.protocol.rank_messages import Welcome
from taco_launch.state import JobOutcome

Launcher = Union["subprocess.Popen[bytes]", HostCommands]

# hwloc's plugin "gl" looks for X displays 0 to 9, :6 also on TCP port 6006: where a TensorBoard or a forwarded port answers
# there, mpirun waits for it without end (seen with hwloc 2.9, Open MPI 4.1.4). hwloc(7), HWLOC_COMPONENTS.
_HWLOC = {"HWLOC_COMPONENTS": "-gl"}


class Attempt(NamedTuple):
    """What is started: the attempt of a job with its mark and number, its place and plan, the port where its ranks meet."""

    spec: JobSpec
    folder: JobFolder
    mark: str
    number: int
    placement: Placement
    launch: LaunchPlan
    port: int


def deliver_code(
    gang: GangAllocation, spec: JobSpec, placement: Placement, events: Events, note: Note, meanwhile: Callable[[], None]
) -> Tuple[Optional[JobOutcome], str]:
    """Have the job's code on its hosts, and its ranks able to start there; or return how the job ends, and the host to blame.

    `meanwhile` is called while it goes on. Raises what that does.
    """
    if spec.code is None and not spec.workdir:
        return None, ""
    from taco_launch.agent.supervisor import code_delivery  # noqa: PLC0415 - few jobs have code of their own

    hosts = [share.host for share in placement.shares]
    return code_delivery.deliver(gang, spec, gang.agent, hosts, events, note, meanwhile)


def prepare(attempt: Attempt, gang: GuardPool, ranks: Ranks, umask: int, stall_after: float) -> None:
    """Have every guard know what its ranks are given; `stall_after` is as in deadlines.py."""
    spec = attempt.spec
    host_env = dict(attempt.launch.host_env)
    for link in gang.links:
        ours = local_env(spec, attempt.placement, attempt.port, link.name)
        shared = {**dict(mark(spec.name, attempt.mark)), **attempt_env(attempt.number), **ours}
        for name, value in host_env.get(link.name, ()):
            shared.setdefault(name, value)
        elsewhere = isinstance(link, RemoteGuardConnection)
        if elsewhere:
            ranks.keep(link.name)
        welcome = Welcome(
            environment=shared,
            log_max_bytes=spec.policy.log_max_bytes,
            umask=umask,
            processes=spec.procs_per_gpu,
            attempt=1 if elsewhere else attempt.number,  # elsewhere the folder is a new one for every attempt
            nccl_file=has_nccl_file(spec, attempt.launch),
        )
        link.order(Prepare(welcome=welcome, stall_after=stall_after))


def start(
    attempt: Attempt, gang: GuardPool, ranks: Ranks, caller: CallerEnvironment
) -> Tuple[Launcher, str, List[List[int]]]:
    """Start a job whose guards know what its ranks are given; `caller` is who submitted it.

    Gives the launcher, what there is to say of it, and its process on this host, (pid, start), where this one started it.

    Raises:
        HostError: mpirun cannot be run.
    """
    spec, launch = attempt.spec, attempt.launch
    if not launcher_of(spec).is_single:
        commands = HostCommands(spec, gang, ranks)
        commands.start(launch, caller, attempt.number)
        return (
            commands,
            f"{spec.launcher} is started on {len(launch.commands)} host{'s' if launch.commands[1:] else ''}",
            [],
        )
    inherited = {name: value for name, value in caller.environment.items() if not name.startswith(OF_MPI)}
    environment = {**_HWLOC, **inherited, **dict(launch.env)}
    if gang.remote:
        environment.update(launch_agent(program.wrapper(attempt.folder, "daemon")))
        environment.update(proxy_agent(program.wrapper(attempt.folder, "proxy")))
        names = [link.name for link in gang.remote]
        environment.update(shared_ssh.for_mpirun(attempt.folder, names, launch.executed, environment))
    mpirun = spawn(launch.executed, spec.cwd, environment, caller.umask)
    entry = processes.identify(mpirun.pid)
    roots = [] if entry is None else [[entry.pid, entry.start]]
    for root in roots:
        gang.here.order(Launched(root=root))
    return mpirun, f"{spec.launcher} is process {mpirun.pid}", roots


def waits_after(error: Union[PlacementError, UnusableError], policy: Policy, *, is_new: bool) -> bool:
    """Return whether a job without a place goes on waiting: not one that may not, or asks for what there never is."""
    if policy.queue_timeout == 0:
        return False
    if isinstance(error, UnusableError):  # hosts that failed may come back; what they lack, they will lack
        return bool(error.reasons) and not is_new
    return not (is_new and error.never)


def failed_on(launcher: Optional[Launcher]) -> str:
    """Name the host whose own launcher failed first, "" where none has, or there is only mpirun's."""
    return launcher.failed_on if isinstance(launcher, HostCommands) else ""


def failure(launcher: Optional[Launcher]) -> Failure:
    """Return what has failed where ranks have to be ended for that; mpirun ends them itself."""
    return launcher.failure() if isinstance(launcher, HostCommands) else ("", None)
