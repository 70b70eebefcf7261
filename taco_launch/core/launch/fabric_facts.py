"""Facts of a job's hosts -> what they say of the network between them: interface, RDMA, GPUDirect RDMA, HCAs, GIDs."""

from typing import Dict, Iterator, List, Mapping, Optional, Sequence, Tuple

from taco_launch.core.facts.fabric import fabric
from taco_launch.core.facts.network.interface import Carrier, carrier, half_bonds
from taco_launch.core.facts.rdma.gid import readable
from taco_launch.core.facts.rdma.gid_plan import choice_of, found_by_nccl
from taco_launch.core.facts.rdma.rails import Rail, by_host, choose
from taco_launch.core.model.host.fabric import Anomaly, Fabric, FabricChoice, GidChoice
from taco_launch.core.model.host.fact_value import Absent, Found, Unknown, known_value
from taco_launch.core.model.host.facts import HostFacts
from taco_launch.core.model.host.hardware import Rdma
from taco_launch.core.model.host.versions import version
from taco_launch.core.model.job_facts import Capability, FabricFacts, SharedValue

# The first NCCL that reaches GPU memory by DMA-BUF, without a module (its release notes).
_DMABUF = (2, 13)
_SHOWN = 4


def between(hosts: Sequence[HostFacts], nccl: Optional[str] = None, interface: Optional[str] = None) -> FabricFacts:
    """Return what is said of these hosts; `nccl` and `interface` are what is known and named, as for `fabric`."""
    made = fabric(hosts, nccl, interface)
    carriers = {host.host: carrier(host.network, interface) for host in hosts}
    rails, _left_out, odd = choose(hosts)
    names = {one.name for one in carriers.values() if isinstance(one, Carrier)}
    network = _shared(made.interface)
    same = network if len(names) == 1 else SharedValue(None, network.why)
    return FabricFacts(
        interface=same,
        network=network,
        rdma=_rdma(rails, hosts, carriers, made, nccl),
        gdr=_gdr(hosts, nccl),
        hcas=_hcas(made),
        gid_index=_shared(made.gid_index),
        address_range=_shared(made.address_range),
        hcas_there=any(_has_hcas(host) for host in hosts),
        link_layer=made.link_layer.value if isinstance(made.link_layer, FabricChoice) else "",
        finds_gid=found_by_nccl(rails, carriers),
        host_env=tuple((one.host, one.name, one.value) for one in made.host_env),
        gids=tuple(dict.fromkeys((one.host, one.choice.gid_index) for one in made.gids)),
        odd_ports=_folded((*_fewer(rails, hosts), *odd)),
        down_ports=tuple((host.host, *port) for host in hosts for port in _down(rails, host)),
        odd=_folded([Anomaly(host.host, what) for host in hosts for what in half_bonds(host.network)]),
    )


def join_names(names: Sequence[str]) -> str:
    """Return names as a list, the first few of many."""
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    return f"{', '.join(names[:_SHOWN])}{more}"


def _folded(odd: Sequence[Anomaly]) -> Tuple[str, ...]:
    """Return what is odd about which hosts, each thing once."""
    hosts: Dict[str, List[str]] = {}
    for one in odd:
        hosts.setdefault(one.what, []).append(one.host)
    return tuple(f"{join_names(on)}: {what}" for what, on in hosts.items())


def _shared(found: Found[FabricChoice]) -> SharedValue:
    return SharedValue(found.value, found.why) if isinstance(found, FabricChoice) else SharedValue(None, found.reason)


def _hcas(made: Fabric) -> SharedValue:
    """Add to the list of HCAs which ports are there and are not in it."""
    shared = _shared(made.hcas)
    left = dict.fromkeys(one.what for one in made.left_out)
    return SharedValue(shared.value, "; ".join((shared.why, *(f"not used: {what}" for what in left))))


def _has_hcas(host: HostFacts) -> bool:
    return bool(known_value(host.hcas))


def _rdma(
    rails: Sequence[Rail],
    hosts: Sequence[HostFacts],
    carriers: Mapping[str, Found[Carrier]],
    made: Fabric,
    nccl: Optional[str],
) -> Capability:
    """Return whether every host has a port that can be used, and every such port an address that it is reached by."""
    if not any(_has_hcas(host) for host in hosts) and not any(map(_unknown, hosts)):
        return Capability(False, "no host has an HCA")
    having = by_host(rails)
    faults = {host.host: _without(host, made) for host in hosts if host.host not in having}
    unknown = [_unknown(host) for host in hosts if host.host in faults and _unknown(host)]
    for rail in () if _is_infiniband(made) else rails:
        choice = choice_of(rail, carriers.get(rail.host))
        if not isinstance(choice, GidChoice):
            if readable(rail.port):
                faults.setdefault(rail.host, choice.reason)
            else:
                unknown.append(f"{rail.host}: {choice.reason}")
    if faults and not unknown:
        return Capability(False, "; ".join(_folded([Anomaly(host, why) for host, why in faults.items()])))
    if not faults and not unknown and made.gids and isinstance(made.gid_index, Unknown):
        return Capability(False if nccl else None, made.gid_index.reason)
    return Capability(None, "; ".join(unknown)) if unknown else Capability(True, "every host has an ACTIVE RDMA port")


