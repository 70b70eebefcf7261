"""Start the supervisors of jobs that may begin, and see how they end."""

import os
import sys
import time
from typing import AbstractSet, Callable, Collection, Dict, Iterable, Iterator, List, Mapping, Optional, Set, Tuple

from taco_launch.agent.scheduler import supervisor_start
from taco_launch.agent.scheduler.pending import BLOCKED_SECONDS, PendingJob, PendingJobs
from taco_launch.agent.scheduler.slot_watch import SlotQuery, capacities
from taco_launch.agent.store import records, untrusted
from taco_launch.agent.store.folders import Jobs
from taco_launch.agent.upkeep import recovery
from taco_launch.core.errors import JobEnd, TacoLaunchError
from taco_launch.core.lifecycle import queue, slot_fit, state
from taco_launch.core.model.jobs import JobState
from taco_launch.core.model.slots import Occupancy

# How long a job rests that found no place where there seemed to be one; doubled each time.
_REST_SECONDS = (1.0, 30.0)
# A first job whose hosts do not answer is tried as often all the same: it may be the look that fails.
_BLIND_SECONDS = 60.0
# A supervisor that ends without a message is started again; so often, then the job is given up.
_MOST_FAILURES = 3


class JobStarter:
    """The pending jobs of a state folder, and the supervisors that this process has started for them."""

    def __init__(self, jobs: Jobs) -> None:
        """Read nothing yet."""
        self.pending = PendingJobs(jobs)
        # Ready jobs in the order of the queue, as of the last `begin`.
        self.order: Tuple[PendingJob, ...] = ()
        self._waiting: Tuple[slot_fit.WaitingJob, ...] = ()
        self._limits = queue.TimeLimits()
        self._sizes: Dict[SlotQuery, int] = {}
        self._children: List[supervisor_start.Process] = []
        self._blind_at = 0.0

    def entries(self) -> Tuple[PendingJob, ...]:
        """Return all jobs that are known."""
        return tuple(self.pending.entries.values())

    def look(self, now: float, changed: Optional[AbstractSet[str]] = None) -> None:
        """Read what has changed: new jobs, supervisors that have ended, requests to stop or suspend; `changed` as in `scan`."""
        ended = [entry for entry in self.entries() if entry.process is not None and entry.process.poll() is not None]
        self._children = [child for child in self._children if child.poll() is None]
        self.pending.scan(now, changed)
        for entry in ended:
            self._note_end(entry, now)
        for entry in self.entries():
            if entry.foreign:
                entry.foreign = self.pending.is_tried(entry)
            if entry.is_asked and not entry.is_starting:
                self.under_lock(entry, lambda entry=entry: self._settle(entry))  # type: ignore[misc]

    def begin(self, now: float, occupancies: Mapping[SlotQuery, Occupancy], down_hosts: Collection[str]) -> Set[str]:
        """Start the supervisors of jobs that may begin, by what their hosts report; return their names."""
        ready = {entry.name: entry for entry in self.entries() if entry.is_ready(now)}
        by_host = capacities(occupancies)
        down = frozenset(set(down_hosts) - by_host.keys())
        blind = bool(down) and now > self._blind_at
        if blind:
            self._blind_at = now + _BLIND_SECONDS
        sizes = {query: len(occupancy.slots) for query, occupancy in occupancies.items()}
        waiting = queue.order(self._seen(ready.values(), sizes, down if blind else frozenset()))
        self.order = tuple(ready[job.name] for job in waiting)
        ends = tuple((entry.id, entry.ends_at) for entry in self.entries() if entry.ends_at is not None)
        self._waiting, self._limits = tuple(waiting), queue.TimeLimits(now, ends)
        begun = queue.begin(
            waiting,
            by_host,
            trying=frozenset(name for name, entry in ready.items() if entry.is_starting),
            resting=frozenset(name for name, entry in ready.items() if entry.rests_until > now),
            down=down,
            limits=self._limits,
        )
        return {name for name in begun if self._start(ready[name], by_host)}

    def _seen(
        self, entries: Iterable[PendingJob], sizes: Dict[SlotQuery, int], again: AbstractSet[str]
    ) -> Iterator[slot_fit.WaitingJob]:
        """Yield jobs as the queue sees them; those on hosts of `again` as new ones."""
        stale, self._sizes = sizes != self._sizes, sizes
        for entry in entries:
            if again and entry.needs(again):
                entry.job = None
                yield entry.waiting(sizes, again=True)
                continue
            if stale or entry.job is None:
                entry.job = entry.waiting(sizes, again=False)
            yield entry.job

    def latest_starts(self, most: int, occupancies: Mapping[SlotQuery, Occupancy]) -> Mapping[str, float]:
        """Return when each of the first `most` jobs of the queue starts at the latest, where the time limits tell that."""
        if not self._limits.ends:
            return {}
        first = self._waiting[:most]
        found = queue.latest_starts(first, capacities(occupancies), self._limits)
        return {job.name: time for job, time in zip(first, found) if time is not None}

    def _start(self, entry: PendingJob, by_host: slot_fit.Capacities) -> bool:
        """Start a job's supervisor, which takes over the job's lock; False where the job is not as it was."""
        lock = self.pending.lock(entry)
        if lock is None:
            entry.foreign = self.pending.is_tried(entry)
            return False
        try:
            entry.process = supervisor_start.start(entry, self.pending.folder(entry), lock)
        except (OSError, TacoLaunchError) as error:
            sys.stderr.write(f"job {entry.name}: its supervisor cannot be started: {error}\n")
            entry.blocked_until = time.time() + BLOCKED_SECONDS
            return False
        entry.begun = entry.stamp
        entry.seen = entry.asked is not None and all(query.host in by_host for _name, query, _most in entry.asked.hosts)
        self._children.append(entry.process)
        return True

    def _note_end(self, entry: PendingJob, now: float) -> None:
        """See what came of a job whose supervisor has ended."""
        elsewhere, entry.process = entry.process, None
        words = supervisor_start.unreachable(elsewhere)
        if words and entry.is_waiting:
            self._rest(entry, now)
            if words != entry.recorded:
                entry.told_at, entry.recorded = now, words
                self.under_lock(entry, lambda: self.events(entry).add(state.WAITING, state.FOR_SLOTS, hosts=words))
        elif not entry.is_waiting:
            entry.failures, entry.rest = 0, 0.0
        elif entry.begun is not None and entry.stamp is not None and entry.begun[:2] == entry.stamp[:2]:
            entry.failures += 1
            entry.rests_until = now + _REST_SECONDS[0]
            if entry.failures >= _MOST_FAILURES:
                self.under_lock(entry, lambda: self._give_up(entry))
        elif entry.seen:
            entry.failures = 0
            self._rest(entry, now)

    def _rest(self, entry: PendingJob, now: float) -> None:
        entry.rest = min(max(2 * entry.rest, _REST_SECONDS[0]), _REST_SECONDS[1])
        entry.rests_until = now + entry.rest

    def await_elsewhere(self) -> None:
        """Wait until a job that another container has been told of has its supervisor there, or has failed to get one."""
        for entry in self.entries():
            supervisor_start.await_lock(entry, self.pending.folder(entry))

    def events(self, entry: PendingJob) -> records.Events:
        """Return the events of a job, to add to."""
        return records.Events(self.pending.folder(entry))

    def under_lock(self, entry: PendingJob, act: Callable[[], object]) -> None:
        """Write to a job's events; if another process holds the job, or it has changed, a later look reads it again."""
        lock = self.pending.lock(entry)
        if lock is None:
            return
        try:
            quietly(entry.name, act)
        finally:
            os.close(lock)

    def _settle(self, entry: PendingJob) -> None:
        folder = self.pending.folder(entry)
        recovery.apply_stop_or_suspend(folder, records.record(folder))

    def _give_up(self, entry: PendingJob) -> None:
        folder = self.pending.folder(entry)
        words = untrusted.last_line(folder.debug)
        told = f": {words}" if words else ""
        reason = f"its supervisor ended {_MOST_FAILURES} times without giving a reason{told}; see {folder.debug}"
        records.ended(records.Events(folder), JobState.LOST, JobEnd.NEVER_RAN, reason)
        folder.caller.unlink(missing_ok=True)


def quietly(name: str, act: Callable[[], object]) -> None:
    """Do something with one job; what fails, as its files may be damaged, is told in the log, and tried again."""
    try:
        act()
    except (TacoLaunchError, OSError, ValueError, KeyError, TypeError) as error:
        sys.stderr.write(f"job {name}: {error!r}\n")
