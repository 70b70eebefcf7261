"""Find slots for a job that waits, among those of its hosts that are free: pure."""

from typing import AbstractSet, Callable, List, Mapping, Optional, Sequence, Set, Tuple

from taco_launch.core.errors import PlacementError
from taco_launch.core.frozen import dataclass
from taco_launch.core.model.host.hosts import GpuConstraints
from taco_launch.core.model.plans import FreeSlots, Placement, SlotRequest
from taco_launch.core.placement.gpu_constraints import numbers, place_of_one

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


def plain_slot_count(wanted: SlotRequest) -> Optional[int]:
    """Return the number of slots if any of them will do; None if the job counts hosts or workers, or wants all slots."""
    counted = wanted.hosts is not None or wanted.slots_per_host is not None or wanted.most_per_host is not None
    return wanted.np if not counted and not wanted.exclusive and wanted.unit == 1 else None


def _wants_every_host(wanted: SlotRequest) -> bool:
    return wanted.hosts is None and (wanted.np is None or wanted.slots_per_host is not None)


def is_plain(capacity: HostCapacity, most: Optional[int], np: int) -> bool:
    """Return whether all free slots of a host count for a job, which takes `most` of it: so it is where those are enough."""
    return most is None or most >= min(len(capacity.holders), np)


def takes_any(job: WaitingJob, capacities: Capacities) -> bool:
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


def fit(job: WaitingJob, capacities: Capacities) -> Optional[Taken]:
    """Return the slots that a job would take now, None where it finds no place."""
    view = _view(job, capacities)
    if (plain_slot_count(job.wanted) or 0) > sum(entry.slots for entry in view):
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


def never_fits(job: WaitingJob, capacities: Capacities) -> bool:
    """Return whether a job has too few slots even if all were free; False if the slots of a host are not known."""
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


def does_not_block_others(job: WaitingJob, capacities: Capacities, down: AbstractSet[str]) -> bool:
    """Return whether a job cannot start before a host returns that does not answer."""
    if not down or down.isdisjoint(host for host, _most in job.hosts):
        return False
    if any(host not in capacities and host not in down for host, _most in job.hosts):
        return False
    if _wants_every_host(job.wanted):
        return True

    def whole(model: str) -> List[FreeSlots]:
        return [FreeSlots(entry.host, entry.all) for entry in _view(job, capacities, model)]

    return _placed(job, capacities, whole) is None