def _is_infiniband(made: Fabric) -> bool:
    return isinstance(made.link_layer, FabricChoice) and made.link_layer.value == "InfiniBand"


def _unknown(host: HostFacts) -> str:
    """Return why it is not known which ports a host has, or which of them are ACTIVE; empty where it is."""
    part: Found[object] = host.hcas
    if isinstance(part, tuple):
        words = [word for hca in part for port in hca.ports for word in (port.state, port.link_layer)]
        part = next((word for word in words if isinstance(word, Unknown)), Absent())
    return f"{host.host}: {part.reason}" if isinstance(part, Unknown) else ""


def _without(host: HostFacts, made: Fabric) -> str:
    """Return why a host has no port to be used."""
    down = [f"{name} is {state}" for name, state in _ports(host) if state != "ACTIVE"]
    return join_names([*down, *(one.what for one in made.left_out if one.host == host.host)]) or "no HCA"


def _ports(host: HostFacts) -> List[Tuple[str, str]]:
    """Return (name, state) of a host's ports."""
    return [
        (f"{hca.name}:{port.number}", known_value(port.state) or "in an unknown state")
        for hca in known_value(host.hcas) or ()
        for port in hca.ports
    ]


def _down(rails: Sequence[Rail], host: HostFacts) -> List[Tuple[str, str]]:
    """Return (name, state) of the ports that a job uses on other hosts and that are not ACTIVE here."""
    used = {rail.name for rail in rails}
    return [(name, state) for name, state in _ports(host) if name in used and state != "ACTIVE"]


def _fewer(rails: Sequence[Rail], hosts: Sequence[HostFacts]) -> Iterator[Anomaly]:
    """Name the hosts that have fewer ports for a job than others, and which of those it would use are not ACTIVE."""
    having = by_host(rails)
    most = max((len(mine) for mine in having.values()), default=0)
    for host in hosts:
        count = len(having.get(host.host, ()))
        if 0 < count < most:
            down = [f"{name} is {state}" for name, state in _down(rails, host)]
            why = f": {join_names(down)} (check the cable and the port of the switch)" if down else ""
            yield Anomaly(host.host, f"only {count} of the {most} RDMA ports that the job can use on other hosts{why}")


def _gdr(hosts: Sequence[HostFacts], nccl: Optional[str]) -> Capability:
    """Return whether the HCAs of every host reach the memory of its GPUs: by a module, or by DMA-BUF."""
    ways: List[Anomaly] = []
    lacking: List[Anomaly] = []
    unknown: List[str] = []
    for host in hosts:
        peer = host.rdma.peer_memory if isinstance(host.rdma, Rdma) else None
        if peer is None:
            unknown.append(f"{host.host}: nothing is known of its peer memory module")
        elif isinstance(peer.loaded, Unknown):
            unknown.append(f"{host.host}: {peer.loaded.reason}")
        elif isinstance(peer.loaded, str):
            ways.append(Anomaly(host.host, f"{peer.loaded} is loaded"))
        elif peer.dmabuf is True and nccl is not None and version(nccl) >= _DMABUF:
            ways.append(Anomaly(host.host, "kernel and driver support DMA-BUF"))
        elif peer.dmabuf is False:
            lacking.append(Anomaly(host.host, peer.loaded.reason))
        elif peer.dmabuf is True and nccl is not None:  # an older one than knows it
            lacking.append(Anomaly(host.host, f"{peer.loaded.reason}, and NCCL {nccl} does not support DMA-BUF"))
        elif peer.dmabuf is True:
            unknown.append(
                f"{host.host}: no peer memory module is loaded, and whether NCCL supports DMA-BUF (2.13 or newer) is not known"
            )
        else:
            unknown.append(f"{host.host}: {peer.loaded.reason}, and whether DMA-BUF is available is not known")
    if lacking:
        return Capability(False, "; ".join(_folded(lacking)))
    return Capability(None, join_names(unknown)) if unknown else Capability(True, "; ".join(_folded(ways)))
