"""Leaves, the switches of the network that hosts are connected to: the fewest that suffice, and hosts in their order.

NCCL's rings follow the order of ranks, and ranks that of the hosts: so the hosts of a leaf stand together. Hosts whose
leaf is not known are taken to be on one of their own, all of them together.
"""

from itertools import accumulate
from typing import Dict, List, Mapping, Optional, Sequence, Tuple

from taco_launch.model.plans import HostSlots


def arranged(hosts: Sequence[HostSlots], gives: Mapping[str, int], need: int) -> Tuple[HostSlots, ...]:
    """Give the hosts, those of the fewest leaves that together give `need` first, leaf after leaf.

    `gives` is by host. Of as few leaves the earlier ones are taken, in the order of the hosts; all of them where not
    even all suffice. Among the hosts of a leaf their order stays.
    """
    leaves: Dict[Optional[str], List[HostSlots]] = {}
    for entry in hosts:
        leaves.setdefault(entry.leaf, []).append(entry)
    if len(leaves) == 1:
        return tuple(hosts)
    members = list(leaves.values())
    taken = _fewest([sum(gives[entry.host] for entry in some) for some in members], need)
    places = [*taken, *(place for place in range(len(members)) if place not in taken)]
    return tuple(entry for place in places for entry in members[place])


def leaves_of(hosts: Sequence[HostSlots]) -> Tuple[Optional[str], ...]:
    """Give the leaves of hosts, each once, in the order of the hosts."""
    return tuple(dict.fromkeys(entry.leaf for entry in hosts))


def _fewest(capacities: Sequence[int], need: int) -> Tuple[int, ...]:
    """Give the places of the fewest numbers that add up to `need`, of as few the earliest; all where all do not."""
    together = accumulate(sorted(capacities, reverse=True), initial=0)
    count = next((few for few, capacity in enumerate(together) if capacity >= need), len(capacities))
    found: List[int] = []
    for place, capacity in enumerate(capacities):
        left = count - len(found) - 1
        if left >= 0 and capacity + _most(capacities[place + 1 :], left) >= need:
            found.append(place)
            need -= capacity
    return tuple(found) if len(found) == count else tuple(range(len(capacities)))


def _most(capacities: Sequence[int], count: int) -> int:
    return sum(sorted(capacities, reverse=True)[:count])
