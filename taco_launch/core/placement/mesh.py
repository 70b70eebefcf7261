"""How the GPUs of one host are linked, made ready for choosing among them: bandwidths, NUMA nodes, HCAs, rings."""

import functools
from dataclasses import dataclass
from typing import Dict, Sequence, Set, Tuple

from taco_launch.core.model.host.hardware import Topology
from taco_launch.core.placement.bandwidth import Bandwidths
from taco_launch.core.placement.rings import Matrix, Rings, rings

# How near an HCA is to a GPU, nearest first (core/facts/gpus/hca_distance.py); what is farther counts for nothing.
NEAR = ("PIX", "PXB", "PHB", "NODE")


@dataclass(frozen=True, eq=False)
class GpuMesh:
    """The GPUs of one host: `matrix` in GB/s, the NUMA node of each, and by word of NEAR, by GPU its HCAs (bits).

    The HCAs of a word are those at that distance or nearer. Where the matrix names no NUMA node, the CPU affinity
    stands for it: GPUs with one list of CPUs are at one node.
    """

    topology: Topology
    matrix: Matrix
    nodes: Tuple[str, ...]
    hcas: Tuple[Tuple[int, ...], ...]

    @functools.cached_property
    def rings(self) -> Rings:
        """The rings over all sets of the GPUs.

        Raises:
            ValueError: there are more than 16.
        """
        return rings(self.matrix)

    def with_hcas(self, gpus: Sequence[int]) -> Tuple[int, ...]:
        """Return how many of the GPUs can each have an HCA of its own, by word of NEAR: at PIX, at PXB or nearer, ..."""
        return tuple(_matched(tuple(sorted(near[gpu] for gpu in gpus))) for near in self.hcas)

    def links(self, ring: Sequence[int]) -> Tuple[str, ...]:
        """Return the links of a ring one after the other, the last one back to its start; of two GPUs their link."""
        after = (*ring[1:], ring[0]) if len(ring) > 2 else ring[1:]
        return tuple(self.topology.links[one][other] for one, other in zip(ring, after))

    def linked(self, gpus: Sequence[int]) -> float:
        """Return the sum of the bandwidths of all pairs of GPUs."""
        return sum((self.matrix[one][other] for place, one in enumerate(gpus) for other in gpus[:place]), 0.0)


@functools.lru_cache(maxsize=64)
def mesh_of(topology: Topology, figures: Bandwidths) -> GpuMesh:
    """Make a host's matrix ready; hosts that are linked alike share what is worked out of it."""
    count = len(topology.gpus)
    links = [row[:count] for row in topology.links[:count]]
    matrix = tuple(tuple(0.0 if link == "X" else figures.gbps(link) for link in row) for row in links)
    known = zip(topology.numa or (None,) * count, topology.cpus or (None,) * count)
    hcas = tuple(
        tuple(
            sum(1 << place for place, link in enumerate(row[count:]) if link in NEAR[: near + 1])
            for row in topology.links[:count]
        )
        for near in range(len(NEAR))
    )
    return GpuMesh(topology, matrix, tuple(numa or cpus or "" for numa, cpus in known), hcas)


@functools.lru_cache(maxsize=1 << 14)
def _matched(wants: Tuple[int, ...]) -> int:
    """Return how many can have one of their own out of what each could have (bits)."""
    holders: Dict[int, int] = {}

    def give(place: int, tried: Set[int]) -> bool:
        for bit in range(wants[place].bit_length()):
            if wants[place] >> bit & 1 and bit not in tried:
                tried.add(bit)
                if bit not in holders or give(holders[bit], tried):
                    holders[bit] = place
                    return True
        return False

    return sum(give(place, set()) for place in range(len(wants)))
