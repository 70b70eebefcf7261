"""Which of the ports between a job's hosts it uses where it has some GPUs of them: those near these GPUs."""

from dataclasses import replace
from typing import Dict, List, Mapping, Optional, Sequence, Set, Tuple

from taco_launch.core.model.job_facts import FabricFacts, LocalHcas, SharedValue
from taco_launch.core.model.plans import Placement

_NAME = "NCCL_IB_HCA"


def near_hcas(between: FabricFacts, placement: Placement, near: Mapping[str, LocalHcas]) -> FabricFacts:
    """Narrow the list of ports to those that are nearest to any of the job's GPUs on any of its hosts.

    NCCL itself chooses the HCA of each GPU, the nearest first, out of a list that all ranks of a host have to share
    (NVIDIA/nccl#1478): so it is narrowed for all of them, and two jobs on one host keep to their own halves.

    NCCL connects like ports of the hosts, and rails may not reach one another (NVIDIA/nccl#1591, #2193; PXN keeps to
    them too): a port that is near on one host stays in the list of each, by its place there. So nothing is left out
    where two hosts give a job opposite halves. Nor is it where `near` does not have all hosts (whole ones, or links
    that nobody knows), where a GPU has none of the ports in its row of the matrix, and where a host lacks a port that
    others have: the narrowed list might hold none that works there, and NCCL would be left with TCP on that host.
    """
    hosts = [share.host for share in placement.shares]
    ports = ports_of(between, hosts)
    if between.rdma.able is not True or between.odd_ports or not near.keys() & ports.keys() >= set(hosts):
        return between
    places: Set[int] = set()
    for host in hosts:
        for gpu in near[host]:
            found = _nearest(gpu, ports[host])
            if found is None:
                return between
            places.update(found)
    if len(places) == len(ports[hosts[0]]):
        return between
    narrowed = {host: "=" + ",".join(names[place] for place in sorted(places)) for host, names in ports.items()}
    if between.hcas.value is not None:
        left = [name for place, name in enumerate(ports[hosts[0]]) if place not in places]
        why = (
            f"{between.hcas.why}; not used: {', '.join(left)}, as other HCAs are nearer to the job's GPUs on every host"
        )
        return replace(between, hcas=SharedValue(narrowed[hosts[0]], why))
    own = (
        (host, name, narrowed.get(host, value) if name == _NAME else value) for host, name, value in between.host_env
    )
    return replace(between, host_env=tuple(own))


def ports_of(between: FabricFacts, hosts: Sequence[str]) -> Dict[str, Tuple[str, ...]]:
    """Return by host the ports of the list (`mlx5_0:1`); nothing of hosts for which there is none."""
    lists = {host: value for host, name, value in between.host_env if name == _NAME}
    if between.hcas.value is not None:
        lists = dict.fromkeys(hosts, between.hcas.value)
    return {host: tuple(lists[host].lstrip("=").split(",")) for host in hosts if host in lists}


def _nearest(gpu: Sequence[Sequence[str]], ports: Sequence[str]) -> Optional[Tuple[int, ...]]:
    """Return the places of the ports whose HCAs are the nearest to a GPU of those that are listed, None without any."""
    names: List[str] = [port.rpartition(":")[0] for port in ports]
    found = (tuple(place for place, name in enumerate(names) if name in group) for group in gpu)
    return next(filter(None, found), None)
