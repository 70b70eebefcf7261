"""Choose the waiting jobs that may begin: pure.

First in first out by priority and the time at which a job came into the queue. A later job passes one that waits only
where it cannot delay it, in whatever order the jobs that run may end, or where it ends before that one starts at the latest.
"""

from dataclasses import replace
from typing import AbstractSet, Callable, Dict, Iterable, List, Mapping, Optional, Sequence, Set, Tuple

from taco_launch.core.errors import PlacementError
from taco_launch.core.frozen import dataclass
from taco_launch.core.model.host.hosts import GpuConstraints
from taco_launch.core.model.plans import FreeSlots, Placement, SlotRequest
from taco_launch.core.placement.gpu_constraints import numbers, place_of_one

# A job that has more than so many before it on its hosts waits without a look at each of them.
_MOST_PASSED = 64

_ANY = GpuConstraints()


@dataclass(frozen=True)
class HostCapacity:
    """The slots of a host in their order: who holds each, "" where it is free.

    The first ones are its GPUs: `models` has the name of each, "" where it is not known.
    """

    holders: Tuple[str, ...]
    models: Tuple[str, ...] = ()


Capacities = Mapping[str, HostCapacity]
# The numbers of the slots that a job would take on each host.
Taken = Mapping[str, Tuple[int, ...]]


@dataclass(frozen=True)
class WaitingJob:
    """A job that waits: what it asks for, on which hosts, and the most slots that it takes of each (None: all).

    `constraints` are those of hosts of which it may not have every GPU, or GPUs of several models; `leaves` the leaves of hosts
    as far as they are known. `queued_at` is when it came into the queue, `lasts` the most seconds that it holds its slots
    (None: no limit). `tried` says that its hosts have been asked already, and had no place, or that it was told to wait.
    """

    name: str
    priority: int
    queued_at: float
    wanted: SlotRequest
    hosts: Tuple[Tuple[str, Optional[int]], ...]
    tried: bool = False
    constraints: Tuple[Tuple[str, GpuConstraints], ...] = ()
    leaves: Tuple[Tuple[str, str], ...] = ()
    lasts: Optional[float] = None


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
    capacities = dict(capacities)
    ends = dict(limits.ends)
    patiences: Dict[str, float] = {}  # valid until a job begins

    def patience(other: WaitingJob) -> float:
        if other.name not in patiences:
            latest = _latest(other, capacities, ends, limits.now)
            patiences[other.name] = 0.0 if latest is None else latest[0] - limits.now
        return patiences[other.name]

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
        elif not job.tried and _never_fits(job, capacities):
            found.append(job.name)
            continue
        elif asked.isdisjoint(names):
            taken = _fit(job, capacities)
            if taken is not None and (first or may_pass(taken, job, before, capacities, patience)):
                found.append(job.name)
                _hold(capacities, taken, job.name)
                if job.lasts is not None:
                    ends[job.name] = limits.now + job.lasts
                patiences.clear()
                continue
            if first and not job.tried and any(host not in capacities for host in names):
                found.append(job.name)
                asked.update(names)
        if not _does_not_block_others(job, capacities, down):
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
    sharing = [other for other in before if not names.isdisjoint(host for host, _most in other.hosts)]
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
    capacities, ends = dict(capacities), dict(limits.ends)
    found: List[Optional[float]] = []
    for job in jobs:
        names = {host for host, _most in job.hosts}
        before = [time for time, other in zip(found, jobs) if not names.isdisjoint(host for host, _most in other.hosts)]
        latest = None if None in before else _latest(job, capacities, ends, limits.now)
        found.append(None)
        if latest is None:
            continue
        time, taken = latest
        time = max([time, *(start for start in before if start is not None)])
        found[-1] = time
        _hold(capacities, taken, job.name)
        if job.lasts is not None:
            ends[job.name] = time + job.lasts
    return tuple(found)


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
        if middle > len(due) or _fit(job, _after(own, due[:middle])) is not None:
            high = middle
        else:
            low = middle + 1
    if low > len(due):
        return None
    return max([now, *(end for end, _name in due[:low])]), _fit(job, _after(own, due[:low])) or {}


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
    np = _plain_slot_count(other.wanted)
    if np is None or not all(
        host in capacities and _is_plain(capacities[host], most, np) for host, most in other.hosts
    ):
        return True
    if not _takes_any(other, capacities):
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
        np = _plain_slot_count(other.wanted)
        if other.hosts == job.hosts and np is not None:
            sums |= sums << np
        elif not {host for host, _most in other.hosts}.isdisjoint(host for host, _most in job.hosts):
            count = most if np is None else min(np, most)
            for number in range(count.bit_length()):  # every count up to that one
                sums |= sums << min(1 << number, count)
            sums |= sums << count
    return sums & ((1 << (most + 1)) - 1)


def _plain_slot_count(wanted: SlotRequest) -> Optional[int]:
    """Return the number of slots if any of them will do; None if the job counts hosts or workers, or wants all slots."""
    counted = wanted.hosts is not None or wanted.slots_per_host is not None or wanted.most_per_host is not None
    return wanted.np if not counted and not wanted.exclusive and wanted.unit == 1 else None


def _wants_every_host(wanted: SlotRequest) -> bool:
    return wanted.hosts is None and (wanted.np is None or wanted.slots_per_host is not None)


