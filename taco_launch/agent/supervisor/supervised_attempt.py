"""One attempt of a job under supervision: its parts, what has ended it early, and the requests of its users."""

import signal
import time
from dataclasses import replace
from typing import TYPE_CHECKING, Callable, List, Optional, Protocol, Tuple, Type, Union

from taco_launch.agent.gang.gang_allocation import GangAllocation
from taco_launch.agent.gang.guard_connection import GuardConnection
from taco_launch.agent.logs import segments
from taco_launch.agent.processes import agent_program
from taco_launch.agent.store import records
from taco_launch.agent.store.folders import JobFolder
from taco_launch.agent.supervisor import start, teardown
from taco_launch.agent.supervisor.deadlines import Divergence, EarlySignal, Limits, SlowStart, SomeEnded
from taco_launch.agent.supervisor.ranks import Ranks
from taco_launch.agent.supervisor.verification import Verification
from taco_launch.core import errors
from taco_launch.core.errors import SIGNAL_BASE, PlacementError, TacoLaunchError, UnusableError
from taco_launch.core.lifecycle import state, waits
from taco_launch.core.lifecycle.state import JobOutcome
from taco_launch.core.model.jobs import JobRecord, JobSpec, JobState
from taco_launch.core.protocol.guard_messages import GaveUp, UsageSample
from taco_launch.core.protocol.message import Message
from taco_launch.core.protocol.rank_messages import Terminate

if TYPE_CHECKING:
    from taco_launch.agent.store.usage_series import UsageKeeper


def _for_retry(spec: JobSpec, record: JobRecord) -> JobSpec:
    """Return a job with the hosts that its next attempt may have."""
    only = waits.hosts_of_retry(spec.policy, record)
    hosts = tuple(host for host in spec.hosts if host.name in only)
    return replace(spec, head=spec.head or spec.hosts[0].name, hosts=hosts) if hosts else spec


def _gang(spec: JobSpec) -> Type[GangAllocation]:
    if not spec.elastic:
        return GangAllocation
    from taco_launch.agent.gang.elastic_gang import ElasticGang  # noqa: PLC0415 - few jobs are

    return ElasticGang


class World(Protocol):
    """The hosts of an elastic attempt (elastic.py)."""

    def is_leaving(self, link: GuardConnection) -> bool:
        """Return whether a host is no part of the job any more."""

    def loses(self, link: GuardConnection) -> bool:
        """Return whether the job continues without a guard that is gone."""

    def settle_failures(self) -> bool:
        """Continue without a host whose launcher has failed, if others can; return False while that has to wait."""

    def step(self, now: float, serve: Callable[[], None]) -> None:
        """Have hosts leave and join."""


