"""The best ring of every set of GPUs: the one over all of them whose slowest link is the fastest, exactly.

For each bandwidth that occurs, the links that have at least as much are looked at: over which sets is there a ring of
these alone? Sets are numbers (bit 3 is GPU 3), and a set of sets is one long number whose bit is a set's number. A path
starts at the lowest GPU of its set. Paths of all sets are grown by one GPU at a time, all together: adding GPU 3 to each
set of a set of sets is a shift by 1 << 3. So it takes n ** 3 operations on numbers of 2 ** n bits for a bandwidth.

A table is kept by its matrix for as long as a program runs, and what was chosen out of it by the free GPUs (gpus.py). It
is not kept on disk: scripts/benchmarks/place.py took 1 ms for one of 8 GPUs and 0.1 s for one of 16, all pairs of which
differ, and the machines that there are took less; what is kept of a host is the matrix (agent/host/gpu_topology.py), since it is
nvidia-smi that takes long.
"""

import functools
from dataclasses import dataclass
from itertools import combinations
from typing import Iterator, List, NamedTuple, Optional, Sequence, Tuple

# What is worked out exactly, and within what a table takes: 2 ** 16 sets.
MOST_GPUS = 16
Matrix = Tuple[Tuple[float, ...], ...]


@dataclass(frozen=True, eq=False)
class Rings:
    """The rings over the sets of some GPUs: `levels` has for each set which of `gbps` its best ring has.

    `gbps` is in falling order; a set without a ring has their number.
    """

    gbps: Tuple[float, ...]
    levels: bytes

    def bottleneck(self, mask: int) -> Optional[float]:
        """Return the bandwidth of the slowest link of the best ring over a set; of two GPUs their link, of one None."""
        level = self.levels[mask]
        return self.gbps[level] if level < len(self.gbps) else None


@functools.lru_cache(maxsize=64)
def rings(matrix: Matrix) -> Rings:
    """Work out the rings of all sets; `matrix` is the bandwidth between GPUs, square and symmetric.

    Raises:
        ValueError: there are more than 16 GPUs.
    """
    count = len(matrix)
    if count > MOST_GPUS:
        raise ValueError(f"{count} GPUs are too many to compute rings: at most {MOST_GPUS}")
    bandwidths = sorted({matrix[one][other] for one, other in combinations(range(count), 2)}, reverse=True)
    masks = _masks(count)
    levels = bytearray([len(bandwidths)]) * (1 << count)
    before = 0
    for level, least in enumerate(bandwidths):
        closed = [masks.closed(_linked(matrix, vertex, least)) for vertex in range(count)]
        found = 0
        for ends in _paths(matrix, least):
            for vertex, paths in enumerate(ends):
                found |= paths & closed[vertex]
        for mask in _bits(found & ~before):
            levels[mask] = level
        before = found
    return Rings(tuple(bandwidths), bytes(levels))


def order(matrix: Matrix, gpus: Sequence[int], least: float) -> Tuple[int, ...]:
    """Return a ring over GPUs whose links all have at least `least`, which there has to be, from the lowest one on.

    Where there are several, the strongest link is taken first, and of two that are as strong the one to the lower GPU.
    """
    chosen = sorted(gpus)
    small = tuple(tuple(matrix[one][other] for other in chosen) for one in chosen)
    layers = list(_paths(small, least))
    mask, at, found = (1 << len(chosen)) - 1, 0, [0]
    for ends in reversed(layers):
        before = [each for each in _linked(small, at, least) if ends[each] >> mask & 1]
        at = max(before, key=lambda each: (small[at][each], -each))
        found.append(at)
        mask ^= 1 << at
    return tuple(chosen[place] for place in found)


class _Masks(NamedTuple):
    """Sets of the sets of some GPUs, by GPU: those whose lowest it is, those that a path takes it to as one more."""

    lowest: Tuple[int, ...]
    taking: Tuple[int, ...]

    def closed(self, linked: Sequence[int]) -> int:
        """Return the sets whose lowest GPU is among those linked to the end of a path."""
        found = 0
        for vertex in linked:
            found |= self.lowest[vertex]
        return found


@functools.lru_cache(maxsize=None)
def _masks(count: int) -> _Masks:
    lowest: List[int] = []
    taking: List[int] = []
    every, below = (1 << (1 << count)) - 1, 0
    for vertex in range(count):
        has = ((1 << (1 << vertex)) - 1) << (1 << vertex)  # of the first vertex + 1 GPUs, then of twice as many, ...
        for more in range(vertex + 1, count):
            has |= has << (1 << more)
        lowest.append(has & ~below)
        taking.append(below & every & ~has)
        below |= has
    return _Masks(tuple(lowest), tuple(taking))


def _paths(matrix: Matrix, least: float) -> Iterator[List[int]]:
    """Give, for 2 GPUs, 3, ...: by the GPU that a path ends at, the sets over which there is one from the lowest GPU."""
    count = len(matrix)
    masks = _masks(count)
    linked = [_linked(matrix, vertex, least) for vertex in range(count)]
    ends = [1 << (1 << vertex) for vertex in range(count)]
    for _size in range(1, count):
        longer = []
        for vertex in range(count):
            reached = 0
            for before in linked[vertex]:
                reached |= ends[before]
            longer.append((reached & masks.taking[vertex]) << (1 << vertex))
        ends = longer
        yield ends


def _linked(matrix: Matrix, vertex: int, least: float) -> List[int]:
    return [other for other, gbps in enumerate(matrix[vertex]) if other != vertex and gbps >= least]


def _bits(number: int) -> Iterator[int]:
    """Yield the places of the bits that are set."""
    text = bin(number)[:1:-1]
    at = text.find("1")
    while at >= 0:
        yield at
        at = text.find("1", at + 1)
