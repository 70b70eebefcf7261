"""The scheduler's view of each job that may need it: a few fields, read again only when the job's files have changed.

The files are the truth: what is kept may be old, so a job is only acted on under its lock, with its events as they were read.
"""

import os
import time
from dataclasses import replace
from typing import (
    TYPE_CHECKING,
    AbstractSet,
    Any,
    Dict,
    FrozenSet,
    Iterable,
    Mapping,
    NamedTuple,
    Optional,
    Set,
    Tuple,
    Union,
)

from taco_launch.agent.host import containers
from taco_launch.agent.processes import agent_program
from taco_launch.agent.scheduler.slot_watch import HERE, SlotQuery
from taco_launch.agent.store import records
from taco_launch.agent.store.folders import JobFolder, Jobs
from taco_launch.agent.upkeep import recovery, scheduler_wakeup
from taco_launch.core.errors import DamagedRecordError, TacoLaunchError
from taco_launch.core.lifecycle import waits
from taco_launch.core.lifecycle.slot_fit import WaitingJob
from taco_launch.core.lifecycle.waits import WaitLimit
from taco_launch.core.model.engines import SlurmArray
from taco_launch.core.model.host.hosts import GpuConstraints
from taco_launch.core.model.jobs import JobRecord, JobSpec, JobState, Policy
from taco_launch.core.model.plans import SlotRequest, wanted_of

if TYPE_CHECKING:
    from taco_launch.agent.scheduler.elsewhere import ElsewhereStart

# Size and time of change of its events, and the time at which a file came into its folder or went; ns.
Stamp = Tuple[int, int, int]
Words = Tuple[Tuple[str, str], ...]
# A job that cannot be started because of its own files is tried again no sooner.
BLOCKED_SECONDS = 30.0
# How often the files of all jobs are looked at.
SCAN_SECONDS = 2.0


class ResourceRequest(NamedTuple):
    """What a job's spec asks for; it never changes.

    `hosts` are (name in the job's words, what to watch there, the most slots that the job takes there, None for all);
    `constraints` and `leaves` are those of Waiting, `variant` is which container of the cluster it runs in, `is_slurm` whether
    Slurm decides on its hosts, `array` its place in a job array there.
    """

    policy: Policy
    wanted: SlotRequest
    hosts: Tuple[Tuple[str, SlotQuery, Optional[int]], ...]
    owner: str
    constraints: Tuple[Tuple[str, GpuConstraints], ...] = ()
    leaves: Tuple[Tuple[str, str], ...] = ()
    variant: str = ""
    is_slurm: bool = False
    array: Optional[SlurmArray] = None


