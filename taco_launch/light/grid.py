"""Arrange ranks by hosts: groups inside the hosts, and groups between them."""

from dataclasses import dataclass
from typing import Dict, List, NamedTuple, Sequence, Tuple


class Place(NamedTuple):
    """Where a rank runs: what identifies its machine, and its number among the ranks of a host."""

    machine: str
    local_rank: int


@dataclass(frozen=True)
class Grid:
    """The groups of all ranks: `inner` reduces densely inside hosts, `outer` sends selected values between them."""

    inner: Tuple[Tuple[int, ...], ...]
    outer: Tuple[Tuple[int, ...], ...]
    hosts: int
    # why it is not what the configuration asks for, or ""
    remark: str = ""

    @property
    def inner_size(self) -> int:
        """Return how many ranks reduce densely with each other."""
        return len(self.inner[0])

    @property
    def outer_size(self) -> int:
        """Return how many ranks exchange what they selected."""
        return len(self.outer[0])


def by_hosts(places: Sequence[Place]) -> List[List[int]]:
    """Return the ranks of each host, hosts by their lowest rank, in whatever order the ranks were placed.

    A local rank that a machine has twice means two hosts on one machine, as two containers are.
    """
    hosts: Dict[Tuple[str, int], List[int]] = {}
    seen: Dict[Place, int] = {}
    for rank, place in enumerate(places):
        before = seen.get(place, 0)
        seen[place] = before + 1
        hosts.setdefault((place.machine, before), []).append(rank)
    return sorted(hosts.values())


def flat(ranks: int, hosts: int, remark: str = "") -> Grid:
    """Return a grid where all ranks exchange with all."""
    return Grid(tuple((rank,) for rank in range(ranks)), (tuple(range(ranks)),), hosts, remark)


def arrange(places: Sequence[Place], intra_size: int, two_d: bool) -> Grid:
    """Return the grid for ranks at these places, in the order of ranks; flat where a grid is not possible."""
    hosts = by_hosts(places)
    counts = sorted({len(ranks) for ranks in hosts})
    if not two_d:
        several = counts[-1] > 1 and len(hosts) > 1
        remark = "several ranks on a host each send between hosts: LIGHT_2D_ALLREDUCE=1 would send less"
        return flat(len(places), len(hosts), remark if several else "")
    if len(counts) > 1:
        remark = f"hosts have {counts[0]} to {counts[-1]} ranks: all exchange with all, as without LIGHT_2D_ALLREDUCE"
        return flat(len(places), len(hosts), remark)
    size, remark = intra_size, ""
    if counts[0] % intra_size:
        size = counts[0]
        remark = f"LIGHT_INTRA_SIZE={intra_size} does not divide the {size} ranks of a host: {size} is used"
    inner = tuple(tuple(host[start : start + size]) for host in hosts for start in range(0, len(host), size))
    # The default, 8, is meant for hosts of 8: with fewer ranks the host is the group, which needs no remark.
    return Grid(inner, tuple(zip(*inner)), len(hosts), remark if intra_size < size else "")
