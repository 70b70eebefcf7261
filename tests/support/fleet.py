"""Hosts with HCAs, for tests of choices over several hosts."""

from dataclasses import replace
from typing import Any

from taco_launch.core.model.host.facts import Address, HostFacts, Interface, NetworkFacts
from taco_launch.core.model.host.hardware import Gid, Hca, Port
from tests.support.host_facts import host, known

LOCAL = "fe80:0000:0000:0000:0e42:a1ff:fe00:0001"


def mapped(address: str) -> str:
    return "0000:0000:0000:0000:0000:ffff:{:02x}{:02x}:{:02x}{:02x}".format(*map(int, address.split(".")))


def gids(address: str, netdev: str, first: int = 2) -> tuple[Gid, ...]:
    """Return a table: link-local GIDs, and those of `address` in the slots `first` and the next."""
    slots = [(0, LOCAL), (first, mapped(address))]
    kinds = ("IB/RoCE v1", "RoCE v2")
    return tuple(Gid(index + n, gid, kind, netdev) for index, gid in slots for n, kind in enumerate(kinds))


def hca(name: str, interfaces: tuple[str, ...] = (), pci: str = "0000:1b:00.0", **of: Any) -> Hca:
    given = {"state": "ACTIVE", "physical": "LinkUp", "link_layer": "InfiniBand", "rate": 400.0, "gids": (), **of}
    return Hca(name, (Port(1, **given),), pci, 0, "28.39", "MT4129", "g", interfaces)


def roce(name: str, interface: str, address: str, first: int = 2, **of: Any) -> Hca:
    table = gids(address, interface, first)
    return hca(name, (interface,), **{"link_layer": "Ethernet", "rate": 100.0, "gids": table, **of})


def with_hcas(name: str, *hcas: Hca, network: NetworkFacts | None = None) -> HostFacts:
    facts = host(name)
    return replace(facts, rdma=replace(known(facts.rdma), hcas=hcas), network=network or facts.network)


def network(name: str, address: str, *others: Interface) -> NetworkFacts:
    """Return a network whose interface `name` carries `address`, the default route and the connection."""
    facts = host("gpu1")
    own = Interface(name, "physical", "up", 1500, "aa", (Address(address, "global"),), 100.0)
    return replace(known(facts.network), interfaces=(own, *others), bonds=(), default_interface=name, reached_by=name)
