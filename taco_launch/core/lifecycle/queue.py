"""Choose the waiting jobs that may begin: pure.

First in first out by priority and the time at which a job came into the queue. A later job passes one that waits only
where it cannot delay it, in whatever order the jobs that run may end, or where it ends before that one starts at the latest.
"""

from dataclasses import replace
from itertools import islice
from typing import AbstractSet, Callable, Dict, Hashable, Iterable, List, Mapping, Optional, Sequence, Set, Tuple

from taco_launch.core.frozen import dataclass
from taco_launch.core.lifecycle import slot_fit
from taco_launch.core.lifecycle.slot_fit import Capacities, HostCapacity, Taken, WaitingJob

# A job that has more than so many before it on its hosts waits without a look at each of them.
_MOST_PASSED = 64


@dataclass(frozen=True)
class TimeLimits:
    """Until when holders of slots keep them at the most: those that have a time limit. Seconds since the epoch."""

    now: float = 0.0
    ends: Tuple[Tuple[str, float], ...] = ()


_NO_LIMITS = TimeLimits()


def order(jobs: Iterable[WaitingJob]) -> List[WaitingJob]:
    """Return the jobs in the order in which they begin: the higher priority first, then who came first."""
    return sorted(jobs, key=lambda job: (-job.priority, job.queued_at, job.name))


def begin(
    jobs: Sequence[WaitingJob],
    capacities: Capacities,
    *,
    trying: AbstractSet[str] = frozenset(),
    resting: AbstractSet[str] = frozenset(),
    down: AbstractSet[str] = frozenset(),
    limits: TimeLimits = _NO_LIMITS,
) -> Tuple[str, ...]:
    """Name the jobs that may start now; `jobs` are in their order, `capacities` the hosts whose slots are known.

    Of the jobs in `trying` the hosts are being asked at this moment: nobody behind starts on any of them. Those in
    `resting` are not to start yet. Hosts in `down` do not answer: a job that cannot start without them keeps nobody.
    A job with nobody before it starts unseen when its hosts have not been asked yet, and are not known; so does one that
    can never fit, wherever it stands: it will be refused.
    """
    plan = _SlotPlan(capacities, limits)
    before: List[WaitingJob] = []
    claimed: Set[str] = set()  # by those before
    asked: Set[str] = set()  # by those that are being tried
    found: List[str] = []
    for job in jobs:
        names = [host for host, _most in job.hosts]
        first = claimed.isdisjoint(names)
        if job.name in trying:
            asked.update(names)
        elif job.name in resting:
            pass
        elif not job.tried and slot_fit.never_fits(job, plan.capacities):
            found.append(job.name)
            continue
        elif asked.isdisjoint(names):
            taken = plan.fit(job)
            if taken is not None and (first or may_pass(taken, job, before, plan.capacities, plan.patience)):
                found.append(job.name)
                plan.give(job, taken, limits.now)
                continue
            if first and not job.tried and any(host not in plan.capacities for host in names):
                found.append(job.name)
                asked.update(names)
        if not slot_fit.does_not_block_others(job, plan.capacities, down):
            before.append(job)
            claimed.update(names)
    return tuple(found)


def may_pass(
    taken: Taken,
    job: WaitingJob,
    before: Sequence[WaitingJob],
    capacities: Capacities,
    patience: Callable[[WaitingJob], float] = lambda _job: 0.0,
) -> bool:
    """Return whether a job that would take these slots delays none of those before it, whoever of the holders ends first.

    One of those it may also delay if it ends before that one starts at the latest, `patience` seconds from now (EASY
    backfill, D. Lifka, "The ANL/IBM SP Scheduling System", 1995).

    Let one of those want n slots of its hosts, of which f are free and the job would take b. With the slots s of the
    holders that have ended meanwhile, and t slots of those before it that have started, it starts when f + s - t >= n. Only
    where f + s - t - b < n <= f + s - t for some s and t is it delayed. Every sum of s and t that there may be is a bit
    of a number.
    """
    names = {host for host, _most in job.hosts}
    shares = (other for other in before if not names.isdisjoint(host for host, _most in other.hosts))
    sharing = list(islice(shares, _MOST_PASSED + 1))
    if len(sharing) > _MOST_PASSED:
        return False
    return not any(
        _delays(taken, other, sharing[:index], capacities)
        and not (job.lasts is not None and job.lasts <= patience(other))
        for index, other in enumerate(sharing)
    )


def latest_starts(
    jobs: Sequence[WaitingJob], capacities: Capacities, limits: TimeLimits
) -> Tuple[Optional[float], ...]:
    """Return when each of these jobs is expected to start at the latest, by the time limits; seconds since the epoch.

    Those on the same hosts start in their order. None of one that waits for a job without a limit, and of those behind it.
    """
    plan = _SlotPlan(capacities, limits)
    found: List[Optional[float]] = []
    for job in jobs:
        names = {host for host, _most in job.hosts}
        before = [time for time, other in zip(found, jobs) if not names.isdisjoint(host for host, _most in other.hosts)]
        latest = None if None in before else plan.latest(job)
        found.append(None)
        if latest is None:
            continue
        time, taken = latest
        time = max([time, *(start for start in before if start is not None)])
        found[-1] = time
        plan.give(job, taken, time)
    return tuple(found)


