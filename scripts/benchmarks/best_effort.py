"""The published best-effort rule of NVIDIA's go-gpuallocator, to measure against: by pair scores, all free GPUs divided.

A pair scores 10 where it is linked across CPUs (SYS), 20 within one (NODE), 30 at a host bridge (PHB), 40 over several
switches (PXB), 50 over one (PIX), and 100 for each NVLink besides. All free GPUs are divided into sets of the size that
is asked for, padded where that does not come out even, the padding all in one set; the division with the highest total
is taken, of equals the first, and out of it the set with the highest score. Here a division's best continuation is
kept for what is left, which gives the same answer without going through all divisions.

nvidia-smi topo -m shows an NVLink in place of the way over PCIe. That is taken from the HCAs that both GPUs are near to, then
from their NUMA nodes.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations

from taco_launch.placement.mesh import NEAR, Mesh

_SCORES = {"SYS": 10, "NODE": 20, "PHB": 30, "PXB": 40, "PIX": 50}
_NVLINK = 100


class BestEffort:
    """The rule on one host."""

    def __init__(self, mesh: Mesh) -> None:
        """Score all pairs."""
        every = range(len(mesh.matrix))
        self._pairs = [[0 if one == other else _score(mesh, one, other) for other in every] for one in every]

    def allocate(self, free: Sequence[int], count: int) -> tuple[int, ...]:
        """Give the set of `count` free GPUs."""
        if count == 1:
            return (free[0],)
        padding = -len(free) % count
        padded = (*free, *(None for _number in range(padding)))
        sets = _Sets(padded, count, self._pairs)
        _total, division = sets.divided((1 << len(padded)) - 1)
        full = [each for each in division if each >> len(free) == 0]
        best = max(full, key=sets.scores.__getitem__)  # of equals the first
        return tuple(gpu for place, gpu in enumerate(free) if best >> place & 1)


class _Sets:
    """The sets that free GPUs and padding (None) may be divided into: bits of their places, with their scores."""

    def __init__(self, padded: Sequence[int | None], count: int, pairs: Sequence[Sequence[int]]) -> None:
        """Score all sets that hold all of the padding or none of it."""
        padding = padded.count(None)
        self.scores: dict[int, int] = {}
        self._by_first: list[list[int]] = [[] for _gpu in padded]
        self._kept: dict[int, tuple[int, tuple[int, ...]]] = {0: (0, ())}
        for places in combinations(range(len(padded)), count):
            gpus = [gpu for gpu in (padded[place] for place in places) if gpu is not None]
            if count - len(gpus) in (0, padding):
                mask = sum(1 << place for place in places)
                self._by_first[places[0]].append(mask)
                self.scores[mask] = sum(pairs[one][other] for one, other in combinations(gpus, 2))

    def divided(self, left: int) -> tuple[int, tuple[int, ...]]:
        """Give the total and the sets of the best division of what is left, of equals the first."""
        if left not in self._kept:
            best: tuple[int, tuple[int, ...]] = (-1, ())
            for chosen in self._by_first[(left & -left).bit_length() - 1]:
                if chosen & left == chosen:
                    total, sets = self.divided(left ^ chosen)
                    total += self.scores[chosen]
                    if total > best[0]:
                        best = (total, (chosen, *sets))
            self._kept[left] = best
        return self._kept[left]


def _score(mesh: Mesh, one: int, other: int) -> int:
    link = mesh.topology.links[one][other]
    if not link.startswith("NV"):
        return _SCORES[link]
    shared = (near for near, hcas in zip(NEAR, mesh.hcas, strict=True) if hcas[one] & hcas[other])
    path = next(shared, "NODE" if mesh.nodes[one] == mesh.nodes[other] else "SYS")
    return _NVLINK * int(link[2:]) + _SCORES[path]
