"""Chooses the ports of HCAs that a job uses: ACTIVE ones of one link layer and rate, none that is for management."""

from collections import Counter
from typing import Dict, List, NamedTuple, Optional, Sequence, Set, Tuple

from taco_launch.core.facts.rdma.hcas import UNNAMED, natural
from taco_launch.core.model.host.fabric import Anomaly, FabricChoice, HostValue
from taco_launch.core.model.host.fact_value import Absent, Found, Unknown
from taco_launch.core.model.host.facts import HostFacts, NetworkFacts
from taco_launch.core.model.host.hardware import Hca, Port, Rdma


class Rail(NamedTuple):
    """One port of one HCA of one host."""

    host: str
    hca: Hca
    port: Port

    @property
    def name(self) -> str:
        """The port as NCCL_IB_HCA names it."""
        return f"{self.hca.name}:{self.port.number}"


def choose(hosts: Sequence[HostFacts]) -> Tuple[List[Rail], List[Anomaly], List[Anomaly]]:
    """Return the ports to be used, those left out, and what is odd besides ports that are not ACTIVE."""
    left_out: List[Anomaly] = []
    odd: List[Anomaly] = []
    active: List[Rail] = []
    any_known = any(isinstance(host.rdma, Rdma) and isinstance(host.rdma.hcas, tuple) for host in hosts)
    for host in hosts:
        if isinstance(host.rdma, Rdma) and isinstance(host.rdma.hcas, tuple):
            every = [Rail(host.host, hca, port) for hca in _named(host.rdma.hcas) for port in hca.ports]
            active += [rail for rail in every if rail.port.state == "ACTIVE"]
        elif any_known:
            part = host.rdma.hcas if isinstance(host.rdma, Rdma) else host.rdma
            odd.append(
                Anomaly(host.host, f"no HCA is known: {part.reason}" if isinstance(part, (Absent, Unknown)) else "")
            )
    layer = _most([str(rail.port.link_layer) for rail in active if isinstance(rail.port.link_layer, str)], active)
    same = [rail for rail in active if rail.port.link_layer == layer]
    left_out += [
        Anomaly(
            rail.host,
            f"{rail.name} is {_word(rail.port.link_layer)}, but a job uses ports of one link layer only, here {layer}",
        )
        for rail in active
        if rail.port.link_layer != layer
    ]
    of_host = by_host(same)
    kept: List[Rail] = []
    rates: Dict[str, Optional[Found[float]]] = {}
    for host in hosts:
        mine: List[Rail] = []
        rate = _common_rate(of_host.get(host.host, ()))
        for rail in of_host.get(host.host, ()):
            if rail.port.rate == rate:
                mine.append(rail)
                continue
            slower = isinstance(rail.port.rate, float) and isinstance(rate, float) and rail.port.rate < rate
            (odd if slower else left_out).append(
                Anomaly(
                    rail.host,
                    f"{rail.name} has {_rate(rail.port.rate)}, but most ports have {_rate(rate)}, so it is left out",
                )
            )
        mine, more = _without_management(host, mine)
        left_out += more
        kept += mine
        rates[host.host] = _common_rate(mine)
    # By hosts, not by ports: one host with many ports is still one host; of two as frequent the first counts.
    usual = next(iter(Counter(rate for rate in rates.values() if isinstance(rate, float)).most_common(1)), (None,))[0]
    odd += [
        Anomaly(host, f"its ports have {_rate(rate)}, but those of most hosts have {_rate(usual)}")
        for host, rate in rates.items()
        if rate is not None and usual is not None and rate != usual
    ]
    return kept, left_out, odd


def not_active(hosts: Sequence[HostFacts]) -> List[Anomaly]:
    """Return the ports that are not ACTIVE."""
    return [
        Anomaly(host.host, f"{hca.name}:{port.number} is {_word(port.state)}")
        for host in hosts
        if isinstance(host.rdma, Rdma) and isinstance(host.rdma.hcas, tuple)
        for hca in _named(host.rdma.hcas)
        for port in hca.ports
        if port.state != "ACTIVE"
    ]


def by_host(rails: Sequence[Rail]) -> Dict[str, List[Rail]]:
    """Return the ports of each host that has any."""
    found: Dict[str, List[Rail]] = {}
    for rail in rails:
        found.setdefault(rail.host, []).append(rail)
    return found


def _named(hcas: Sequence[Hca]) -> List[Hca]:
    return [hca for hca in hcas if hca.name != UNNAMED]


