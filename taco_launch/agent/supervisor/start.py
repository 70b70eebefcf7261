"""How the supervisor starts a placed job: mpirun on its own host, or what stands for it on each."""

import os
import signal
import subprocess
import time
from typing import IO, Callable, Dict, List, NamedTuple, Optional, Sequence, Tuple, Union

from taco_launch.agent.gang.gang_allocation import GangAllocation
from taco_launch.agent.gang.guard_connection import GuardConnection, RemoteGuardConnection
from taco_launch.agent.gang.guard_pool import GuardPool, Note
from taco_launch.agent.host import processes
from taco_launch.agent.host.launcher_process import spawn
from taco_launch.agent.processes import agent_program
from taco_launch.agent.ssh import shared_connection
from taco_launch.agent.store import records
from taco_launch.agent.store.folders import JobFolder
from taco_launch.agent.store.records import Events
from taco_launch.agent.supervisor import teardown
from taco_launch.agent.supervisor.ranks import Ranks
from taco_launch.core.errors import JobEnd, PlacementError, TacoLaunchError, UnusableError, code_of_process
from taco_launch.core.launch.command_line.env import (
    OF_MPI,
    attempt_env,
    has_nccl_file,
    launch_agent,
    local_env,
    mark,
    proxy_agent,
)
from taco_launch.core.lifecycle import state
from taco_launch.core.lifecycle.state import JobOutcome
from taco_launch.core.model.codec import to_json
from taco_launch.core.model.jobs import HostRanks, JobSpec, JobState, Policy
from taco_launch.core.model.launchers import launcher_of
from taco_launch.core.model.plans import LaunchPlan, Placement
from taco_launch.core.protocol.calls.jobs import CallerEnvironment
from taco_launch.core.protocol.guard_messages import CodeFetched, FetchCode, Launch, Launched, Prepare
from taco_launch.core.protocol.rank_messages import Welcome


def deliver(
    gang: GuardPool,
    spec: JobSpec,
    agent: str,
    hosts: Sequence[str],
    events: records.Events,
    note: Note,
    meanwhile: Callable[[], None],
) -> Tuple[Optional[JobOutcome], str]:
    """Have every placed host bring the job's code; where not all have it, return how the job ends and the host to blame.

    That is "" where it is the head.

    `meanwhile` is called while it goes on. Raises what that does.
    """
    links = _links(gang, hosts)
    begun = time.monotonic()
    for link, order in zip(links, _orders(gang, spec, agent, links)):
        link.order(order)
    while any(link.answers.fetched is None for link in links):
        gang.pump(note)
        meanwhile()
        for link in links:
            link.lost_after(spec.policy.host_loss_timeout, gang.looked)
        gone = next((link for link in links if link.gone), None)
        if gone is not None:
            return teardown.end_of(gone, gang.here), "" if gone is gang.here else gone.name
        failed = next((link for link in links if link.answers.fetched is not None and link.answers.fetched.error), None)
        if failed is not None:
            return _failed(gang, failed)
    answers = [link.answers.fetched or CodeFetched() for link in links]
    notes = [f"{link.name}: {words}" for link, answer in zip(links, answers) for words in answer.notes]
    received, seconds = sum(answer.received for answer in answers), time.monotonic() - begun
    count = "1 host" if len(links) == 1 else f"{len(links)} hosts"
    words = f"the code is on {count} after {seconds:.2f} s; {received} bytes of it were copied between hosts"
    events.add(state.COPIED, words, bytes=received, seconds=seconds, notes=notes)
    return None, ""


def _links(gang: GuardPool, hosts: Sequence[str]) -> List[GuardConnection]:
    """Return the guards of hosts, each once: this host may be among them under two names."""
    found: List[GuardConnection] = []
    for name in hosts:
        link = gang.link(name)
        if link not in found:
            found.append(link)
    return found


def _orders(gang: GuardPool, spec: JobSpec, agent: str, links: Sequence[GuardConnection]) -> List[FetchCode]:
    """Return what each host is told: whom to ask first, then the head, where the code is whole."""
    code, found, before = spec.code, [], ""
    for link in links:
        remote = isinstance(link, RemoteGuardConnection)
        head = spec.head or gang.here.name
        order = FetchCode(
            snapshot="" if code is None else code.id,
            agent=agent,
            sources=list(dict.fromkeys(filter(None, (before, head)))) if remote else [],
            tree=code is not None and bool(code.source),
            at="" if code is None else code.at,
            workdir=spec.workdir,
            cwd="" if remote else spec.cwd,
        )
        found.append(order)
        before = link.name if remote else ""
    return found


def _failed(gang: GuardPool, link: GuardConnection) -> Tuple[JobOutcome, str]:
    answer = link.answers.fetched or CodeFetched()
    where = link.name or "this host"
    outcome = JobOutcome(JobState.FAILED, JobEnd.HOST_NOT_READY, f"{where}: {answer.error}", answer.hint)
    return outcome, "" if link is gang.here else link.name


# What has failed, "" where nothing has; and where that settles how the job ends, its state, exit code and reason.
Failure = Tuple[str, Optional[state.JobOutcome]]


