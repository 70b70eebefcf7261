"""`agent schedule`: the queue of a state folder: starts supervisors for jobs that may begin, and keeps their times.

It runs only while a job waits, or something is due within the hour, and keeps nothing that the jobs' folders do not say:
whoever starts the next one continues where it was. See scheduler_wakeup.py for who does.
"""

import os
import select
import signal
import sys
import threading
import time
from functools import partial
from typing import Callable, Dict, List, Optional, Sequence, Set, Tuple

from taco_launch.agent.host import occupancy
from taco_launch.agent.scheduler import supervisor_start
from taco_launch.agent.scheduler.pending import PendingJob, PendingJobs, Words, slots_to_watch
from taco_launch.agent.scheduler.slot_watch import SlotWatchers, capacities
from taco_launch.agent.store import records, untrusted
from taco_launch.agent.store.folders import Jobs, state_folder
from taco_launch.agent.supervisor.placement_errors import held_up
from taco_launch.agent.upkeep import recovery, removal, scheduler_wakeup
from taco_launch.core.errors import OK, JobEnd, TacoLaunchError
from taco_launch.core.lifecycle import queue, state
from taco_launch.core.model.host.hosts import GpuConstraints, Host
from taco_launch.core.model.jobs import JobState

# How often the folders are looked at when nobody says a word, and whether jobs that run have their supervisors.
_SCAN_SECONDS, _SUPERVISED_SECONDS = 2.0, 10.0
# A job's words are written no more often, the longer it waits the less so; and follow changes only for the first so many.
_WORDS_SECONDS, _MOST_TOLD = (1.0, 60.0), 20
_WORDS_SHARE = 0.01
# A new job is told that it waits once its hosts have told of their slots, or after so long.
_UNTOLD_SECONDS = 5.0
_FAR_BEHIND = (("", f"more than {_MOST_TOLD} jobs are ahead of it in the queue"),)
# How long a job rests that found no place where there seemed to be one; doubled each time.
_REST_SECONDS = (1.0, 30.0)
# A first job whose hosts do not answer is tried as often all the same: it may be the look that fails.
_BLIND_SECONDS = 60.0
# A supervisor that ends without a message is started again; so often, then the job is given up.
_MOST_FAILURES = 3


def main(agent: str, lock: Optional[int] = None) -> int:
    """Schedule until nothing is pending; `lock` is the descriptor of the lock, where it was handed over."""
    jobs = Jobs(state_folder(os.environ, os.geteuid()))
    lock = scheduler_wakeup.try_lock(jobs) if lock is None else lock
    if lock is None:
        return OK
    for number in (signal.SIGHUP, signal.SIGINT):
        signal.signal(number, signal.SIG_IGN)
    with scheduler_wakeup.listen(jobs) as server:
        scheduler = Scheduler(jobs, agent, SlotWatchers(agent))
        while True:
            pause = scheduler.step(time.time())
            if pause is None:
                break
            poll = select.poll()
            for descriptor in (server.fileno(), *scheduler.descriptors()):
                poll.register(descriptor, select.POLLIN)
            ready = [descriptor for descriptor, _event in poll.poll(pause * 1000)]
            while server.fileno() in ready:
                try:
                    server.recv(16)
                except BlockingIOError:
                    break
            scheduler.read(ready)
        scheduler.close()
    os.close(lock)
    scheduler_wakeup.ensure(jobs, agent)  # what came after the last look found the lock taken
    return OK


def admit(jobs: Jobs, agent: str) -> None:
    """Start a job that has nobody before it, without any scheduler where there is none; else have that look."""
    lock = scheduler_wakeup.try_lock(jobs)
    if lock is None:
        scheduler_wakeup.notify(jobs)
        return
    scheduler = Scheduler(jobs, agent, None)
    if scheduler.step(time.time()) is not None:
        scheduler_wakeup.start(jobs, agent, lock)
        return
    scheduler.await_elsewhere()
    os.close(lock)
    scheduler_wakeup.ensure(jobs, agent)


