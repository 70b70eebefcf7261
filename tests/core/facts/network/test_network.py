"""Routes, the way a connection came, and listening ports, where the cases of whole hosts say too little."""

from typing import Any

import pytest

from taco_launch.core.facts.network.network import parse_network
from taco_launch.core.facts.text.sections import Section
from taco_launch.core.model.host.fact_value import Absent, Unknown
from taco_launch.core.model.host.facts import Listener, NetworkFacts
from tests.support.host_facts import known

TAIL = "\t0\t0\t0"
REJECT6 = (
    "/proc/net/ipv6_route:"
    + "0" * 32
    + " 00 "
    + "0" * 32
    + " 00 "
    + "0" * 32
    + " ffffffff 00000001 00000000 00200200       lo\n"
)
DEFAULT6 = (
    "/proc/net/ipv6_route:"
    + "0" * 32
    + " 00 "
    + "0" * 32
    + " 00 fe80"
    + "0" * 27
    + "1 00000064 00000001 00000000 00000003     eth6\n"
)
NET = """/sys/class/net/lo/ifindex:1
/sys/class/net/eth0/ifindex:2
/sys/class/net/eth1/ifindex:3
/sys/class/net/lo/type:772
/sys/class/net/eth0/type:1
/sys/class/net/eth1/type:1
/sys/class/net/lo/operstate:unknown
/sys/class/net/eth0/operstate:up
/sys/class/net/eth1/operstate:up
/sys/class/net/lo/mtu:65536
/sys/class/net/eth0/mtu:1500
/sys/class/net/eth1/mtu:9000
"""
ADDRESSES = """1: lo    inet 127.0.0.1/8 scope host lo
2: eth0    inet 10.0.0.1/24 brd 10.0.0.255 scope global eth0
2: eth0    inet6 fe80::1/64 scope link
3: eth1    inet 10.1.0.1/24 brd 10.1.0.255 scope global eth1
3: eth1    inet6 fe80::1/64 scope link
"""


def network(**said: str) -> NetworkFacts:
    texts = {"interfaces": NET, "addresses": ADDRESSES, "connection": "\n", "routes": "", "listeners": "", **said}
    return known(
        parse_network({f"network.{name}": Section(f"network.{name}", text, "", 0) for name, text in texts.items()})
    )


def route(dev: str, flags: str = "0003", metric: int = 0, mask: str = "00000000") -> str:
    return f"/proc/net/route:{dev}\t00000000\t0100000A\t{flags}\t0\t0\t{metric}\t{mask}{TAIL}\n"


@pytest.mark.parametrize(
    ("routes", "interface"),
    [
        ("", Absent("there is no default route")),
        (route("eth0"), "eth0"),
        (route("eth0", metric=200) + route("eth1", metric=100), "eth1"),
        (route("eth0") + route("eth1"), "eth0"),
        (route("*", "0201") + route("eth1", metric=9), "eth1"),
        (route("eth0", "0002") + route("eth1", metric=9), "eth1"),
        (route("tun0", mask="00000080") + route("eth1", metric=9), "eth1"),
        (REJECT6, Absent("there is no default route")),
        (REJECT6 + DEFAULT6, "eth6"),
        (DEFAULT6 + route("eth0", metric=4000), "eth0"),
    ],
)
def test_the_default_route(routes: str, interface: Any) -> None:
    assert network(routes=routes).default_interface == interface


@pytest.mark.parametrize(
    "row", ["eth0\t00000000\t0100000A\t0003", "eth000000000\t0100000A\t0003\t0\t0\t0\t00000000\t0\t0\t0"]
)
def test_a_route_that_is_not_understood(row: str) -> None:
    assert isinstance(network(routes=f"/proc/net/route:{row}\n").default_interface, Unknown)