class _SlotPlan:
    """The slots as they are after the jobs so far have started, and where other jobs fit then."""

    def __init__(self, capacities: Capacities, limits: TimeLimits) -> None:
        self.capacities, self._ends, self._now = dict(capacities), dict(limits.ends), limits.now
        # Valid until a job begins. In a long queue many jobs ask for the same.
        self._places: Dict[Hashable, Optional[Taken]] = {}
        self._patiences: Dict[str, float] = {}

    def fit(self, job: WaitingJob) -> Optional[Taken]:
        request = job.wanted, job.hosts, job.constraints, job.leaves
        if request not in self._places:
            self._places[request] = slot_fit.fit(job, self.capacities)
        return self._places[request]

    def patience(self, job: WaitingJob) -> float:
        if job.name not in self._patiences:
            latest = self.latest(job)
            self._patiences[job.name] = 0.0 if latest is None else latest[0] - self._now
        return self._patiences[job.name]

    def latest(self, job: WaitingJob) -> Optional[Tuple[float, Taken]]:
        return _latest(job, self.capacities, self._ends, self._now)

    def give(self, job: WaitingJob, slots: Taken, time: float) -> None:
        for host, taken in slots.items():
            holders = enumerate(self.capacities[host].holders)
            held = tuple(job.name if number in taken else holder for number, holder in holders)
            self.capacities[host] = replace(self.capacities[host], holders=held)
        if job.lasts is not None:
            self._ends[job.name] = time + job.lasts
        self._places.clear()
        self._patiences.clear()


def _latest(
    job: WaitingJob, capacities: Capacities, ends: Mapping[str, float], now: float
) -> Optional[Tuple[float, Taken]]:
    """Return the latest time at which a job fits and the slots that it takes then, if no other takes any; None if unknown.

    `ends` are those of holders, in seconds since the epoch.
    """
    if any(host not in capacities for host, _most in job.hosts):
        return None
    own = {host: capacities[host] for host, _most in job.hosts}
    holders = {holder for capacity in own.values() for holder in capacity.holders}
    due = sorted((ends[holder], holder) for holder in holders if holder in ends)
    low, high = 0, len(due) + 1  # after how many ends it fits
    while low < high:
        middle = (low + high) // 2
        if middle > len(due) or slot_fit.fit(job, _after(own, due[:middle])) is not None:
            high = middle
        else:
            low = middle + 1
    if low > len(due):
        return None
    return max([now, *(end for end, _name in due[:low])]), slot_fit.fit(job, _after(own, due[:low])) or {}


def _after(capacities: Capacities, ends: Sequence[Tuple[float, str]]) -> Dict[str, HostCapacity]:
    """Return the slots of hosts once these holders have ended."""
    gone = {name for _end, name in ends}
    return {
        host: replace(capacity, holders=tuple("" if holder in gone else holder for holder in capacity.holders))
        for host, capacity in capacities.items()
    }


def _delays(taken: Taken, other: WaitingJob, earlier: Sequence[WaitingJob], capacities: Capacities) -> bool:
    """Return whether a job that takes these slots may delay another, which waits behind `earlier`."""
    ours = sum(len(taken.get(host, ())) for host, _most in other.hosts)
    if not ours:
        return False
    np = slot_fit.plain_slot_count(other.wanted)
    if np is None or not all(
        host in capacities and slot_fit.is_plain(capacities[host], most, np) for host, most in other.hosts
    ):
        return True
    if not slot_fit.takes_any(other, capacities):
        return True
    counts: Dict[str, int] = {}
    free = 0
    for host, _most in other.hosts:
        free += capacities[host].holders.count("")
        for holder in filter(None, capacities[host].holders):
            counts[holder] = counts.get(holder, 0) + 1
    ended = 1
    for count in counts.values():
        ended |= ended << count
    wanted = _begun(other, earlier, free + sum(counts.values()))
    low = np - free
    while wanted:
        bit = wanted & -wanted
        wanted ^= bit
        at = low + bit.bit_length() - 1
        if (ended >> max(at, 0)) & ((1 << max(ours + min(at, 0), 0)) - 1):
            return True
    return False


def _begun(job: WaitingJob, earlier: Sequence[WaitingJob], most: int) -> int:
    """Return the bits of how many of a job's slots those before it may have, once some of them have started."""
    sums = 1
    for other in earlier:
        np = slot_fit.plain_slot_count(other.wanted)
        if other.hosts == job.hosts and np is not None:
            sums |= sums << np
        elif not {host for host, _most in other.hosts}.isdisjoint(host for host, _most in job.hosts):
            count = most if np is None else min(np, most)
            for number in range(count.bit_length()):  # every count up to that one
                sums |= sums << min(1 << number, count)
            sums |= sums << count
    return sums & ((1 << (most + 1)) - 1)
