"""Agrees on the GID index over the ports of all hosts: one for all, NCCL's choice within a range, or one per host."""

from collections import Counter
from typing import Dict, List, Mapping, NamedTuple, Optional, Sequence, Tuple

from taco_launch.core.facts.network.interface import Carrier, enclosing
from taco_launch.core.facts.rdma.gid import address_of, by_nccl, on_interface
from taco_launch.core.facts.rdma.rails import Rail
from taco_launch.core.model.host.fabric import Anomaly, FabricChoice, GidChoice, HostGid, HostValue
from taco_launch.core.model.host.fact_value import Absent, Found, Unknown
from taco_launch.core.model.host.facts import HostFacts, NetworkFacts
from taco_launch.core.model.host.versions import OWN_GID, version


class GidPlan(NamedTuple):
    """What Fabric says of GIDs."""

    gid_index: Found[FabricChoice]
    address_range: Found[FabricChoice]
    host_env: Tuple[HostValue, ...]
    gids: Tuple[HostGid, ...]
    odd: Tuple[Anomaly, ...]


def gid_plan(
    rails: Sequence[Rail], hosts: Sequence[HostFacts], carriers: Mapping[str, Found[Carrier]], nccl: Optional[str]
) -> GidPlan:
    """Return the plan: the common index where there is one, whatever the version of NCCL.

    Where the ports differ, or NCCL would take another index than the common one, NCCL 2.21 and newer get a range of addresses, which is tried by NCCL's own rule; an older
    one, or one that is not known, an index per host; and Unknown where a single host needs two, which it cannot have.
    """
    found = [(rail, choice_of(rail, carriers.get(rail.host))) for rail in rails]
    gids = tuple(HostGid(rail.host, choice) for rail, choice in found if isinstance(choice, GidChoice))
    faults = [(rail.host, choice) for rail, choice in found if isinstance(choice, (Absent, Unknown))]
    if faults:
        odd = tuple(Anomaly(host, fault.reason) for host, fault in faults)
        why = Unknown("; ".join(f"{host}: {fault.reason}" for host, fault in faults))
        return GidPlan(why, why, (), gids, odd)
    indices = Counter(one.choice.gid_index for one in gids)
    if len(indices) == 1:
        index = str(gids[0].choice.gid_index)
        why_all = f"RoCE v2 over IPv4; ports: {len(gids)}, hosts: {len({one.host for one in gids})}"
        range_: Found[FabricChoice] = Absent("the index is the same everywhere")
        if nccl is not None and version(nccl) >= OWN_GID and not found_by_nccl(rails, carriers):
            range_ = _range(found, hosts)
        return GidPlan(FabricChoice(index, why_all), range_, (), gids, ())
    usual = indices.most_common(1)[0][0]
    odd = tuple(
        Anomaly(
            one.host,
            f"{one.choice.hca}:{one.choice.port} has its GID at index {one.choice.gid_index}, but most ports have it at index {usual}",
        )
        for one in gids
        if one.choice.gid_index != usual
    )
    if nccl is not None and version(nccl) >= OWN_GID:
        within = _range(found, hosts)
        if isinstance(within, FabricChoice):
            why_unset = Absent(
                f"the indices differ, and NCCL {nccl} chooses the index by itself, so NCCL_IB_GID_INDEX stays unset"
            )
            return GidPlan(why_unset, within, (), gids, odd)
    return _per_host(gids, odd, nccl)


def choice_of(rail: Rail, carrier: Optional[Found[Carrier]] = None) -> Found[GidChoice]:
    """Return the GID of one port: on the job's interface where that is the port's, else the lowest."""
    names = rail.hca.interfaces if isinstance(rail.hca.interfaces, tuple) else ()
    if isinstance(carrier, Carrier) and carrier.name in names:
        subnet = enclosing([carrier.address]) if carrier.address else None
        return on_interface(rail.hca.name, rail.port, (carrier.name,), subnet)
    return on_interface(rail.hca.name, rail.port)


def found_by_nccl(rails: Sequence[Rail], carriers: Mapping[str, Found[Carrier]]) -> bool:
    """Return whether NCCL 2.21 or newer ends at the chosen GID of every port by itself."""
    for rail in rails:
        wanted, taken = choice_of(rail, carriers.get(rail.host)), by_nccl(rail.hca.name, rail.port)
        if not isinstance(wanted, GidChoice) or not isinstance(taken, GidChoice):
            return False
        if taken.gid_index != wanted.gid_index:
            return False
    return True


def _per_host(gids: Sequence[HostGid], odd: Tuple[Anomaly, ...], nccl: Optional[str]) -> GidPlan:
    by_host: Dict[str, List[GidChoice]] = {}
    for one in gids:
        by_host.setdefault(one.host, []).append(one.choice)
    for host, choices in by_host.items():
        if len({choice.gid_index for choice in choices}) > 1:
            told = ", ".join(f"{choice.hca}:{choice.port} {choice.gid_index}" for choice in choices)
            which = f"NCCL {nccl}" if nccl else "NCCL before 2.21"
            why = Unknown(
                f"{host} needs more than one index ({told}), but {which} accepts only one: configure the ports so that their GID tables are the same"
            )
            return GidPlan(why, why, (), tuple(gids), odd)
    env = tuple(
        HostValue(host, "NCCL_IB_GID_INDEX", str(choices[0].gid_index), choices[0].why)
        for host, choices in by_host.items()
    )
    differs = Absent("the index differs from host to host")
    return GidPlan(differs, Absent("each host gets its own index"), env, tuple(gids), odd)


def _range(found: Sequence[Tuple[Rail, Found[GidChoice]]], hosts: Sequence[HostFacts]) -> Found[FabricChoice]:
    """Return the network of all chosen addresses, where NCCL's own rule ends at the chosen slots with it."""
    addresses: List[str] = []
    for rail, choice in found:
        if isinstance(choice, GidChoice) and isinstance(rail.port.gids, tuple):
            gid = next(one.gid for one in rail.port.gids if one.index == choice.gid_index)
            addresses.append(_with_prefix(str(address_of(gid)), hosts))
    cidr = enclosing(addresses)
    for rail, choice in found:
        taken = by_nccl(rail.hca.name, rail.port, address_range=cidr)
        if not isinstance(taken, GidChoice) or not isinstance(choice, GidChoice) or taken.gid_index != choice.gid_index:
            return Unknown(f"{rail.host}: with the range {cidr}, NCCL would not choose the right index of {rail.name}")
    return FabricChoice(
        str(cidr), "the network of all ports' addresses, within which NCCL finds the index of each port"
    )


def _with_prefix(address: str, hosts: Sequence[HostFacts]) -> str:
    """Return an address with the prefix length that its interface has; alone where no interface is known to have it."""
    for host in hosts:
        if isinstance(host.network, NetworkFacts) and isinstance(host.network.interfaces, tuple):
            for interface in host.network.interfaces:
                for own in interface.addresses:
                    if own.address.split("/")[0] == address:
                        return own.address
    return f"{address}/32"