@pytest.mark.parametrize(
    ("connection", "interface"),
    [
        ("10.0.0.9 5 10.0.0.1 22", "eth0"),
        ("10.0.0.9 5 ::ffff:10.1.0.1 22", "eth1"),
        ("127.0.0.1 5 127.9.9.9 22", "lo"),
        ("fe80::9%eth1 5 fe80::1%eth1 22", "eth1"),
        ("", Absent("not reached over SSH")),
        ("fe80::9 5 fe80::1 22", Unknown("fe80::1 is on several interfaces: eth0, eth1")),
        ("10.0.0.9 5 10.0.0.2 22", Unknown("no interface has the address 10.0.0.2: is there NAT on the way?")),
        ("10.0.0.9 5 10.0.0.1", Unknown("SSH_CONNECTION: '10.0.0.9 5 10.0.0.1' is not understood")),
        ("10.0.0.9 5 gpu1 22", Unknown("SSH_CONNECTION: '10.0.0.9 5 gpu1 22' is not understood")),
    ],
)
def test_the_way_a_connection_came(connection: str, interface: Any) -> None:
    assert network(connection=connection).reached_by == interface


def test_an_interface_that_went_while_it_was_looked_at() -> None:
    gone = "/sys/class/net/veth1/ifindex:9\n/sys/class/net/veth1/iflink:8\n"
    assert network(interfaces=NET + gone).interfaces == network().interfaces
    found = network(interfaces=NET + gone + "/sys/class/net/veth1/mtu:1500\n").interfaces
    assert found == Unknown("/sys/class/net/veth1: operstate cannot be read")


def test_an_old_ip_tells_of_interfaces_too() -> None:
    link = "2: eth0: <BROADCAST,UP> mtu 1500 qdisc mq state UP qlen 1000\\    link/ether 52:54:00:00:00:01 brd ff:ff:ff:ff:ff:ff\n"
    found = network(addresses=link + ADDRESSES).interfaces
    assert found == network().interfaces
    assert isinstance(found, tuple)
    assert [address.address for address in known(found[1]).addresses] == ["10.0.0.1/24", "fe80::1/64"]


def test_listening_ports_are_each_told_once() -> None:
    row = 'LISTEN 0 128 0.0.0.0:22 0.0.0.0:* users:(("sshd",pid=1,fd=3))\n'
    assert network(listeners=row * 2 + row.replace("0.0.0.0:22", "[::]:9")).listeners == (
        Listener("::", 9, "sshd"),
        Listener("0.0.0.0", 22, "sshd"),
    )
    assert isinstance(network(listeners=row.replace(":22", ":99999")).listeners, Unknown)


def test_addresses_are_text_of_the_tools_under_each_python() -> None:
    row = "/proc/net/tcp6:   0: 0000000000000000FFFF00000100007F:0016 00000000000000000000000000000000:0000 0A 0 0 0 0 0 0\n"
    assert network(listeners=row).listeners == (Listener("::ffff:127.0.0.1", 22, None),)
    more = "3: eth1    inet6 ::ffff:10.1.0.1/120 scope global\n"
    found = network(addresses=ADDRESSES + more).interfaces
    assert isinstance(found, tuple)
    assert [address.address for address in known(found[2]).addresses][-1] == "::ffff:10.1.0.1/120"


# As tc of iproute2 6.1 prints it; the last line is of an interface with a queue that slows nothing.
QDISCS = """qdisc noqueue 0: dev lo root refcnt 2
qdisc tbf 8001: dev eth0 root refcnt 2 rate 100Mbit burst 128Kb lat 100ms
qdisc fq_codel 0: dev eth1 root refcnt 2 limit 10240p flows 1024 quantum 1514 target 5ms interval 100ms ecn
"""


@pytest.mark.parametrize(
    ("qdiscs", "shaping"),
    [
        (QDISCS, "tbf rate 100Mbit"),
        (QDISCS.replace("8001: dev eth0 root", "8001: dev eth0 parent 1:2"), None),
        ("qdisc netem 8002: dev eth0 root refcnt 2 limit 1000 delay 10ms loss 1%\n", "netem delay 10ms loss 1%"),
        ("", None),
    ],
)
def test_what_slows_an_interface(qdiscs: str, shaping: str | None) -> None:
    found = {one.name: one.shaping for one in network(qdiscs=qdiscs).interfaces}  # type: ignore[union-attr]
    assert found == {"lo": None, "eth0": shaping, "eth1": None}