class PendingJob:
    """One job. Times are seconds since the epoch."""

    __slots__ = (
        "asked",
        "begins_at",
        "begun",
        "blocked_until",
        "ends_at",
        "failures",
        "foreign",
        "id",
        "is_asked",
        "is_waiting",
        "job",
        "left_out",
        "limit",
        "name",
        "only",
        "process",
        "queued_at",
        "recorded",
        "removes_at",
        "rest",
        "rests_until",
        "seen",
        "stamp",
        "state",
        "told_at",
        "tried",
    )

    def __init__(self, name: str) -> None:
        """Know nothing of it yet."""
        self.name = name
        self.stamp: Optional[Stamp] = None
        self.state: Optional[JobState] = None  # None where it cannot be read
        self.is_waiting = False  # for slots, or for a time
        self.asked: Optional[ResourceRequest] = None
        self.job: Optional[WaitingJob] = None  # as `waiting` returned it, until its record or the sizes of hosts change
        self.id = ""
        self.queued_at = 0.0
        self.ends_at: Optional[float] = None  # until when it holds its slots at the most, while it runs
        self.begins_at = 0.0
        self.limit: Optional[WaitLimit] = None
        self.removes_at: Optional[float] = None
        self.left_out: Tuple[str, ...] = ()
        self.only: Tuple[str, ...] = ()  # the hosts that it must get; empty if any of its hosts will do
        self.is_asked = False  # to be stopped, or suspended
        self.recorded: Words = ()  # why it waits, as its events say
        self.told_at = 0.0
        self.tried = False
        # its supervisor, where this process has started it
        self.process: Union[agent_program.Process, ElsewhereStart, None] = None
        self.foreign = False  # somebody else has its lock
        self.begun: Optional[Stamp] = None  # the stamp when that was started
        self.seen = False  # whether its slots were known then
        self.failures = 0  # supervisors that ended without a message
        self.rest = 0.0
        self.rests_until = 0.0
        self.blocked_until = 0.0  # its files are damaged: meanwhile it holds up no other job

    @property
    def is_starting(self) -> bool:
        """Whether a supervisor has it, and has not said anything yet."""
        return self.is_waiting and (self.process is not None or self.foreign)

    def is_ready(self, now: float) -> bool:
        """Return whether it may begin once there are slots."""
        ours = self.asked is not None and not self.asked.is_slurm
        return self.is_waiting and max(self.begins_at, self.blocked_until) <= now and not self.is_asked and ours

    @property
    def is_in_slurm(self) -> bool:
        """Return whether Slurm decides when the job starts."""
        return self.is_waiting and self.asked is not None and self.asked.is_slurm

    def is_pending(self, now: float) -> bool:
        """Return whether a scheduler has to look after it."""
        soon = self.removes_at is not None and self.removes_at < now + scheduler_wakeup.AHEAD_SECONDS
        return self.is_waiting or self.is_asked or soon

    def needs(self, hosts: AbstractSet[str]) -> bool:
        """Return whether any of these is one of its hosts."""
        return self.asked is not None and any(query.host in hosts for _name, query, _most in self.asked.hosts)

    def waiting(self, sizes: Mapping[SlotQuery, int], *, again: bool) -> WaitingJob:
        """Return it as the queue sees it; `sizes` are the slots that hosts have told, `again` tries it as a new one."""
        assert self.asked is not None
        wanted = self.asked.wanted
        if self.left_out:
            here = {name: query.host for name, query, _most in self.asked.hosts}
            wanted = replace(wanted, left_out=tuple(here[name] for name in self.left_out if name in here))
        hosts = tuple(
            (query.host, sizes.get(query) if most is None else most)
            for name, query, most in self.asked.hosts
            if not self.only or name in self.only
        )
        return WaitingJob(
            self.name,
            self.asked.policy.priority,
            self.queued_at,
            wanted,
            hosts,
            self.tried and not again,
            self.asked.constraints,
            self.asked.leaves,
            waits.lasts(self.asked.policy),
        )


