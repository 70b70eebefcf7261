"""Which GPUs of a host a job gets: those with the best ring, exactly, over every set of the free ones.

In this order, each only where all before it are equal:

1. the bandwidth of the slowest link of the set's best ring (rings.py), the highest first;
2. the sum of the bandwidths of all pairs of the set;
3. the number of NUMA nodes, the lowest first;
4. HCAs: how many GPUs of the set can each have one of its own at PIX, then at PXB or nearer, then PHB, then NODE;
5. the bandwidth of the links between the set and the GPUs that stay free, the lowest first: so most is left among those,
   and of a pair with a bridge not one half is taken. NVIDIA's go-gpuallocator keeps good sets for later jobs too, but
   before all else, by the best way to divide all free GPUs;
6. the lowest indices.
"""

import functools
from itertools import combinations
from typing import Any, Callable, Dict, List, NamedTuple, Optional, Sequence, Tuple

from taco_launch.core.errors import PlacementError
from taco_launch.core.model.choices import GpuChoice, RejectedSet
from taco_launch.core.placement.mesh import NEAR, GpuMesh
from taco_launch.core.placement.rings import MOST_GPUS, order

_ALTERNATIVES = 2
# Of this many links on they are not told one by one where they are alike.
_MANY = 3


def choose(count: int, free: Sequence[int], mesh: Optional[GpuMesh] = None, topology: bool = True) -> GpuChoice:
    """Choose `count` of the free GPUs of a host; without `mesh`, and on hosts of more than 16 GPUs, the lowest indices.

    Those also with `topology` off, and what they are worth by `mesh`. The same free GPUs of the same host are worked out
    once.

    Raises:
        PlacementError: so many are not free.
        ValueError: less than one is requested, or one of the free is not in the matrix.
    """
    return _choose(count, tuple(sorted(set(free))), mesh, topology)


@functools.lru_cache(maxsize=1 << 14)
def _choose(count: int, free: Tuple[int, ...], mesh: Optional[GpuMesh], topology: bool) -> GpuChoice:
    if count < 1 or (mesh is not None and free and free[-1] >= len(mesh.matrix)):
        raise ValueError(f"{count} of GPUs {_listed(free)}")
    if count > len(free):
        have = f"free: {_listed(free)}" if free else "none is free"
        does = "1 GPU does" if count == 1 else f"{count} GPUs do"
        hint = f"request at most {len(free)}" if free else None
        raise PlacementError(f"{does} not fit: {have}", (), hint)
    lowest = free[:count]
    if mesh is None or len(mesh.matrix) > MOST_GPUS:
        why = "how the GPUs are linked is not known" if mesh is None else f"there are more than {MOST_GPUS} GPUs"
        return GpuChoice(lowest, (), None, None, f"the lowest free indices: {why if topology else 'topology is off'}")
    if not topology:
        words = _ring_words(mesh, lowest, _ring(mesh, lowest))
        return GpuChoice(lowest, *_figures(mesh, lowest), f"the lowest free indices, topology is off: {words}")
    measures = _measures(mesh, free)
    first, *others = _best(list(combinations(free, count)), measures, 1 + _ALTERNATIVES)
    ring = _ring(mesh, first)
    why = _ring_words(mesh, first, ring)
    if lowest != first:
        why += f"; {_than(mesh, measures, lowest, first)}"
    lost = tuple(
        RejectedSet(
            other, *_figures(mesh, other), f"{_ring_words(mesh, other, its)}; it {_behind(measures, other, first)}"
        )
        for other in others
        for its in [_ring(mesh, other)]
    )
    return GpuChoice(first, *_figures(mesh, first), why, lost)


class _Measure(NamedTuple):
    """What a set is judged by, more being better; `words` says of a set's value and of the choice's how it is worse."""

    value: Callable[[Tuple[int, ...]], Any]
    words: Callable[[Any, Any], str]