class SupervisedAttempt:
    """Hold the state that the phases of an attempt share: starting.py, running.py and ending.py, in this order."""

    def __init__(self, folder: JobFolder, agent: str, guard_process: agent_program.Process) -> None:
        """Read the job; `agent` is the agent's file, `guard_process` this host's guard, started already."""
        events = records.read_events(folder)
        # The job as of its earlier attempts, and whether there was any.
        self.record = state.reduce(events)
        self.is_new = all(event.kind == state.SUBMITTED for event in events)
        # This attempt, counted from 1, and the mark of its processes.
        self.number = self.record.attempt + 1
        self.id = state.mark(self.record.id, self.number)
        self.folder = folder.of_attempt(self.number)
        self.agent = agent
        self.spec = _for_retry(records.read_spec(folder), self.record)
        self.events = records.Events(folder)
        limit = self.spec.policy.log_max_bytes
        self.ranks = Ranks(self.folder, self.events, limit)
        self.launcher_log = segments.Writer(self.folder.launcher, limit)
        self.guard_process = guard_process
        left_out = self.record.left_out
        lives = lambda: guard_process.poll() is None  # noqa: E731
        self.gang = _gang(self.spec)(folder, agent, self.spec, self.id, lives, self._meanwhile, left_out)
        self.verification = Verification(self.spec, self.folder, self.ranks, self.events, self.gang.order)
        self.limits = Limits(self.spec.policy, self.ranks, self.events, self.gang.order)
        self._waits: Tuple[Tuple[str, str], ...] = ()  # the hosts that the job was said to wait for
        self.slow_start = SlowStart(self.events)
        self.some_ended = SomeEnded(self.ranks, self.events)
        self.divergence = Divergence(self.folder, self.spec.policy)
        self.orphans = teardown.Orphans(guard_process, self.gang)
        # What the job uses; None before the first sample of a guard.
        self.usage: Optional[UsageKeeper] = None
        self.early = EarlySignal(self.spec.policy, self.gang, self.ranks, self.events)
        # mpirun, torchrun's or our own starter, once it was started.
        self.launcher: Optional[start.Launcher] = None
        # The hosts of an elastic job, once it was started.
        self.world: Optional[World] = None
        # Why there was no place for the job, which then waits for the next attempt.
        self.no_place: Optional[Union[PlacementError, UnusableError]] = None
        # How the attempt ends before its launcher would end by itself, and the host whose loss was the reason.
        self.cut_short: Optional[JobOutcome] = None
        self.lost_host = ""
        # The loss of a host after a rank had failed.
        self.lost_later = ""
        # When TERM is followed by KILL, by time.monotonic(), and the seconds between; None: no TERM was sent.
        self.kill_at: Optional[float] = None
        self.grace = self.spec.policy.grace
        # Whether a TERM came to this process.
        self.term = False
        # Whether the launcher was killed since it did not end after its ranks.
        self.launcher_hung = False
        # The host of each rank that still ran when the grace time was over.
        self.forced: List[str] = []

    def on_term(self, _number: int, _frame: object) -> None:
        """Note a TERM, which may have come in the middle of anything."""
        self.term = True

    # -- its early end

    def stop(self, by: str, number: int, grace: Optional[float] = None) -> None:
        """End the job before its time: TERM now, KILL after the grace time. A second call can only shorten it."""
        self.grace = self.grace if grace is None else min(self.grace, grace)
        if self.cut_short is None or self.cut_short.state is JobState.SUSPENDED:
            begins = self.cut_short is None
            self.cut_short = JobOutcome(JobState.CANCELLED, SIGNAL_BASE + number, f"stopped by {by}")
            if begins and not self.early.before_end(f"stopped by {by}", grace):
                self.terminate(f"stopped by {by}")
        self.early.hurry(grace)
        if grace is not None and self.kill_at is not None:
            self.kill_at = min(self.kill_at, time.monotonic() + grace)

    def end_early(self, end: Optional[JobOutcome]) -> None:
        """End the job before its time, unless that is under way."""
        if end is not None and self.cut_short is None:
            self.cut_short = end
            self.terminate(end.reason)

    def lose(self, link: GuardConnection) -> None:
        """End the job by the loss of a guard, unless a rank had failed before."""
        if self.cut_short is not None:
            return
        outcome = teardown.end_of(link, self.gang.here)
        if teardown.answered_after(link, self.ranks.failed_by_itself):
            self.lost_later = outcome.reason
            return
        self.cut_short = outcome
        self.lost_host = "" if link is self.gang.here else link.name

    def terminate(self, why: str) -> None:
        """Send TERM to all ranks; KILL follows after the grace time."""
        if self.launcher is None:
            return
        self.kill_at = time.monotonic() + self.grace
        self.events.add(state.STOPPING, f"{why}; ending it with TERM, then with KILL after {self.grace:g} s")
        self.gang.order(Terminate())
        if not self.ranks.started:
            self.launcher.terminate()

    # -- requests and messages

    def check_requests(self) -> None:
        """Act on stop.json, suspend.json and a TERM."""
        request = records.read_request(self.folder, self.folder.stop)
        if request is not None:
            self.stop(*request)
        if self.term:
            self.stop("a TERM signal to its supervisor", signal.SIGTERM)
        suspend = None if self.cut_short is not None else records.read_request(self.folder, self.folder.suspend)
        if suspend is not None:
            why = f"suspended by {suspend.by}"
            self.cut_short = JobOutcome(JobState.SUSPENDED, SIGNAL_BASE + signal.SIGTERM, why)
            if not self.early.before_end(why, None):
                self.terminate(why)

    def check_requests_early(self) -> None:
        """Act on requests while the attempt starts.

        Raises:
            TacoLaunchError: a request ends the start.
        """
        self.check_requests()
        if self.cut_short is not None:
            raise TacoLaunchError(self.cut_short.reason)

    def _meanwhile(self) -> None:
        """Act on requests while hosts are allocated, and record which of them do not answer. Raises as `check_requests_early`."""
        self.check_requests_early()
        if self.gang.waits not in ((), self._waits):
            self._waits = self.gang.waits
            self.events.add(state.WAITING, state.FOR_SLOTS, hosts=self._waits, trying=True)

    def note(self, link: GuardConnection, message: Message) -> None:
        """Take a guard's message, which may come twice."""
        if isinstance(message, GaveUp) and self.cut_short is None:
            reason = message.reason
            if link is not self.gang.here:
                reason = reason.replace("its guard", f"its guard on {link.name}", 1)
            self.cut_short = JobOutcome(JobState.FAILED, errors.FAILED, reason)
        elif isinstance(message, UsageSample):
            if self.usage is None:
                from taco_launch.agent.store.usage_series import UsageKeeper  # noqa: PLC0415 - not while a job starts

                self.usage = UsageKeeper(self.folder)
            self.usage.note(link.name, message.usage, time.time())
        else:
            self.verification.note(link.name, message)
            self.limits.note(link.name, message)
            self.early.note(message)
            leaves = self.world is not None and self.world.is_leaving(link)
            self.ranks.note(link, message, blame=self.cut_short is None and not leaves)

    def reap(self) -> None:
        """Collect orphans that have ended; the launcher's status is left to its own wait."""
        self.orphans.reap(None if self.launcher is None else self.launcher.pid)
