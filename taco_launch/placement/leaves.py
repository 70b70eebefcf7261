"""The fewest leaves that suffice, the switches of the network that hosts are connected to, and the fewest hosts of these.

One host that suffices comes before all else: its ranks need no network. NCCL's rings follow the order of ranks, and ranks that of the hosts: so the hosts of a leaf stand together. Hosts whose
leaf is not known are taken to be on one of their own, all of them together.
"""

from collections import Counter
from itertools import accumulate
from typing import Dict, List, Mapping, Optional, Sequence, Tuple

from taco_launch.model.plans import FreeSlots


def arranged(hosts: Sequence[FreeSlots], gives: Mapping[str, int], need: int) -> Tuple[FreeSlots, ...]:
    """Return the hosts, the first one that gives `need` by itself first, else those of the fewest leaves that together do.

    `gives` is by host. Of as few leaves the earlier ones are taken, in the order of the hosts; all of them where not
    even all suffice. Of the hosts of these leaves the fewest come first that give as much, of as few the earlier ones,
    leaf after leaf; among the hosts of a leaf their order stays.
    """
    one = next((entry for entry in hosts if gives[entry.host] >= need), None)
    if one is not None:
        return (one, *(entry for entry in hosts if entry is not one))
    leaves: Dict[Optional[str], List[FreeSlots]] = {}
    for entry in hosts:
        leaves.setdefault(entry.leaf, []).append(entry)
    members = list(leaves.values())
    taken = _fewest([sum(gives[entry.host] for entry in some) for some in members], need)
    first = [entry for place in taken for entry in members[place]]
    few = set(_fewest([gives[entry.host] for entry in first], need))
    return (
        *(entry for place, entry in enumerate(first) if place in few),
        *(entry for place, entry in enumerate(first) if place not in few),
        *(entry for place, some in enumerate(members) if place not in taken for entry in some),
    )


def leaves_of(hosts: Sequence[FreeSlots]) -> Tuple[Optional[str], ...]:
    """Return the leaves of hosts, each once, in the order of the hosts."""
    return tuple(dict.fromkeys(entry.leaf for entry in hosts))


def _fewest(capacities: Sequence[int], need: int) -> Tuple[int, ...]:
    """Return the places of the fewest numbers that add up to `need`, of as few the earliest; all where all do not."""
    together = accumulate(sorted(capacities, reverse=True), initial=0)
    count = next((few for few, capacity in enumerate(together) if capacity >= need), len(capacities))
    found: List[int] = []
    behind = Counter(capacities)
    for place, capacity in enumerate(capacities):
        behind[capacity] -= 1
        left = count - len(found) - 1
        if left >= 0 and capacity + _most(behind, left) >= need:
            found.append(place)
            need -= capacity
    return tuple(found) if len(found) == count else tuple(range(len(capacities)))


def _most(capacities: Mapping[int, int], count: int) -> int:
    """Return the sum of the largest `count` numbers, of which there are as many each as is said."""
    total = 0
    for capacity in sorted(capacities, reverse=True):
        taken = min(count, capacities[capacity])
        total += taken * capacity
        count -= taken
    return total