class HostCommands:
    """The launchers of all hosts, with what of `subprocess.Popen` the supervisor uses of mpirun.

    The first rank that fails, or the first launcher that does, fails all; its code is theirs.
    """

    pid = 0  # no process of this one

    def __init__(self, spec: JobSpec, gang: GuardPool, ranks: Ranks) -> None:
        """Start nothing yet."""
        self._spec, self._gang, self._ranks = spec, gang, ranks
        self._links: List[GuardConnection] = []
        self._codes: Dict[str, int] = {}
        self._killed = False
        self.stdout: IO[bytes] = open(os.devnull, "rb")  # noqa: SIM115 - their output comes by way of the guards

    def start(self, launch: LaunchPlan, caller: CallerEnvironment, attempt: int) -> None:
        """Have every guard start what is its host's."""
        of_caller = caller.environment
        for command in launch.commands:
            link = self._gang.link(command.host)
            if link in self._links:  # its launcher runs, and other hosts have joined
                continue
            here = link is self._gang.here
            passed = {name: of_caller[name] for name in command.passed if name in of_caller}
            own = {name: value for name, value in of_caller.items() if not name.startswith(OF_MPI)}
            order = Launch(
                argv=command.argv,
                caller=own if here else None,
                environment={**passed, **dict(command.env)},
                cwd=self._spec.cwd,
                umask=caller.umask,
                attempt=attempt if here else 1,  # elsewhere the folder is a new one for every attempt
                log_max_bytes=self._spec.policy.log_max_bytes,
            )
            link.order(order)
            self._links.append(link)

    def leave(self, link: GuardConnection) -> None:
        """Ignore a host's launcher from now on."""
        self._links.remove(link)
        self._codes.pop(link.name, None)

    def failure(self) -> Failure:
        """Return which rank or launcher has failed first, if one has while there are ranks to be ended for that.

        Where it is a launcher whose ranks ran, that settles how the job ends: what they do then is of no account.
        """
        self.poll()
        if self._ranks.all_ended:
            return "", None
        first = self._ranks.fatal
        if first is not None:
            return f"rank {first.rank} on {first.host} {first.reason or state.ending(first.exit_code)}", None
        if not self.failed_on:
            return "", None
        code = code_of_process(self._codes[self.failed_on])
        why = f"{self._spec.launcher} on {self.failed_on} {state.ending(code)}"
        return why, state.JobOutcome(
            JobState.FAILED, code, f"{why} while its ranks ran"
        ) if self._ranks.started else None

    def poll(self) -> Optional[int]:
        """Return the code of them all when the last has ended; -n for signal n."""
        for link in self._links:
            if link.answers.done is not None:
                self._codes.setdefault(link.name, link.answers.done.code)
        if not self._killed and len(self._codes) < len(self._links):
            return None
        if self._spec.elastic and not self._killed and not self.failed_on:
            self._ranks.forgive()
        if self._ranks.failures:
            return self._ranks.failures[0].exit_code
        return self._codes[self.failed_on] if self.failed_on else -signal.SIGKILL if self._killed else 0

    def wait(self, _seconds: float) -> int:
        """Return the code now that the guards have ended whatever was left."""
        code = self.poll()
        return -signal.SIGKILL if code is None else code

    def terminate(self) -> None:
        """Leave it to the guards, which are told to end what has not started a rank."""

    def kill(self) -> None:
        """Wait for them no longer: the guards end what is left."""
        self._killed = True

    @property
    def failed_on(self) -> str:
        """The host whose launcher failed first, "" where none has."""
        return next((host for host, code in self._codes.items() if code), "")


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

    hosts = [share.host for share in placement.shares]
    return deliver(gang, spec, gang.agent, hosts, events, note, meanwhile)


def prepare(
    attempt: Attempt,
    gang: GuardPool,
    ranks: Ranks,
    umask: int,
    stall_after: float,
    links: Optional[Sequence[GuardConnection]] = None,
) -> None:
    """Have guards, every one if `links` is None, know what their ranks are given; `stall_after` is as in deadlines.py."""
    spec = attempt.spec
    host_env = dict(attempt.launch.host_env)
    for link in gang.links if links is None else links:
        ours = local_env(spec, attempt.placement, attempt.port, link.name)
        shared = {**dict(mark(spec.name, attempt.mark)), **attempt_env(attempt.number, elastic=spec.elastic), **ours}
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
        environment.update(launch_agent(agent_program.wrapper(attempt.folder.agent, "daemon", attempt.folder.path)))
        environment.update(proxy_agent(agent_program.wrapper(attempt.folder.agent, "proxy", attempt.folder.path)))
        names = [link.name for link in gang.remote]
        environment.update(shared_connection.for_mpirun(attempt.folder, names, launch.executed, environment))
    mpirun = spawn(launch.executed, spec.cwd, environment, caller.umask)
    entry = processes.identify(mpirun.pid)
    roots = [] if entry is None else [[entry.pid, entry.start]]
    for root in roots:
        gang.here.order(Launched(root=root))
    return mpirun, f"{spec.launcher} is process {mpirun.pid}", roots


def recorded(placement: Placement) -> object:
    """Return the shares of a placement as events have them."""
    shares = placement.shares
    return to_json(
        tuple(HostRanks(share.host, share.ranks, share.slots, share.choice, share.first) for share in shares)
    )


def outcome_of(error: TacoLaunchError) -> JobOutcome:
    """Return how a job ends that this error ends."""
    return JobOutcome(JobState.FAILED, error.job_exit_code, error.message, error.hint or "")


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