class PendingJobs:
    """The jobs that are marked as pending, by name."""

    def __init__(self, jobs: Jobs) -> None:
        """Know none yet."""
        self._jobs = jobs
        self.entries: Dict[str, PendingJob] = {}
        self.freed = False  # whether a job has ended, or waits again, since this was last set to False
        self.has_slurm = False  # whether Slurm decides on any of them, or has
        self.scanned_at = 0.0  # when all were looked at, seconds since the epoch
        self._touched: Set[str] = set()  # those that this process has written to since it read them, or found changed
        self._shared: Dict[Any, Any] = {}

    def scan(self, now: float, changed: Optional[AbstractSet[str]] = None) -> None:
        """Read what has changed.

        A process that changes a job sends a message. So this looks at the jobs named there and at those with a supervisor. It
        looks at all if `changed` is None or the last time was SCAN_SECONDS ago: a message may be lost, or its sender killed.
        """
        if changed is None or not 0 <= now - self.scanned_at < SCAN_SECONDS:
            self.scanned_at = now
            names, before = self._jobs.pending(), set(self.entries)
        else:
            tried = {name for name, entry in self.entries.items() if entry.process is not None or entry.foreign}
            looked_at = tried | self._touched | changed
            names, before = self._jobs.pending(looked_at), looked_at & self.entries.keys()
        self._touched = set()
        for name in before.difference(names):
            del self.entries[name]
            self.freed = True
        for name in names:
            stamp = _stamp(f"{self._jobs.path}/{name}")
            if stamp is None:
                self._jobs.forget(name, now)
                self.entries.pop(name, None)
                continue
            entry = self.entries.get(name)
            if entry is None:
                entry = self.entries[name] = PendingJob(name)
            if stamp != entry.stamp:
                entry.stamp = stamp
                self._read(entry)

    def folder(self, entry: PendingJob) -> JobFolder:
        """Return a job's folder."""
        return self._jobs.folder(entry.name)

    def lock(self, entry: PendingJob) -> Optional[int]:
        """Take a job's lock while the job is as it was read; None where that is not so. The next look reads it again."""
        self._touched.add(entry.name)
        folder = self.folder(entry)
        try:
            lock = records.try_lock(folder)
        except (OSError, DamagedRecordError):  # it is gone, or its lock is no file
            entry.blocked_until = time.time() + BLOCKED_SECONDS
            return None
        stamp = _stamp(str(folder.path))
        # Taking the lock for the first time makes its file: the folder changes by that alone.
        if lock is not None and (stamp is None or entry.stamp is None or stamp[:2] != entry.stamp[:2]):
            os.close(lock)
            return None
        return lock

    def is_tried(self, entry: PendingJob) -> bool:
        """Return whether somebody else has the lock of a job that waits."""
        return scheduler_wakeup.is_locked(self.folder(entry))

    def _read(self, entry: PendingJob) -> None:
        folder = self.folder(entry)
        before = entry.state
        try:
            record = records.record(folder)
            if entry.asked is None or record.id != entry.id:  # another job may have got the name since
                entry.asked = self._asked(records.read_spec(folder))
                self.has_slurm |= entry.asked.is_slurm
            self._take(entry, record, folder)
        except (TacoLaunchError, OSError, ValueError):
            entry.state, entry.removes_at, entry.is_asked = None, None, False
            entry.is_waiting = False
            return
        ends = record.state.is_terminal and entry.state is not before
        lets_go = record.state.waits and before is not None and not before.waits
        self.freed |= ends or lets_go

    def _take(self, entry: PendingJob, record: JobRecord, folder: JobFolder) -> None:
        entry.state, entry.job = record.state, None
        entry.is_waiting = record.state in (JobState.QUEUED, JobState.RESTARTING)
        assert entry.asked is not None
        policy = entry.asked.policy
        entry.id, entry.ends_at = record.id, waits.must_end(policy, record)
        entry.queued_at = waits.queued_at(record)
        entry.begins_at = (record.not_before or 0.0) if record.state is JobState.RESTARTING else 0.0
        entry.limit = waits.limit(policy, record)
        entry.left_out = record.left_out
        entry.only = waits.hosts_of_retry(policy, record)
        entry.recorded = record.waiting
        entry.tried = bool(record.waiting)
        entry.is_asked = record.state.waits and recovery.is_asked(folder)
        entry.removes_at = waits.removal(policy, record)
        if record.state.is_terminal and entry.removes_at is None:
            self._jobs.unmark(entry.name)
            self._touched.add(entry.name)

    def _asked(self, spec: JobSpec) -> ResourceRequest:
        hosts = tuple(
            (
                host.name,
                self._one(SlotQuery(HERE if spec.is_here(host) else host.name, host.size, host.slot_words)),
                host.slots,
            )
            for host in spec.hosts
        )
        watched = [(query.host, host) for (_name, query, _most), host in zip(hosts, spec.hosts)]
        constraints = tuple(
            (name, host.constraints)
            for name, host in watched
            if replace(host.constraints, topology=True) != GpuConstraints()
        )
        leaves = tuple((name, host.leaf) for name, host in watched if host.leaf is not None)
        variant = containers.of(spec)
        shared = (spec.policy, wanted_of(spec), hosts, spec.owner, constraints, leaves, variant)
        array = None if spec.slurm is None else spec.slurm.array
        return ResourceRequest(*map(self._one, shared))._replace(is_slurm=spec.slurm is not None, array=array)

    def _one(self, value: Any) -> Any:
        """Return an equal value that is kept already: of a thousand jobs that ask for the same it is there once."""
        return self._shared.setdefault(value, value)


def slots_to_watch(entries: Iterable[PendingJob]) -> FrozenSet[SlotQuery]:
    """Return what is to be watched for jobs that wait."""
    asked = {entry.asked.hosts for entry in entries if entry.asked is not None}
    return frozenset(query for hosts in asked for _name, query, _most in hosts)


def _stamp(path: str) -> Optional[Stamp]:
    try:
        events, folder = os.stat(f"{path}/events.jsonl"), os.stat(path)  # noqa: PTH116 - of a thousand jobs
    except OSError:
        return None
    return events.st_size, events.st_mtime_ns, folder.st_mtime_ns
