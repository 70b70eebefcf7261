"""Run the queue of a state folder: start supervisors for jobs that may begin, and keep their time limits.

It runs only while a job waits, or something is due within the hour, and keeps nothing that the jobs' folders do not say:
whoever starts the next one continues where it was. See scheduler_wakeup.py for who does.
"""

import itertools
import os
import select
import signal
import sys
import threading
import time
from functools import partial
from typing import TYPE_CHECKING, AbstractSet, Callable, Dict, List, Mapping, Optional, Sequence, Set, Tuple

from taco_launch.agent.gang.placement_errors import held_up
from taco_launch.agent.host import occupancy
from taco_launch.agent.scheduler.job_starter import JobStarter, quietly
from taco_launch.agent.scheduler.pending import SCAN_SECONDS, PendingJob, ResourceRequest, Words, slots_to_watch
from taco_launch.agent.scheduler.slot_watch import SlotWatchers
from taco_launch.agent.store import records
from taco_launch.agent.store.folders import Jobs, state_folder
from taco_launch.agent.upkeep import recovery, removal, scheduler_wakeup
from taco_launch.core.errors import OK
from taco_launch.core.lifecycle import state
from taco_launch.core.lifecycle.waits import WaitLimit
from taco_launch.core.model.host.hosts import GpuConstraints, Host
from taco_launch.core.model.jobs import JobState

if TYPE_CHECKING:
    from taco_launch.agent.scheduler.slurm_queue import SlurmQueue

# How often it is looked whether jobs that run have their supervisors.
_SUPERVISED_SECONDS = 10.0
# A job's words are written no more often, the longer it waits the less so; and follow changes only for the first so many.
_WORDS_SECONDS, _MOST_TOLD = (1.0, 60.0), 20
_WORDS_SHARE = 0.01
# A new job is told that it waits once its hosts have told of their slots, or after so long.
_UNTOLD_SECONDS = 5.0
_GIVES_UP = "gives up waiting at"
_FAR_BEHIND = (("", f"more than {_MOST_TOLD} jobs are ahead of it in the queue"),)


def main(agent: str, lock: Optional[int] = None, keeper: Optional[int] = None) -> int:
    """Schedule until nothing is pending; `lock` is the descriptor of the lock, where it was handed over by the process `keeper`."""
    jobs = Jobs(state_folder(os.environ, os.geteuid()))
    lock = scheduler_wakeup.try_lock(jobs) if lock is None else lock
    if lock is None:
        return OK
    for number in (signal.SIGHUP, signal.SIGINT):
        signal.signal(number, signal.SIG_IGN)
    with scheduler_wakeup.listen(jobs) as server:
        scheduler = Scheduler(jobs, agent, SlotWatchers(agent))
        changed: Optional[AbstractSet[str]] = None
        while True:
            pause = scheduler.step(time.time(), changed)
            if pause is None or os.getppid() != (keeper or os.getppid()):  # killed: the next scheduler has one again
                break
            poll = select.poll()
            for descriptor in (server.fileno(), *scheduler.descriptors()):
                poll.register(descriptor, select.POLLIN)
            ready = [descriptor for descriptor, _event in poll.poll(pause * 1000)]
            changed = scheduler_wakeup.changed_jobs(server)
            scheduler.read(ready)
        scheduler.close()
    os.close(lock)
    scheduler_wakeup.ensure(jobs, agent)  # what came after the last look found the lock taken
    return OK


def admit(jobs: Jobs, agent: str, name: str) -> None:
    """Start a new job if no other waits before it. If a scheduler runs, notify it instead."""
    lock = scheduler_wakeup.try_lock(jobs)
    if lock is None:
        scheduler_wakeup.notify(jobs, name)
        return
    starter, now = JobStarter(jobs), time.time()
    starter.look(now)
    starter.begin(now, {}, {})
    if any(entry.is_pending(now) and not entry.is_starting for entry in starter.entries()):
        scheduler_wakeup.start(jobs, agent, lock)
        return
    starter.await_elsewhere()
    os.close(lock)
    scheduler_wakeup.ensure(jobs, agent)


