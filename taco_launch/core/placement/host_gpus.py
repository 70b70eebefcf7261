"""Which of the free GPUs of a host a job gets, with a look at its other hosts: pure."""

from dataclasses import replace
from typing import Mapping, Optional, Sequence

from taco_launch.core.model.choices import GpuChoice, RejectedSet
from taco_launch.core.model.host.hosts import Host
from taco_launch.core.model.plans import Placement, Share
from taco_launch.core.model.slots import Occupancy
from taco_launch.core.placement.gpu_constraints import allowed, shared
from taco_launch.core.placement.gpus import choose
from taco_launch.core.placement.mesh import GpuMesh


def pick(
    count: int, free: Sequence[int], mesh: Optional[GpuMesh], both: Sequence[int], topology: bool = True
) -> GpuChoice:
    """Choose `count` of the free GPUs of a host, the same as on its other hosts where these are not slower.

    `both` are the indices that are free on all hosts that the job takes as many GPUs of: each chooses among these first.
    So ranks of one number have one rail of the network. With `topology` off speed does not count.

    Raises:
        PlacementError: so many are not free.
    """
    best = choose(count, free, mesh, topology)
    common = sorted(set(both) & set(free))
    if len(common) < count or len(common) == len(set(free)):
        return best
    alike = choose(count, common, mesh, topology)
    if alike.gpus == best.gpus or (topology and alike.bottleneck_gbps != best.bottleneck_gbps):
        return best
    other = RejectedSet(
        best.gpus, best.ring, best.bottleneck_gbps, best.sum_gbps or 0.0, "not free on all hosts of the job"
    )
    kept = (other, *alike.alternatives)[: max(len(alike.alternatives), 1)]
    return replace(alike, why=f"{alike.why}; free on all hosts of the job", alternatives=kept)


def only(gpus: Sequence[int], mesh: Optional[GpuMesh]) -> Optional[GpuChoice]:
    """Return the figures of GPUs that a job gets without a choice; None where the links are not known."""
    if mesh is None or not gpus:
        return None
    found = choose(len(gpus), gpus, mesh)
    return None if found.sum_gbps is None else replace(found, why=f"{found.why}; no other set of GPUs is possible")


def explained(
    hosts: Sequence[Host], placement: Placement, found: Mapping[str, Occupancy], meshes: Mapping[str, Optional[GpuMesh]]
) -> Placement:
    """Add to each share which GPUs it would have now: where there are several sets of them, or their links are known.

    `meshes` are by host.
    """
    by_name, both = {host.name: host for host in hosts}, shared(hosts, placement, found)

    def choice(share: Share) -> Optional[GpuChoice]:
        host, here = by_name[share.host], found[share.host]
        free = [
            number for number in allowed(host.constraints, here) if number < here.gpus and here.slots[number].is_free
        ]
        if share.ranks >= len(free):
            return only(free, meshes.get(host.name))
        return pick(share.ranks, free, meshes.get(host.name), both[share.ranks], host.constraints.topology)

    return replace(placement, shares=tuple(replace(share, choice=choice(share)) for share in placement.shares))
