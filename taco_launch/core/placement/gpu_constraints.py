"""Which slots of a host a job may have at all, by index and model, and that its GPUs are of one model: pure."""

import functools
from collections import Counter
from dataclasses import replace
from typing import AbstractSet, Callable, Dict, List, Mapping, Optional, Sequence, Set, Tuple

from taco_launch.core.errors import PlacementError
from taco_launch.core.model.host.hosts import GpuConstraints, Host
from taco_launch.core.model.host.mig import MIG
from taco_launch.core.model.plans import FreeSlots, Placement, SlotRequest
from taco_launch.core.model.slots import Occupancy
from taco_launch.core.placement.hosts import place

SEVERAL_MODELS = "the job fits only on GPUs of several models"


def allowed(constraints: GpuConstraints, found: Occupancy) -> Tuple[int, ...]:
    """Return the numbers of the slots that a job may have, whoever has them now.

    GPUs that are divided into instances (MIG) are had by name alone; slots beyond the GPUs, where none are requested.
    """
    return numbers(constraints, len(found.slots), models_of(found))


@functools.lru_cache(maxsize=1 << 12)
def numbers(constraints: GpuConstraints, slots: int, models: Tuple[str, ...]) -> Tuple[int, ...]:
    """Return the same by the number of a host's slots and the models of its GPUs, as `models_of` gives them."""
    beyond = not constraints.only and not constraints.models and not constraints.gpus
    return tuple(
        number
        for number in range(slots)
        if (_is_of(constraints, models[number]) and constraints.admits(number) if number < len(models) else beyond)
    )


def models_of(found: Occupancy) -> Tuple[str, ...]:
    """Return the model of each GPU of a host, "" where it is not known."""
    known = found.models[: found.gpus]
    return (*known, *[""] * (found.gpus - len(known)))


def host_slots(host: Host, found: Occupancy, words: Callable[[Occupancy], str], *, exclusive: bool) -> FreeSlots:
    """Return what a job may take of a host; `words` says of an occupancy who has the slots that are not free."""
    numbers = allowed(host.constraints, found)
    seen = replace(found, slots=tuple(found.slots[number] for number in numbers))
    most = min(len(numbers), host.slots or len(numbers))
    free = min(seen.free, most)
    if exclusive and found.free < len(found.slots):
        return FreeSlots(
            host.name, 0, most, f"{words(found)}, and --exclusive requires a host without other jobs", host.leaf
        )
    why = words(seen) if free < most else ""
    lacks = _lacks(host.constraints, found) if len(numbers) < len(found.slots) else ""
    return FreeSlots(host.name, free, most, why, host.leaf, lacks=lacks)


def place_alike(
    wanted: SlotRequest, hosts: Sequence[Host], free: Sequence[FreeSlots], found: Mapping[str, Occupancy]
) -> Tuple[Placement, Tuple[str, ...]]:
    """Place a job on GPUs of one model, unless it names models; give the one that it is of, too.

    `free` is what it may take of the hosts, of whatever model, and it fits there.

    Raises:
        PlacementError: it fits on GPUs of several models only; says which there are.
    """
    by_name = {host.name: host for host in hosts}

    def models(host: str) -> Tuple[str, ...]:
        return _models(by_name[host], found[host]) if host in found else ()

    def only(model: str) -> List[FreeSlots]:
        return [_only(by_name[entry.host], model, entry, found) for entry in free]

    placement, model = place_of_one(
        wanted, free, {host.name for host in hosts if host.constraints.models}, models, only
    )
    return placement, () if model is None else (model,)