class Scheduler:
    """The queue of a state folder, with what the hosts of its jobs report about their slots."""

    def __init__(self, jobs: Jobs, agent: str, watchers: SlotWatchers) -> None:
        """Know nothing yet: the first step reads it."""
        self._jobs = jobs
        self._agent = agent
        self._watchers = watchers
        self._starter = JobStarter(jobs)
        self._pending = self._starter.pending
        self._slurm: Optional[SlurmQueue] = None
        self._aside: Dict[str, threading.Thread] = {}
        self._supervised_at = 0.0
        self._held_up: Dict[ResourceRequest, Words] = {}  # in one step, in which many jobs may ask for the same

    def descriptors(self) -> List[int]:
        """Return what can be read when there is something new."""
        return self._watchers.descriptors()

    def read(self, ready: Sequence[int]) -> None:
        """Take in what hosts report."""
        self._watchers.read(ready)

    def close(self) -> None:
        """Watch no host any more."""
        self._watchers.close()

    def step(self, now: float, changed: Optional[AbstractSet[str]] = None) -> Optional[float]:
        """Do what is to be done now; return the seconds after which to look again, None where nothing is pending.

        `changed` are the jobs that have changed as far as others told of it; None: any may have.
        """
        self._aside = {name: thread for name, thread in self._aside.items() if thread.is_alive()}
        self._held_up.clear()
        self._starter.look(now, changed)
        self._keep(now)
        self._give_to_slurm(now)
        begun = self._starter.begin(now, self._watchers.occupancies(), self._watchers.down())
        waits = (entry for entry in self._starter.order if entry.process is None and not entry.foreign)
        self._watchers.want(slots_to_watch(waits), time.monotonic())
        for entry in self._starter.entries():
            if entry.limit is not None and entry.is_waiting and entry.name not in begun:
                self._end_of_time(entry, entry.limit, now)
        self._tell(now, begun)
        return self._pause(now)

    # -- what exists

    def _pause(self, now: float) -> Optional[float]:
        entries = self._starter.entries()
        if not self._aside and not any(entry.is_pending(now) for entry in entries):
            return None
        due = [self._pending.scanned_at + SCAN_SECONDS, *([] if self._slurm is None else self._slurm.due())]
        due += [
            time_
            for entry in entries
            for time_ in (entry.begins_at, entry.rests_until, entry.blocked_until, entry.removes_at)
            if time_ and time_ > now
        ]
        due += [entry.limit.time for entry in entries if entry.limit is not None and entry.limit.time > now]
        return max(min(due) - now, 0.01)

    def _give_to_slurm(self, now: float) -> None:
        """Look after the jobs that Slurm decides on, where there are any."""
        if self._slurm is None and self._pending.has_slurm:
            from taco_launch.agent.scheduler.slurm_queue import SlurmQueue  # noqa: PLC0415 - other queues need none of it

            self._slurm = SlurmQueue(self._starter)
        if self._slurm is not None:
            self._slurm.step(now)

    def _keep(self, now: float) -> None:
        """Have slots looked for that are let go, remove records, and see that jobs that run have a supervisor."""
        if self._pending.freed:
            self._pending.freed = False
            self._watchers.nudge()
            for entry in self._starter.entries():
                if entry.is_starting:  # it may have looked just before, and is not to rest for that
                    entry.seen = False
                if entry.rest:  # what it missed besides slots, such as a port, may have been let go with them
                    entry.rests_until = now
        for entry in self._starter.entries():
            if entry.removes_at is not None and entry.removes_at <= now:
                self._run_aside(entry, lambda entry=entry: self._remove(entry))  # type: ignore[misc]
        if now - self._supervised_at > _SUPERVISED_SECONDS:
            self._supervised_at = now
            for entry in self._starter.entries():
                runs = entry.state is not None and not entry.state.waits and not entry.state.is_terminal
                if runs and not scheduler_wakeup.is_locked(self._pending.folder(entry)):
                    self._run_aside(entry, lambda entry=entry: recovery.current_record(self._pending.folder(entry)))  # type: ignore[misc]

    def _run_aside(self, entry: PendingJob, act: Callable[[], object]) -> None:
        """Do what may take as long as hosts do not answer, while the queue continues."""
        if entry.name not in self._aside:
            thread = threading.Thread(target=quietly, args=(entry.name, act), daemon=True)
            self._aside[entry.name] = thread
            thread.start()

    def _remove(self, entry: PendingJob) -> None:
        for warning in removal.remove(self._jobs, self._agent, self._pending.folder(entry)):
            sys.stderr.write(f"{warning}\n")

    # -- who waits

    def _end_of_time(self, entry: PendingJob, limit: WaitLimit, now: float) -> None:
        """End a job whose time is over, for waiting or for all of its attempts."""
        if limit.time > now or entry.is_starting:
            return
        at_once = entry.asked is not None and entry.asked.policy.queue_timeout == 0
        if at_once and (any(other.is_starting for other in self._starter.entries()) or not self._knows(entry)):
            return  # it may still turn out that it need not wait
        known = self._words(entry) or entry.recorded
        # As a refusal: a line for each host.
        before = [f"; {why}" for host, why in known if not host and not why.startswith(_GIVES_UP)]
        reason = "".join((limit.reason, *before, *(f"\n  {host}: {why}" for host, why in known if host)))

        def end() -> None:
            folder = self._pending.folder(entry)
            recovery.tell_slurm(folder, "cancel")
            records.ended(records.Events(folder), JobState.FAILED, limit.exit_code, reason)
            folder.caller.unlink(missing_ok=True)

        self._starter.under_lock(entry, end)

    def _tell(self, now: float, begun: Set[str]) -> None:
        """Write why jobs wait, where the words have changed."""
        latest: Optional[Mapping[str, float]] = None
        for place, entry in enumerate(self._starter.order):
            if place >= _MOST_TOLD and entry.recorded == _FAR_BEHIND:
                continue
            pause = min(max((now - entry.queued_at) * _WORDS_SHARE, _WORDS_SECONDS[0]), _WORDS_SECONDS[1])
            if entry.is_starting or entry.name in begun or now - entry.told_at < pause:
                continue
            if entry.rests_until > now and entry.recorded:
                continue  # its supervisor has just said what it found besides slots
            if not entry.recorded and not self._knows(entry) and now - entry.queued_at < _UNTOLD_SECONDS:
                continue  # it may still turn out that it never fits
            if latest is None:
                latest = self._starter.latest_starts(_MOST_TOLD, self._watchers.occupancies())
            words = self._words(entry, latest.get(entry.name)) if place < _MOST_TOLD else _FAR_BEHIND
            if words and words != entry.recorded:
                entry.told_at = now

                def tell(entry: PendingJob = entry, words: Words = words) -> None:
                    events = self._starter.events(entry)
                    events.add(state.WAITING, state.FOR_SLOTS, hosts=words)

                self._starter.under_lock(entry, tell)

    def _knows(self, entry: PendingJob) -> bool:
        """Return whether each host of a job has told of its slots, or does not answer."""
        if entry.asked is None:
            return False
        told, down = self._watchers.occupancies(), self._watchers.down()
        return all(query in told or query.host in down for _name, query, _most in entry.asked.hosts)

    def _words(self, entry: PendingJob, latest: Optional[float] = None) -> Words:
        """Return why a job waits: per host, and under "" who is before it; nothing as long as hosts have not told.

        `latest` is by when it is expected to start, in seconds since the epoch; None if that is unknown.
        """
        found: List[Tuple[str, str]] = []
        before = self._before(entry)
        if before:
            others = f" and {len(before) - 3} more" if len(before) > 3 else ""
            found.append(("", f"number {len(before) + 1} in the queue, behind {', '.join(before[:3])}{others}"))
        due = entry.limit.time if entry.limit is not None and entry.limit.is_of_queue else None
        if due is not None:
            found.append(("", f"{_GIVES_UP} {occupancy.clock(due, '%H:%M:%S')} (--queue-timeout)"))
        if latest is not None and (due is None or latest < due):
            found.append(
                ("", f"expected to start by {occupancy.clock(latest)}, by the time limits of the jobs before it")
            )
        if entry.asked is None or not self._knows(entry):
            return tuple(found)
        if entry.asked not in self._held_up:
            self._held_up[entry.asked] = tuple(self._find_held_up(entry.asked))
        return (*found, *self._held_up[entry.asked])

    def _find_held_up(self, request: ResourceRequest) -> Sequence[Tuple[str, str]]:
        """Return why its hosts have no slots for a job, where each has told of them, or does not answer."""
        told, down = self._watchers.occupancies(), self._watchers.down()
        constraints = dict(request.constraints)
        asked = [
            (Host(name, name, slots=most, constraints=constraints.get(query.host, GpuConstraints())), query)
            for name, query, most in request.hosts
        ]
        seen = {host.name: told[query] for host, query in asked if query in told}
        silent = {host.name: down[query.host] for host, query in asked if query not in told}
        words = partial(occupancy.describe, jobs=self._jobs.path, owner=request.owner)
        return held_up(request.wanted, [host for host, _query in asked], seen, silent, words)

    def _before(self, entry: PendingJob) -> List[str]:
        """Return the names of the jobs before another on any of its hosts, the next one last."""
        assert entry.asked is not None
        hosts = {query.host for _name, query, _most in entry.asked.hosts}
        before = itertools.takewhile(lambda other: other is not entry, self._starter.order)
        return [other.name for other in before if other.needs(hosts)]
