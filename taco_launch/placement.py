"""Which hosts a job's ranks run on: all or nothing, in inventory order, pure."""

from collections import Counter
from typing import List, Optional, Sequence

from taco_launch.errors import PlacementError
from taco_launch.model.plans import HostSlots, Placement, Share

# More hosts than this are told by their number.
_MOST_TOLD = 8


def place(np: Optional[int], free: Sequence[HostSlots]) -> Placement:
    """Fill the hosts in the order given until `np` ranks have a slot; None takes every slot.

    Raises:
        PlacementError: there are fewer slots than ranks; the message has both numbers.
    """
    total = sum(entry.slots for entry in free)
    wanted = total if np is None else np
    if wanted > total or wanted < 1:
        raise _refused(wanted, total, free)
    shares: List[Share] = []
    left = wanted
    for entry in free:
        here = min(entry.slots, left)
        if here:
            shares.append(Share(entry.host, here))
        left -= here
    return Placement(tuple(shares), "hosts in the order of -H or the inventory, each filled before the next")


def slots_of(gpus: Optional[int], cpus: Optional[int]) -> Optional[int]:
    """Give how many ranks a host takes whose slots nobody declares: its GPUs, without any max(2, CPUs).

    `cpus` counts hardware threads; None is "not known", and so is the answer where it depends on such a number.
    """
    if gpus is None or gpus > 0:
        return gpus
    return None if cpus is None else max(2, cpus)


def _refused(wanted: int, total: int, free: Sequence[HostSlots]) -> PlacementError:
    ranks = "1 rank does" if wanted == 1 else f"{wanted} ranks do"
    message = f"{ranks} not fit: there {'is' if total == 1 else 'are'} {_slots(total)}"
    fewer = f"ask for at most --np {total}, or " if total else ""
    if len(free) > _MOST_TOLD:
        counts = Counter(entry.slots for entry in free)
        reasons = tuple(
            (f"{hosts} host{'' if hosts == 1 else 's'}", f"{_slots(slots)} each") for slots, hosts in counts.items()
        )
        more = f"{free[0].host}:{free[0].slots + 1},..."
    else:
        reasons = tuple((entry.host, _slots(entry.slots)) for entry in free)
        each, over = divmod(max(0, wanted - total), len(free) or 1)  # shared out alike, the first ones take one more
        given = [entry.slots + each + (index < over) for index, entry in enumerate(free)]
        more = ",".join(f"{entry.host}:{slots}" for entry, slots in zip(free, given))
    return PlacementError(message, reasons, f"{fewer}allow more ranks than cores or GPUs with -H {more}")


def _slots(count: int) -> str:
    return f"{count} slot" if count == 1 else f"{count} slots"