def _is_plain(capacity: HostCapacity, most: Optional[int], np: int) -> bool:
    """Return whether all free slots of a host count for a job, which takes `most` of it: so it is where those are enough."""
    return most is None or most >= min(len(capacity.holders), np)


def _takes_any(job: WaitingJob, capacities: Capacities) -> bool:
    """Return whether any slots of its hosts will do for a job, of one number: it may have all, and they are of one model."""
    constraints = dict(job.constraints)
    models: Set[str] = set()
    for host, _most in job.hosts:
        capacity, its = capacities[host], constraints.get(host, _ANY)
        if len(_numbers(capacity, its)) < len(capacity.holders):
            return False
        if not its.models:
            models.update(filter(None, capacity.models))
    return len(models) < 2 or job.wanted.np == 1


def _view(job: WaitingJob, capacities: Capacities, model: str = "") -> List[FreeSlots]:
    """Return what a job may take of the hosts whose slots are known, where it takes GPUs of that model."""
    found = []
    constraints, leaves = dict(job.constraints), dict(job.leaves)
    for host, most in job.hosts:
        if host in capacities:
            capacity = capacities[host]
            may = _numbers(capacity, constraints.get(host, _ANY), model)
            every = len(may) == len(capacity.holders)
            free = capacity.holders.count("") if every else sum(not capacity.holders[number] for number in may)
            if job.wanted.exclusive and any(capacity.holders):
                free = 0
            bound = len(may) if most is None else most
            found.append(FreeSlots(host, min(free, bound), min(len(may), bound), leaf=leaves.get(host)))
    return found


def _numbers(capacity: HostCapacity, constraints: GpuConstraints, model: str = "") -> Tuple[int, ...]:
    """Return the slots of a host that a job may have, where it takes GPUs of that model."""
    found = numbers(constraints, len(capacity.holders), capacity.models)
    if not model or not any(capacity.models):
        return found
    return tuple(number for number in found if number < len(capacity.models) and capacity.models[number] == model)


def _placed(
    job: WaitingJob, capacities: Capacities, view: Callable[[str], Sequence[FreeSlots]]
) -> Optional[Tuple[Placement, str]]:
    """Place a job on GPUs of one model, as the gang does; give the model where there are several. None: nowhere."""
    constraints = dict(job.constraints)

    def models(host: str) -> List[str]:
        capacity = capacities.get(host, HostCapacity(()))
        may = _numbers(capacity, constraints.get(host, _ANY))
        return [capacity.models[number] for number in may if number < len(capacity.models) and capacity.models[number]]

    try:
        found, model = place_of_one(
            job.wanted, view(""), {host for host, its in job.constraints if its.models}, models, view
        )
    except PlacementError:
        return None
    return found, model or ""


def _fit(job: WaitingJob, capacities: Capacities) -> Optional[Taken]:
    """Return the slots that a job would take now, None where it finds no place."""
    view = _view(job, capacities)
    if (_plain_slot_count(job.wanted) or 0) > sum(entry.slots for entry in view):
        return None
    if len(view) < len(job.hosts) and _wants_every_host(job.wanted):
        return None
    placed = _placed(job, capacities, lambda model: _view(job, capacities, model) if model else view)
    if placed is None:
        return None
    placement, model = placed
    found = {}
    constraints = dict(job.constraints)
    for share in placement.shares:
        capacity = capacities[share.host]
        free = [
            number
            for number in _numbers(capacity, constraints.get(share.host, _ANY), model)
            if not capacity.holders[number]
        ]
        found[share.host] = tuple(range(len(capacity.holders)) if job.wanted.exclusive else free[: share.ranks])
    return found


def _never_fits(job: WaitingJob, capacities: Capacities) -> bool:
    """Return whether there are too few slots even if nobody had any of them; not where that is not known of a host."""
    if any(most is None and host not in capacities for host, most in job.hosts):
        return False
    constraints = dict(job.constraints)

    def size(host: str, most: Optional[int], model: str) -> int:
        if host not in capacities:
            return most or 0
        may = len(_numbers(capacities[host], constraints.get(host, _ANY), model))
        if may < len(capacities[host].holders):
            return may if most is None else min(may, most)
        return may if most is None else most

    return (
        _placed(job, capacities, lambda model: [FreeSlots(host, size(host, most, model)) for host, most in job.hosts])
        is None
    )


def _does_not_block_others(job: WaitingJob, capacities: Capacities, down: AbstractSet[str]) -> bool:
    """Return whether a job cannot start before a host returns that does not answer."""
    if down.isdisjoint(host for host, _most in job.hosts):
        return False
    if any(host not in capacities and host not in down for host, _most in job.hosts):
        return False
    if _wants_every_host(job.wanted):
        return True

    def whole(model: str) -> List[FreeSlots]:
        return [FreeSlots(entry.host, entry.all) for entry in _view(job, capacities, model)]

    return _placed(job, capacities, whole) is None


def _hold(capacities: Dict[str, HostCapacity], slots: Taken, name: str) -> None:
    for host, taken in slots.items():
        held = tuple(name if number in taken else holder for number, holder in enumerate(capacities[host].holders))
        capacities[host] = replace(capacities[host], holders=held)
