"""Decides over the facts of several hosts: which HCAs a job uses, which GID index, which interface, and why."""

from dataclasses import replace
from typing import Optional, Sequence

from taco_launch.core.facts.network.interface import carrier, common, half_bonds
from taco_launch.core.facts.rdma.gid_plan import gid_plan
from taco_launch.core.facts.rdma.rails import choose, layer_of, lists, not_active
from taco_launch.core.model.host.fabric import Anomaly, Fabric, FabricChoice
from taco_launch.core.model.host.fact_value import Absent
from taco_launch.core.model.host.facts import HostFacts


def fabric(hosts: Sequence[HostFacts], nccl: Optional[str] = None, interface: Optional[str] = None) -> Fabric:
    """Return the choices for these hosts.

    `nccl` is the version of NCCL in the job's image; where it is not known, the choices suit any. `interface` is the
    one that the user has named, None for the one that carries the address by which the host is reached.
    """
    carriers = {host.host: carrier(host.network, interface) for host in hosts}
    shared, own = common(carriers, hosts)
    rails, left_out, odd = choose(hosts)
    odd = [*not_active(hosts), *odd, *(Anomaly(host.host, what) for host in hosts for what in half_bonds(host.network))]
    layer = layer_of(rails, hosts)
    found = Fabric(layer, Absent(), Absent(), Absent(), shared, own, (), tuple(left_out), tuple(odd))
    if not isinstance(layer, FabricChoice):
        return replace(found, hcas=layer, gid_index=layer, address_range=layer)
    hcas, env, differ = lists(rails, hosts)
    found = replace(found, hcas=hcas, host_env=(*env, *own), odd=(*found.odd, *differ))
    if layer.value == "InfiniBand":
        none = Absent("not needed on InfiniBand, which routes by LID")
        return replace(found, gid_index=none, address_range=none)
    plan = gid_plan(rails, hosts, carriers, nccl)
    return replace(
        found,
        gid_index=plan.gid_index,
        address_range=plan.address_range,
        host_env=(*found.host_env, *plan.host_env),
        gids=plan.gids,
        odd=(*found.odd, *plan.odd),
    )