class Scheduler:
    """The queue; without `watchers` it is for one look at those who start unseen."""

    def __init__(self, jobs: Jobs, agent: str, watchers: Optional[SlotWatchers]) -> None:
        """Know nothing yet: the first step reads it."""
        self._jobs = jobs
        self._agent = agent
        self._watchers = watchers
        self._pending = PendingJobs(jobs)
        self._children: List[supervisor_start.Process] = []
        self._aside: Dict[str, threading.Thread] = {}
        self._supervised_at = 0.0
        self._blind_at = 0.0
        self._order: Tuple[PendingJob, ...] = ()

    def await_elsewhere(self) -> None:
        """Wait until a job that another container has been told of has its supervisor there, or has failed to get one."""
        for entry in self._entries():
            supervisor_start.await_lock(entry, self._pending.folder(entry))

    def descriptors(self) -> List[int]:
        """Return what can be read when there is something new."""
        return [] if self._watchers is None else self._watchers.descriptors()

    def read(self, ready: Sequence[int]) -> None:
        """Take in what hosts tell."""
        if self._watchers is not None:
            self._watchers.read(ready)

    def close(self) -> None:
        """Watch nobody any more."""
        if self._watchers is not None:
            self._watchers.close()

    def step(self, now: float) -> Optional[float]:
        """Do what is to be done now; give the seconds after which to look again, None where nothing is pending."""
        ended = [entry for entry in self._entries() if entry.process is not None and entry.process.poll() is not None]
        self._children = [child for child in self._children if child.poll() is None]
        self._aside = {name: thread for name, thread in self._aside.items() if thread.is_alive()}
        self._pending.scan(now)
        for entry in ended:
            self._note_end(entry, now)
        for entry in self._entries():
            entry.foreign = entry.foreign and self._pending.is_tried(entry)
            if entry.is_asked and not entry.is_starting:
                self._under_lock(entry, lambda entry=entry: self._settle(entry))  # type: ignore[misc]
        if self._watchers is not None:
            self._keep(now, self._watchers)
        begun = self._begin(now)
        if self._watchers is None:
            return (
                0.0
                if any(self._is_pending(entry, now) and not entry.is_starting for entry in self._entries())
                else None
            )
        waits = (entry for entry in self._entries() if self._is_ready(entry, now) and not entry.is_starting)
        self._watchers.want(slots_to_watch(waits), time.monotonic())
        for entry in self._entries():
            if entry.is_waiting and entry.name not in begun:
                self._end_of_time(entry, now)
        self._tell(now, begun)
        return self._pause(now)

    # -- what exists

    def _entries(self) -> Tuple[PendingJob, ...]:
        return tuple(self._pending.entries.values())

    def _is_pending(self, entry: PendingJob, now: float) -> bool:
        soon = entry.removes_at is not None and entry.removes_at < now + scheduler_wakeup.AHEAD_SECONDS
        return entry.is_waiting or entry.is_asked or soon

    def _pause(self, now: float) -> Optional[float]:
        entries = [entry for entry in self._entries() if self._is_pending(entry, now)]
        if not entries and not self._aside:
            return None
        due = [now + _SCAN_SECONDS]
        for entry in entries:
            due += [time_ for time_ in (entry.begins_at, entry.rests_until, entry.removes_at) if time_ and time_ > now]
            if entry.limit is not None and entry.limit.time > now:
                due.append(entry.limit.time)
        return max(min(due) - now, 0.01)

    def _keep(self, now: float, watchers: SlotWatchers) -> None:
        """Have slots looked for that are let go, remove records, and see that jobs that run have a supervisor."""
        if self._pending.freed:
            self._pending.freed = False
            watchers.nudge()
            for entry in self._entries():
                if entry.is_starting:  # it may have looked just before, and is not to rest for that
                    entry.seen = False
                if entry.rest:  # what it missed besides slots, such as a port, may have been let go with them
                    entry.rests_until = now
        for entry in self._entries():
            if entry.removes_at is not None and entry.removes_at <= now:
                self._run_aside(entry, lambda entry=entry: self._remove(entry))  # type: ignore[misc]
        if now - self._supervised_at > _SUPERVISED_SECONDS:
            self._supervised_at = now
            for entry in self._entries():
                runs = entry.state is not None and not entry.state.waits and not entry.state.is_terminal
                if runs and not scheduler_wakeup.is_locked(self._pending.folder(entry)):
                    self._run_aside(entry, lambda entry=entry: recovery.current_record(self._pending.folder(entry)))  # type: ignore[misc]

    def _is_ready(self, entry: PendingJob, now: float) -> bool:
        return entry.is_waiting and entry.begins_at <= now and not entry.is_asked and entry.asked is not None

    def _run_aside(self, entry: PendingJob, act: Callable[[], object]) -> None:
        """Do what may take as long as hosts do not answer, while the queue continues."""
        if entry.name not in self._aside:
            thread = threading.Thread(target=_quietly, args=(entry.name, act), daemon=True)
            self._aside[entry.name] = thread
            thread.start()

    def _remove(self, entry: PendingJob) -> None:
        for warning in removal.remove(self._jobs, self._agent, self._pending.folder(entry)):
            sys.stderr.write(f"{warning}\n")

    # -- who starts

    def _begin(self, now: float) -> Set[str]:
        """Start the supervisors of those who may begin, and name them."""
        ready = {entry.name: entry for entry in self._entries() if self._is_ready(entry, now)}
        told = {} if self._watchers is None else self._watchers.occupancies()
        by_host = capacities(told)
        down = frozenset(() if self._watchers is None else self._watchers.down().keys() - by_host.keys())
        blind = bool(down) and now > self._blind_at
        if blind:
            self._blind_at = now + _BLIND_SECONDS
        sizes = {query: len(found.slots) for query, found in told.items()}
        waiting = queue.order(entry.waiting(sizes, again=blind and entry.needs(down)) for entry in ready.values())
        self._order = tuple(ready[job.name] for job in waiting)
        begun = queue.begin(
            waiting,
            by_host,
            trying=frozenset(name for name, entry in ready.items() if entry.is_starting),
            resting=frozenset(name for name, entry in ready.items() if entry.rests_until > now),
            down=down,
        )
        return {name for name in begun if self._start(ready[name], by_host)}

    def _start(self, entry: PendingJob, by_host: queue.Capacities) -> bool:
        """Start a job's supervisor, which takes over the job's lock; False where the job is not as it was."""
        lock = self._pending.lock(entry)
        if lock is None:
            entry.foreign = self._pending.is_tried(entry)
            return False
        try:
            entry.process = supervisor_start.start(entry, self._pending.folder(entry), lock)
        except (OSError, TacoLaunchError) as error:
            sys.stderr.write(f"job {entry.name}: its supervisor cannot be started: {error}\n")
            entry.rests_until = time.time() + _REST_SECONDS[1]
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
                self._under_lock(entry, lambda: self._events(entry).add(state.WAITING, state.FOR_SLOTS, hosts=words))
        elif not entry.is_waiting:
            entry.failures, entry.rest = 0, 0.0
        elif entry.begun is not None and entry.stamp is not None and entry.begun[:2] == entry.stamp[:2]:
            entry.failures += 1
            entry.rests_until = now + _REST_SECONDS[0]
            if entry.failures >= _MOST_FAILURES:
                self._under_lock(entry, lambda: self._give_up(entry))
        elif entry.seen:
            entry.failures = 0
            self._rest(entry, now)

    def _rest(self, entry: PendingJob, now: float) -> None:
        entry.rest = min(max(2 * entry.rest, _REST_SECONDS[0]), _REST_SECONDS[1])
        entry.rests_until = now + entry.rest

    def _events(self, entry: PendingJob) -> records.Events:
        return records.Events(self._pending.folder(entry))

    # -- who waits

    def _under_lock(self, entry: PendingJob, act: Callable[[], object]) -> None:
        """Write to a job's events; where somebody else has the job, or it has changed, it is looked at again."""
        lock = self._pending.lock(entry)
        if lock is None:
            return
        try:
            _quietly(entry.name, act)
        finally:
            os.close(lock)

    def _settle(self, entry: PendingJob) -> None:
        folder = self._pending.folder(entry)
        recovery.apply_stop_or_suspend(folder, records.record(folder))

    def _give_up(self, entry: PendingJob) -> None:
        folder = self._pending.folder(entry)
        words = untrusted.last_line(folder.debug)
        told = f": {words}" if words else ""
        reason = f"its supervisor ended {_MOST_FAILURES} times without giving a reason{told}; see {folder.debug}"
        records.ended(records.Events(folder), JobState.LOST, JobEnd.NEVER_RAN, reason)
        folder.caller.unlink(missing_ok=True)

    def _end_of_time(self, entry: PendingJob, now: float) -> None:
        """End a job whose time is over, for waiting or for all of its attempts."""
        limit = entry.limit
        if limit is None or limit.time > now or entry.is_starting:
            return
        at_once = entry.asked is not None and entry.asked.policy.queue_timeout == 0
        if at_once and (any(other.is_starting for other in self._entries()) or not self._knows(entry)):
            return  # it may still turn out that it need not wait
        known = self._words(entry) or entry.recorded
        # As a refusal: a line for each host.
        before = [f"; {why}" for host, why in known if not host]
        reason = "".join((limit.reason, *before, *(f"\n  {host}: {why}" for host, why in known if host)))

        def end() -> None:
            folder = self._pending.folder(entry)
            records.ended(records.Events(folder), JobState.FAILED, limit.exit_code, reason)
            folder.caller.unlink(missing_ok=True)

        self._under_lock(entry, end)

    def _tell(self, now: float, begun: Set[str]) -> None:
        """Write why jobs wait, where the words have changed."""
        for place, entry in enumerate(self._order):
            pause = min(max((now - entry.queued_at) * _WORDS_SHARE, _WORDS_SECONDS[0]), _WORDS_SECONDS[1])
            if entry.is_starting or entry.name in begun or now - entry.told_at < pause:
                continue
            if entry.rests_until > now and entry.recorded:
                continue  # its supervisor has just said what it found besides slots
            if not entry.recorded and not self._knows(entry) and now - entry.queued_at < _UNTOLD_SECONDS:
                continue  # it may still turn out that it never fits
            words = self._words(entry) if place < _MOST_TOLD else _FAR_BEHIND
            if words and words != entry.recorded:
                entry.told_at = now

                def tell(entry: PendingJob = entry, words: Words = words) -> None:
                    events = self._events(entry)
                    events.add(state.WAITING, state.FOR_SLOTS, hosts=words)

                self._under_lock(entry, tell)

    def _knows(self, entry: PendingJob) -> bool:
        """Return whether each host of a job has told of its slots, or does not answer."""
        if self._watchers is None or entry.asked is None:
            return False
        told, down = self._watchers.occupancies(), self._watchers.down()
        return all(query in told or query.host in down for _name, query, _most in entry.asked.hosts)

    def _words(self, entry: PendingJob) -> Words:
        """Return why a job waits: per host, and under "" who is before it; nothing as long as hosts have not told."""
        found: List[Tuple[str, str]] = []
        before = self._before(entry)
        if before is not None:
            found.append(("", f"job {before.name} is ahead of it in the queue"))
        if self._watchers is None or entry.asked is None or not self._knows(entry):
            return tuple(found)
        told, down = self._watchers.occupancies(), self._watchers.down()
        constraints = dict(entry.asked.constraints)
        asked = [
            (Host(name, name, slots=most, constraints=constraints.get(query.host, GpuConstraints())), query)
            for name, query, most in entry.asked.hosts
        ]
        seen = {host.name: told[query] for host, query in asked if query in told}
        silent = {host.name: down[query.host] for host, query in asked if query not in told}
        words = partial(occupancy.describe, jobs=self._jobs.path, owner=entry.asked.owner)
        return (*found, *held_up(entry.asked.wanted, [host for host, _query in asked], seen, silent, words))

    def _before(self, entry: PendingJob) -> Optional[PendingJob]:
        """Return the job next before another on any of its hosts."""
        assert entry.asked is not None
        hosts = {query.host for _name, query, _most in entry.asked.hosts}
        found = None
        for other in self._order:
            if other is entry:
                return found
            if other.needs(hosts):
                found = other
        return found


def _quietly(name: str, act: Callable[[], object]) -> None:
    """Do something with one job; what fails, as its files may be damaged, is told in the log, and tried again."""
    try:
        act()
    except (TacoLaunchError, OSError, ValueError, KeyError, TypeError) as error:
        sys.stderr.write(f"job {name}: {error!r}\n")