def _measures(mesh: GpuMesh, free: Tuple[int, ...]) -> Tuple[_Measure, ...]:
    """Return what sets are judged by, in order."""
    to_free = {gpu: sum(mesh.matrix[gpu][other] for other in free) for gpu in free}

    def cut(gpus: Tuple[int, ...]) -> float:
        return 2 * mesh.linked(gpus) - sum(to_free[gpu] for gpu in gpus)

    return (
        _Measure(lambda gpus: mesh.rings.bottleneck(_mask(gpus)) or 0.0, _slower),
        _Measure(mesh.linked, lambda its, best: f"has {its:g} GB/s over all pairs, not {best:g}"),
        _Measure(
            lambda gpus: -len({mesh.nodes[gpu] for gpu in gpus}),
            lambda its, best: f"is spread over {-its} NUMA nodes, not {-best}",
        ),
        _Measure(mesh.with_hcas, _farther),
        _Measure(cut, lambda its, best: f"cuts links of {-its:g} GB/s to GPUs that stay free, not {-best:g}"),
    )


def _slower(its: float, best: float) -> str:
    return f"is slower: {its:g} GB/s, not {best:g}"


def _farther(its: Tuple[int, ...], best: Tuple[int, ...]) -> str:
    near, mine, other = next(entry for entry in zip(NEAR, its, best) if entry[1] != entry[2])
    which = "at PIX" if near == "PIX" else f"at {near} or nearer"
    return f"has {mine} GPU{'' if mine == 1 else 's'} with an HCA of its own {which}, not {other}"


def _best(sets: List[Tuple[int, ...]], measures: Sequence[_Measure], wanted: int) -> List[Tuple[int, ...]]:
    """Return the best sets in order; of equals the first. What comes later in `measures` is asked of equals alone."""
    if not measures or len(sets) < 2:
        return sets[:wanted]
    alike: Dict[Any, List[Tuple[int, ...]]] = {}
    for each in sets:
        alike.setdefault(measures[0].value(each), []).append(each)
    found: List[Tuple[int, ...]] = []
    for value in sorted(alike, reverse=True):
        if len(found) < wanted:
            found += _best(alike[value], measures[1:], wanted - len(found))
    return found


def _behind(measures: Sequence[_Measure], its: Tuple[int, ...], best: Tuple[int, ...]) -> str:
    """Return what a set loses by."""
    for measure in measures:
        mine, other = measure.value(its), measure.value(best)
        if mine != other:
            return measure.words(mine, other)
    return "is equally good, but has higher indices"


def _than(mesh: GpuMesh, measures: Sequence[_Measure], its: Tuple[int, ...], best: Tuple[int, ...]) -> str:
    """Return what the lowest indices would be worse by."""
    ring, slowest = _ring(mesh, its), mesh.rings.bottleneck(_mask(its))
    if slowest == mesh.rings.bottleneck(_mask(best)):
        what = f"GPU {its[0]}" if len(its) == 1 else f"the set {_listed(its)}"
        return f"{what} {_behind(measures, its, best)}"
    pairs = zip(ring, (*ring[1:], ring[0]), mesh.links(ring))
    link = next(link for one, other, link in pairs if mesh.matrix[one][other] == slowest)
    return f"indices {_listed(its)} would have {slowest:g} GB/s over {link}"


def _figures(mesh: GpuMesh, gpus: Tuple[int, ...]) -> Tuple[Tuple[int, ...], Optional[float], float]:
    return _ring(mesh, gpus), mesh.rings.bottleneck(_mask(gpus)), mesh.linked(gpus)


def _ring(mesh: GpuMesh, gpus: Tuple[int, ...]) -> Tuple[int, ...]:
    slowest = mesh.rings.bottleneck(_mask(gpus))
    return () if slowest is None else order(mesh.matrix, gpus, slowest)


def _ring_words(mesh: GpuMesh, gpus: Tuple[int, ...], ring: Tuple[int, ...]) -> str:
    slowest = mesh.rings.bottleneck(_mask(gpus))
    if slowest is None:
        return f"GPU {gpus[0]} alone"
    links = mesh.links(ring)
    told = f"all {links[0]}" if len(links) >= _MANY and len(set(links)) == 1 else ", ".join(links)
    what = "pair" if len(ring) == 2 else "ring"
    which = "link" if len(links) == 1 else "slowest link"
    return f"{what} {'-'.join(map(str, ring))}: {told}: {which} {slowest:g} GB/s"


def _mask(gpus: Sequence[int]) -> int:
    return sum(1 << gpu for gpu in gpus)


def _listed(gpus: Sequence[int]) -> str:
    return ",".join(map(str, gpus))
