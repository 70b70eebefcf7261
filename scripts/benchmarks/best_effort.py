"""The published best-effort rule of NVIDIA's go-gpuallocator, to measure against: by pair scores, all free GPUs divided.

A pair scores 10 where it is linked across CPUs (SYS), 20 within one (NODE), 30 at a host bridge (PHB), 40 over several
switches (PXB), 50 over one (PIX), and 100 for each NVLink besides. All free GPUs are divided into sets of the size that
is requested, padded where that does not come out even, the padding all in one set; the division with the highest total
is taken, of equals the first, and out of it the set with the highest score. Here a division's best continuation is
kept for what is left, which gives the same answer without going through all divisions.

nvidia-smi topo -m shows an NVLink in place of the way over PCIe. That is taken from the HCAs that both GPUs are near to, then
from their NUMA nodes.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from heapq import merge
from itertools import combinations

from taco_launch.core.placement.mesh import NEAR, GpuMesh

_SCORES = {"SYS": 10, "NODE": 20, "PHB": 30, "PXB": 40, "PIX": 50}
_NVLINK = 100
# Comes after the index of every GPU.
_BEHIND = 1 << 8
_Set = tuple[int, ...]


class BestEffort:
    """The rule on one host."""

    def __init__(self, mesh: GpuMesh) -> None:
        """Score all pairs."""
        every = range(len(mesh.matrix))
        self._pairs = [[0 if one == other else _score(mesh, one, other) for other in every] for one in every]

    def allocate(self, free: Sequence[int], count: int) -> _Set:
        """Return the set of `count` free GPUs."""
        if count == 1:
            return (free[0],)
        division = _Division(self._pairs, count, -len(free) % count)
        full = [each for each in division.best(tuple(free), padded=False)[1] if len(each) == count]
        return max(full, key=division.score)  # of equals the first


class _Division:
    """Divides GPUs into sets of `count`, of which one has as many less as there is padding."""

    def __init__(self, pairs: Sequence[Sequence[int]], count: int, padding: int) -> None:
        """Keep what is worked out."""
        self._pairs, self._count, self._less = pairs, count, count - padding
        self._even = padding == 0
        self._kept: dict[_Set, tuple[int, tuple[_Set, ...]]] = {(): (0, ())}
        self._scores: dict[_Set, int] = {}

    def best(self, left: _Set, *, padded: bool) -> tuple[int, tuple[_Set, ...]]:
        """Return the total and the sets of the best division, of equals the first; `padded`: the smaller set is taken."""
        if left not in self._kept:
            found: tuple[int, tuple[_Set, ...]] = (-1, ())
            for chosen in self._sets(left, padded=padded):
                rest = tuple(gpu for gpu in left if gpu not in chosen)
                total, sets = self.best(rest, padded=padded or len(chosen) == self._less)
                total += self.score(chosen)
                if total > found[0]:
                    found = (total, (chosen, *sets))
            self._kept[left] = found
        return self._kept[left]

    def score(self, gpus: _Set) -> int:
        """Return the sum of the scores of all pairs."""
        if gpus not in self._scores:
            self._scores[gpus] = sum(self._pairs[one][other] for one, other in combinations(gpus, 2))
        return self._scores[gpus]

    def _sets(self, left: _Set, *, padded: bool) -> Iterator[_Set]:
        """Yield the sets that the first GPU may be in, by indices, padding being behind every GPU."""
        full = combinations(left[1:], self._count - 1)
        less = () if padded or self._even else combinations(left[1:], self._less - 1)
        for others in merge(full, less, key=lambda others: (*others, _BEHIND)):
            yield (left[0], *others)


def _score(mesh: GpuMesh, one: int, other: int) -> int:
    link = mesh.topology.links[one][other]
    if not link.startswith("NV"):
        return _SCORES[link]
    shared = (near for near, hcas in zip(NEAR, mesh.hcas, strict=True) if hcas[one] & hcas[other])
    path = next(shared, "NODE" if mesh.nodes[one] == mesh.nodes[other] else "SYS")
    return _NVLINK * int(link[2:]) + _SCORES[path]