def place_of_one(
    wanted: SlotRequest,
    free: Sequence[FreeSlots],
    named: AbstractSet[str],
    models: Callable[[str], Sequence[str]],
    only: Callable[[str], Sequence[FreeSlots]],
) -> Tuple[Placement, Optional[str]]:
    """Do the same by the models of the GPUs that the job may have of a host; give the model where there are several.

    On the hosts in `named` any will do, and so they will for a single rank. `only` gives what it may take of all hosts
    where it takes GPUs of one model.

    Raises:
        PlacementError: as above.
    """
    placement = place(wanted, free)
    taken = dict.fromkeys(
        model for share in placement.shares if share.host not in named for model in models(share.host)
    )
    if len(taken) < 2 or placement.np < 2:
        return placement, None
    never = True
    fits: List[Tuple[Placement, str]] = []
    for model in taken:
        try:
            fits.append((place(wanted, only(model)), model))
        except PlacementError as error:
            never = never and error.never
    if fits:  # the first, but where as many hosts as can be had are wanted
        return max(fits, key=lambda fit: 0 if wanted.least is None else len(fit[0].shares))
    counts = ((entry.host, Counter(models(entry.host))) for entry in free)
    reasons = tuple((host, ", ".join(f"{its[model]} {model}" for model in its)) for host, its in counts)
    hint = "--gpu-model NAME uses GPUs of one model only; repeat it for each model that the job may have"
    raise PlacementError(SEVERAL_MODELS, reasons, hint, never=never)


def shared(hosts: Sequence[Host], placement: Placement, found: Mapping[str, Occupancy]) -> Dict[int, Tuple[int, ...]]:
    """Return the indices that are free on all hosts that a job takes as many slots of, by that number."""
    by_name = {host.name: host for host in hosts}
    free: Dict[int, Set[int]] = {}
    for share in placement.shares:
        if share.host in found:
            here = found[share.host]
            numbers = {
                number for number in allowed(by_name[share.host].constraints, here) if here.slots[number].is_free
            }
            free[share.ranks] = free.get(share.ranks, numbers) & numbers
    return {ranks: tuple(sorted(numbers)) for ranks, numbers in free.items()}


def _is_of(constraints: GpuConstraints, name: str) -> bool:
    """Return whether a GPU of that name is of a model that is wanted."""
    if not constraints.models:
        return not name.endswith(MIG)
    return any(model.lower() in name.lower() for model in constraints.models)


def _models(host: Host, found: Occupancy) -> Tuple[str, ...]:
    """Return the models of the GPUs of a host that the job may have."""
    return tuple(found.models[number] for number in allowed(host.constraints, found) if number < len(found.models))


def _only(host: Host, model: str, entry: FreeSlots, found: Mapping[str, Occupancy]) -> FreeSlots:
    """Return what a job may take of a host where it takes GPUs of one model."""
    if host.name not in found or not found[host.name].models:
        return entry
    numbers = [
        number for number in allowed(host.constraints, found[host.name]) if _name(found[host.name], number) == model
    ]
    free = sum(found[host.name].slots[number].is_free for number in numbers)
    return replace(entry, slots=min(entry.slots, free), total=min(entry.all, len(numbers)))


def _name(found: Occupancy, number: int) -> str:
    return found.models[number] if number < len(found.models) else ""


def _lacks(constraints: GpuConstraints, found: Occupancy) -> str:
    """Return why a job may not have all slots of a host."""
    gpus = range(min(found.gpus, len(found.slots)))
    reasons = []
    missing = [index for index in constraints.only if index not in gpus]
    if missing:
        reasons.append(f"there is no GPU {_listed(missing)}")
    elif constraints.only:
        reasons.append(f"only its GPUs {_listed(constraints.only)} may be used")
    if constraints.without:
        reasons.append(f"without GPU {_listed(constraints.without)}")
    others = [index for index in gpus if not _is_of(constraints, _name(found, index))]
    if others and not constraints.models:
        reasons.append(f"GPU {_listed(others)}: MIG mode is on; --gpu-model MIG uses them anyway")
    elif others:
        names = ", ".join(dict.fromkeys(_name(found, index) or "of an unknown model" for index in others))
        reasons.append(f"GPU {_listed(others)}: {names}, not {' or '.join(constraints.models)}")
    elif constraints.models and not gpus:
        reasons.append(f"there is no GPU, and {' or '.join(constraints.models)} is requested")
    elif constraints.gpus and not constraints.only:
        reasons.append(f"it has {len(gpus) or 'no'} GPU{'' if len(gpus) == 1 else 's'}, and --gpus counts only GPUs")
    return "; ".join(reasons)


def _listed(indices: Sequence[int]) -> str:
    return ",".join(map(str, indices))
