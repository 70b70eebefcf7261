"""Which hosts a job's ranks run on: all or nothing, in inventory order, pure."""

from typing import List, Optional, Sequence

from taco_launch.errors import PlacementError
from taco_launch.model.plans import HostSlots, Placement, Share


def place(np: Optional[int], free: Sequence[HostSlots]) -> Placement:
    """Fill the hosts in the order given until `np` ranks have a slot; None takes every slot.

    Raises:
        PlacementError: there are fewer slots than ranks; the message has both numbers.
    """
    total = sum(entry.slots for entry in free)
    wanted = total if np is None else np
    if wanted > total or wanted < 1:
        reasons = tuple((entry.host, _slots(entry.slots)) for entry in free)
        names = ",".join(f"{entry.host}:{wanted if index == 0 else entry.slots}" for index, entry in enumerate(free))
        raise PlacementError(
            f"{'1 rank does' if wanted == 1 else f'{wanted} ranks do'} not fit: there "
            f"{'is' if total == 1 else 'are'} {_slots(total)}",
            reasons,
            hint=(f"ask for at most --np {total}, or " if total else "")
            + f"allow more ranks than cores or GPUs with -H {names}",
        )
    shares: List[Share] = []
    left = wanted
    for entry in free:
        here = min(entry.slots, left)
        if here:
            shares.append(Share(entry.host, here))
        left -= here
    return Placement(tuple(shares), "hosts in inventory order, each filled before the next")


def _slots(count: int) -> str:
    return f"{count} slot" if count == 1 else f"{count} slots"
