"""Chooses the network interface of a job: one name for all hosts, a CIDR where names differ, and what each host has."""

import ipaddress
from typing import Iterable, List, Mapping, NamedTuple, Optional, Sequence, Tuple

from taco_launch.core.model.host.fabric import FabricChoice, HostValue
from taco_launch.core.model.host.fact_value import Absent, Found, Unknown
from taco_launch.core.model.host.facts import Bond, HostFacts, Interface, NetworkFacts


class Carrier(NamedTuple):
    """The interface by which the other hosts reach one; `address` (`10.0.0.1/24`) is its first IPv4 address."""

    name: str
    address: Optional[str]
    why: str


def carrier(network: Found[NetworkFacts], wanted: Optional[str] = None) -> Found[Carrier]:
    """Return the interface by which others reach this host: `wanted`, or that of the connection, or the default route's.

    A member of a bond stands for its bond.
    """
    if isinstance(network, (Absent, Unknown)):
        return network
    if isinstance(network.interfaces, (Absent, Unknown)):
        return network.interfaces
    found = {one.name: one for one in network.interfaces}
    if wanted is not None:
        if wanted not in found:
            return Unknown(f"there is no interface {wanted}: there are {', '.join(found)}")
        return Carrier(wanted, _address(found[wanted]), "named by the user")
    for name, why in (
        (network.reached_by, "carries the address by which the host is reached"),
        (network.default_interface, "carries the default route"),
    ):
        if isinstance(name, str) and name in found and found[name].kind != "loopback":
            master = found[name].master
            if master in found:
                return Carrier(master, _address(found[master]), f"it is the bond of {name}, which {why}")
            return Carrier(name, _address(found[name]), why)
    return Unknown("neither the interface of the SSH connection nor the interface of the default route is known")


def common(
    carriers: Mapping[str, Found[Carrier]], hosts: Sequence[HostFacts]
) -> Tuple[Found[FabricChoice], Tuple[HostValue, ...]]:
    """Return the interface for all hosts, and NCCL_SOCKET_IFNAME for each where the names differ.

    A CIDR is given only where it holds the address of each host's interface and of no other of its interfaces.
    """
    known = {host: one for host, one in carriers.items() if isinstance(one, Carrier)}
    for host, one in carriers.items():
        if not isinstance(one, Carrier):
            return Unknown(f"{host}: {one.reason}"), ()
    if not known:
        return Unknown("there are no hosts"), ()
    names = {one.name for one in known.values()}
    if len(names) == 1:
        first = next(iter(known.values()))
        return FabricChoice(first.name, f"{first.why}; hosts: {len(known)}"), ()
    told = ", ".join(f"{host} {one.name}" for host, one in known.items())
    own = tuple(HostValue(host, "NCCL_SOCKET_IFNAME", f"={one.name}", one.why) for host, one in known.items())
    cidr = enclosing([one.address for one in known.values() if one.address])
    if cidr is None or any(one.address is None for one in known.values()):
        return Unknown(f"the names differ ({told}), and not every interface has an IPv4 address"), own
    for facts in hosts:
        if isinstance(facts.network, NetworkFacts) and isinstance(facts.network.interfaces, tuple):
            inside = [one.name for one in facts.network.interfaces if _holds(cidr, one) and one.kind != "loopback"]
            if inside != [known[facts.host].name]:
                more = f"{facts.host} has several interfaces in {cidr}: {', '.join(inside)}"
                return Unknown(f"the names differ ({told}), and {more}"), own
    return FabricChoice(cidr, f"the names differ ({told}): {_what(cidr, known.values())}"), own


def _what(cidr: str, carriers: Iterable[Carrier]) -> str:
    """Return what a CIDR is: a network that a host has, or a range that nobody has configured."""
    networks = list(dict.fromkeys(str(enclosing([one.address])) for one in carriers if one.address))
    if cidr in networks:
        return "the network of their addresses"
    held = " and ".join(networks)
    return f"the smallest range that contains {held}; it is not known whether these networks can reach each other"


def enclosing(addresses: Sequence[str]) -> Optional[str]:
    """Return the network of these IPv4 addresses (`10.0.0.1/24`): the one they share, or the smallest around them."""
    if not addresses:
        return None
    networks = [ipaddress.IPv4Interface(address).network for address in addresses]
    found = networks[0]
    while not all(network.subnet_of(found) for network in networks):
        found = found.supernet()
    return str(found)


def half_bonds(network: Found[NetworkFacts]) -> List[str]:
    """Return what is wrong with the host's bonds: a member that is down halves the bandwidth and says nothing."""
    if isinstance(network, (Absent, Unknown)) or not isinstance(network.bonds, tuple):
        return []
    return [_half(bond) for bond in network.bonds if any(not member.up for member in bond.members)]


def _half(bond: Bond) -> str:
    down = [member.name for member in bond.members if not member.up]
    return (
        f"{bond.name} has {len(bond.members) - len(down)} of {len(bond.members)} members up: {', '.join(down)} is down"
    )


def _address(interface: Interface) -> Optional[str]:
    return next((one.address for one in interface.addresses if ":" not in one.address and one.scope == "global"), None)


def _holds(cidr: str, interface: Interface) -> bool:
    network = ipaddress.IPv4Network(cidr)
    return any(
        ipaddress.IPv4Interface(one.address).ip in network for one in interface.addresses if ":" not in one.address
    )