def _without_management(host: HostFacts, mine: List[Rail]) -> Tuple[List[Rail], List[Anomaly]]:
    """Leave out the port behind the default route where the host has two others: it is there for management."""
    names = _default_names(host.network)
    behind = [rail for rail in mine if isinstance(rail.hca.interfaces, tuple) and names & set(rail.hca.interfaces)]
    if not behind or len(mine) - len(behind) < 2:
        return mine, []
    why = "is left out: it carries the default route, so it is assumed to be the management port"
    return [rail for rail in mine if rail not in behind], [Anomaly(host.host, f"{rail.name} {why}") for rail in behind]


def _default_names(network: Found[NetworkFacts]) -> Set[str]:
    if not isinstance(network, NetworkFacts) or not isinstance(network.default_interface, str):
        return set()
    name = network.default_interface
    members = network.interfaces if isinstance(network.interfaces, tuple) else ()
    return {name, *(one.name for one in members if one.master == name)}


def layer_of(rails: Sequence[Rail], hosts: Sequence[HostFacts]) -> Found[FabricChoice]:
    """Return the link layer of the chosen ports, or why there is none."""
    if rails:
        layer = str(rails[0].port.link_layer)
        return FabricChoice(layer, f"{layer}; ACTIVE ports: {len(rails)}, hosts: {len({rail.host for rail in rails})}")
    reasons = [
        part
        for host in hosts
        for part in [host.rdma.hcas if isinstance(host.rdma, Rdma) else host.rdma]
        if isinstance(part, Unknown)
    ]
    if reasons:
        return reasons[0]
    if any(isinstance(host.rdma, Rdma) and isinstance(host.rdma.hcas, tuple) for host in hosts):
        return Unknown("no port is known to be ACTIVE with a known link layer")
    return Absent("no host has an HCA")


def _most(values: Sequence[str], active: Sequence[Rail]) -> Optional[str]:
    """Return the most frequent link layer; of two that are as frequent the faster one."""
    counted = Counter(values)

    def speed(layer: str) -> float:
        rates = [rail.port.rate for rail in active if rail.port.link_layer == layer]
        return sum(rate for rate in rates if isinstance(rate, float))

    return max(counted, key=lambda layer: (counted[layer], speed(layer), layer), default=None)


def _common_rate(rails: Sequence[Rail]) -> Optional[Found[float]]:
    counted = Counter(rail.port.rate for rail in rails)
    known = {rate: count for rate, count in counted.items() if isinstance(rate, float)}
    if known:
        return max(known, key=lambda rate: (known[rate], rate))
    return rails[0].port.rate if rails else None


def lists(
    rails: Sequence[Rail], hosts: Sequence[HostFacts]
) -> Tuple[Found[FabricChoice], Tuple[HostValue, ...], List[Anomaly]]:
    """Return NCCL_IB_HCA for all hosts, or for each of them; and which hosts have other ports than most."""
    of_host = by_host(rails)
    own = {host.host: tuple(rail.name for rail in of_host.get(host.host, ())) for host in hosts}
    with_any = {host: names for host, names in own.items() if names}
    usual = Counter(frozenset(names) for names in with_any.values()).most_common(1)[0][0]
    odd = [
        Anomaly(
            host, f"uses {', '.join(names) or 'no port'}, but most hosts use {', '.join(sorted(usual, key=natural))}"
        )
        for host, names in own.items()
        if frozenset(names) != usual
    ]
    known = {host.host: _known(host) for host in hosts}
    # NCCL passes over a listed port that is not ACTIVE, so that a host with a port down can do with the list of all.
    fits = all(set(names) <= usual and not (known[host] - set(names)) & usual for host, names in with_any.items())
    if fits:
        value = "=" + ",".join(sorted(usual, key=natural))
        return (
            FabricChoice(
                value, "the ACTIVE ports of one link layer and rate; with the =, mlx5_1 does not also match mlx5_10"
            ),
            (),
            odd,
        )
    env = tuple(
        HostValue(
            host,
            "NCCL_IB_HCA",
            "=" + ",".join(_by_address(of_host[host])),
            "the names differ between hosts, so they are listed in PCI order",
        )
        for host in with_any
    )
    return Absent("the names differ from host to host"), env, odd


def _known(host: HostFacts) -> Set[str]:
    """Return the ACTIVE ports of a host."""
    if not isinstance(host.rdma, Rdma) or not isinstance(host.rdma.hcas, tuple):
        return set()
    return {f"{hca.name}:{port.number}" for hca in host.rdma.hcas for port in hca.ports if port.state == "ACTIVE"}


def _by_address(mine: Sequence[Rail]) -> List[str]:
    """Return the names of a host's ports in PCI order."""
    return [rail.name for rail in sorted(mine, key=lambda rail: (str(rail.hca.pci), natural(rail.name)))]


def _rate(rate: Optional[Found[float]]) -> str:
    return f"{rate:g} Gb/s" if isinstance(rate, float) else "a rate that is not known"


def _word(found: Found[str]) -> str:
    return found if isinstance(found, str) else "not known"
