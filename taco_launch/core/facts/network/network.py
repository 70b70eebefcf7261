"""Reads interfaces, addresses, bonds, routes and listening ports; the firewall is in firewall.py."""

import ipaddress
import re
import socket
from typing import Dict, List, Mapping, NamedTuple, Optional, Tuple, Union

from taco_launch.core.facts.network.firewall import parse_firewalls
from taco_launch.core.facts.text.sections import Files, Sections, answer, failure, files, unasked
from taco_launch.core.facts.text.strip_terminal import shown
from taco_launch.core.model.host.fact_value import Absent, Found, Unknown
from taco_launch.core.model.host.facts import Address, Bond, BondMember, Interface, Listener, NetworkFacts

_NET = "/sys/class/net"
# include/uapi/linux/if_arp.h
_ETHER, _LOOPBACK = "1", "772"
# include/uapi/linux/route.h
_UP, _REJECT = 0x1, 0x200
_ADDRESS = re.compile(
    r"[0-9]{1,9}: +([^\s@]+)(?:@\S+)? +inet6? ([0-9A-Fa-f:.]+)(/[0-9]{1,3})?(?: peer ([0-9A-Fa-f:.]+)(/[0-9]{1,3}))?"
    r"(?: \S+)*? scope (global|site|link|host|[0-9]{1,3})(?: .*)?"
)
_LISTEN = re.compile(r"LISTEN\s+[0-9]+\s+[0-9]+\s+(\S+):([0-9]{1,5})\s+\S+:\*(?:\s+users:\(\(\"([^\"]+)\".*)?\s*")
# tc(8): those that hold packets back, not those that share a link among flows
_QDISC = re.compile(r"qdisc (tbf|netem|htb|hfsc|cake) \S+ dev (\S+) root (.*)")
_LIMITS = re.compile(r"\b(?:rate|bandwidth|delay|loss) \S+")

_PCI = re.compile(r"[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]")
_INDEX, _NUMBER = "[1-9][0-9]{0,8}", "-?[0-9]{1,9}"
# what the files of sysfs hold that have one line each
_FORMS = {
    "ifindex": _INDEX,
    "iflink": _NUMBER,
    "type": _NUMBER,
    "operstate": "[a-z]+",
    "mtu": "[0-9]{1,9}",
    "address": "[0-9a-f:]*",
    "speed": _NUMBER,
    "master/ifindex": _INDEX,
    "device/numa_node": _NUMBER,
}

Interfaces = Tuple[Interface, ...]


def parse_network(sections: Sections) -> Found[NetworkFacts]:
    """Read the probe's sections network.*; each fact that cannot be read is Unknown by itself."""
    missing = unasked(sections, "network")
    if missing is not None:
        return missing
    told = files(sections, "network.files")
    bonds = _bonds(told)
    interfaces = _interfaces(sections, bonds)
    return NetworkFacts(
        interfaces=interfaces,
        bonds=bonds,
        default_interface=_default(sections),
        reached_by=_reached_by(answer(sections, "network.connection"), interfaces),
        firewalls=parse_firewalls(sections, told),
        port_range=_port_range(told.text("/proc/sys/net/ipv4/ip_local_port_range")),
        listeners=_listeners(answer(sections, "network.listeners")),
    )


def _interfaces(sections: Sections, bonds: Found[Tuple[Bond, ...]]) -> Found[Interfaces]:
    """Put together what sysfs and `ip -o addr` say; an address of an interface that sysfs does not name is left out."""
    told = files(sections, "network.interfaces")
    addresses = _addresses(answer(sections, "network.addresses"))
    if told.failed is not None or told.cut is not None:
        return told.failed or failure(sections, "network.interfaces") or Unknown("the answer was cut off")
    if not isinstance(addresses, dict):
        return Unknown(f"their addresses cannot be read: {addresses.reason}")
    of = _attributes(told)
    if isinstance(of, Unknown):
        return of
    names = {values["ifindex"]: name for name, values in of.items()}
    if len(names) != len(of) or not of:
        return Unknown(f"{_NET}: several interfaces have the same index")
    bonded = tuple(bond.name for bond in bonds) if isinstance(bonds, tuple) else ()
    found: List[Interface] = []
    shaped = _shaping(answer(sections, "network.qdiscs"))
    for name, values in of.items():
        speed, numa = int(values.get("speed", -1)), int(values.get("device/numa_node", -1))  # -1: not told
        pci = re.search(r"(?m)^PCI_SLOT_NAME=(.*)$", values.get("device/uevent", ""))
        if pci is not None and not _PCI.fullmatch(pci[1]):
            return Unknown(f"{_NET}/{name}/device/uevent: {shown(pci[0])} is not understood")
        found.append(
            Interface(
                name=name,
                kind="bond" if name in bonded else _kind(values),
                state=values["operstate"],
                mtu=int(values["mtu"]),
                mac=values.get("address", ""),
                addresses=tuple(addresses.get(name, ())),
                speed=speed / 1000 if speed > 0 else None,
                master=names.get(values.get("master/ifindex", "")),
                pci=pci[1] if pci else None,
                numa=numa if numa >= 0 else None,
                shaping=shaped.get(name),
            )
        )
    return tuple(sorted(found, key=lambda interface: int(of[interface.name]["ifindex"])))


def _shaping(told: Found[str]) -> Dict[str, str]:
    """Read `tc qdisc show`: what is at the root of an interface and slows it, with its rate, delay or loss."""
    if not isinstance(told, str):
        return {}
    rows = (_QDISC.match(line) for line in told.split("\n"))
    return {row[2]: " ".join([row[1], *_LIMITS.findall(row[3])]) for row in rows if row is not None}


def _attributes(told: Files) -> Union[Dict[str, Dict[str, str]], Unknown]:
    """Return what sysfs says of each interface, by interface and file; one that went in the meantime is left out."""
    of: Dict[str, Dict[str, str]] = {}
    for path, text in told.below(_NET):
        name, _, attribute = path.partition("/")
        lines = tuple(dict.fromkeys(text.split("\n")))
        form = _FORMS.get(attribute)
        if form is not None and (len(lines) != 1 or not re.fullmatch(form, lines[0])):
            return Unknown(f"{_NET}/{path}: {shown(text)} is not understood")
        of.setdefault(name, {})[attribute] = "\n".join(lines)
    whole = {name: values for name, values in of.items() if {"mtu", "operstate"} & {*values}}
    for name, values in whole.items():
        missing = {"mtu", "operstate", "ifindex"} - {*values}
        if missing:
            return Unknown(f"{_NET}/{name}: {' and '.join(sorted(missing))} cannot be read")
    return whole


def _kind(values: Mapping[str, str]) -> str:
    device = re.search("(?m)^DEVTYPE=(bond|bridge|vlan)$", values.get("uevent", ""))
    if values.get("type") == _LOOPBACK:
        return "loopback"
    if "bonding/mode" in values:
        return "bond"
    if device is not None:
        return device[1]
    if "device/uevent" in values:
        return "physical"
    # The kernel gives veth no device type; it is the Ethernet whose other end is an interface with another index.
    plain = values.get("type") == _ETHER and "DEVTYPE=" not in values.get("uevent", "")
    linked = values.get("iflink", "0") not in ("0", values.get("ifindex"))
    return "veth" if plain and linked else "virtual"


def _addresses(text: Found[str]) -> Union[Dict[str, List[Address]], Unknown]:
    """Read `ip -o addr`; the lines with which old versions describe the interface itself are passed over.

    Raises:
        ValueError: a line is not as `ip` prints it.
    """
    if not isinstance(text, str):
        return Unknown(text.reason)
    found: Dict[str, List[Address]] = {}
    for line in text.split("\n"):
        if not line.strip() or re.match(r"[0-9]+: [^\s@]+(@\S+)?: <", line):
            continue
        match = _ADDRESS.fullmatch(line.replace("\\", " "))
        try:
            if match is None:
                raise ValueError  # noqa: TRY301
            # of a point-to-point address the prefix is the other end's: here it is one address
            bits = match[3] or ("/128" if ":" in match[2] else "/32")
            written = f"{match[2]}{bits}"
            ipaddress.ip_interface(written)
        except ValueError:
            return Unknown(f"ip -o addr: {shown(line)} is not understood")
        # as ip wrote it: Pythons before 3.13 write an IPv4-mapped address in another way
        address = Address(written, match[6])
        if address not in found.setdefault(match[1], []):
            found[match[1]].append(address)
    return found


def _bonds(told: Files) -> Found[Tuple[Bond, ...]]:
    """Read /proc/net/bonding: a part about the bond, then one for each member, started by `Slave Interface`."""
    if told.failed is not None or told.cut is not None:
        return told.failed or Unknown("/proc/net/bonding: the answer was cut off")
    for path, reason in told.refused.items():
        if path.startswith("/proc/net/bonding") and reason != "No such file or directory":
            return Unknown(f"{path}: {reason}")
    bonds = []
    for name, text in told.below("/proc/net/bonding"):
        head, *parts = re.split(r"(?m)^Slave Interface: ", text)
        mode = re.findall(r"(?m)^Bonding Mode: ([!-~][ -~]*)$", head)
        up = _mii(head)
        members = tuple(_member(part) for part in parts)
        whole = tuple(member for member in members if member is not None)
        if len(mode) != 1 or up is None or len(whole) != len(members):
            return Unknown(f"/proc/net/bonding/{name} is not understood: {shown(text)}")
        bonds.append(Bond(name, mode[0].strip(), up, whole))
    return tuple(bonds)


def _mii(text: str) -> Optional[bool]:
    words = re.findall(r"(?m)^MII Status: (\S.*)$", text)
    return words[0].strip() == "up" if len(words) == 1 else None


def _member(text: str) -> Optional[BondMember]:
    name, up = text.partition("\n")[0].strip(), _mii(text)
    speed = re.findall(r"(?m)^Speed: (?:([0-9]{1,9}) Mbps|Unknown)\s*$", text)
    if not re.fullmatch(r"\S+", name) or up is None or len(speed) != 1:
        return None
    return BondMember(name, up, int(speed[0]) / 1000 if speed[0] else None)


def _default(sections: Sections) -> Found[str]:
    """Return the interface of the default route with the lowest metric: of IPv4, and where there is none, of IPv6."""
    told = files(sections, "network.routes")
    if told.failed is not None or told.cut is not None:
        return told.failed or Unknown("/proc/net/route: the answer was cut off")
    for path, read in (("/proc/net/route", _way4), ("/proc/net/ipv6_route", _way6)):
        lines = [line for line in told.texts.get(path, "").split("\n") if line.strip()]
        ways = []
        for line in lines:
            way = read(line.split())
            if way is None:
                return Unknown(f"{path}: {shown(line)} is not understood")
            if way.flags & _UP and not way.flags & _REJECT:
                ways.append(way)
        if ways:
            return min(ways, key=lambda way: way.metric).interface
    # IPv6 may be off, but a host without IPv4 routes in the kernel is none that we know
    if "/proc/net/route" in told.refused:
        return Unknown(f"/proc/net/route: {told.refused['/proc/net/route']}")
    return Absent("there is no default route")


class _Way(NamedTuple):
    interface: str
    flags: int
    metric: int


def _way4(words: List[str]) -> Optional[_Way]:
    """Read a row of /proc/net/route: net/ipv4/fib_trie.c, fib_route_seq_show."""
    if len(words) != 11 or not _hexadecimal(words[3], 4) or not re.fullmatch("[0-9]{1,10}", words[6]):
        return None
    whole = words[1] == words[7] == "00000000"  # 0.0.0.0/1 is not a default route
    return _Way(words[0], int(words[3], 16) if whole else 0, int(words[6]))


def _way6(words: List[str]) -> Optional[_Way]:
    """Read a row of /proc/net/ipv6_route: net/ipv6/route.c, rt6_info_route."""
    if len(words) != 10 or not _hexadecimal(words[5], 8) or not _hexadecimal(words[8], 8):
        return None
    return _Way(words[9], int(words[8], 16), int(words[5], 16))


def _hexadecimal(text: str, digits: int) -> bool:
    return re.fullmatch(f"[0-9A-Fa-f]{{{digits}}}", text) is not None


def _reached_by(text: Found[str], interfaces: Found[Interfaces]) -> Found[str]:
    """Find the interface with the address that this connection came to: the third word of SSH_CONNECTION (sshd(8))."""
    if not isinstance(text, str):
        return Unknown(text.reason)
    if not text.strip():
        return Absent("not reached over SSH")
    words = text.split()
    if len(words) != 4:
        return Unknown(f"SSH_CONNECTION: {shown(text)} is not understood")
    try:
        address = ipaddress.ip_address(words[2].partition("%")[0])
    except ValueError:
        return Unknown(f"SSH_CONNECTION: {shown(text)} is not understood")
    if isinstance(address, ipaddress.IPv6Address) and address.ipv4_mapped is not None:
        address = address.ipv4_mapped
    if not isinstance(interfaces, tuple):
        return Unknown(f"the interface with address {address} is not known: {interfaces.reason}")
    carried = [(each, ipaddress.ip_interface(of.address)) for each in interfaces for of in each.addresses]
    zone = words[2].partition("%")[2]
    names = {each.name for each, own in carried if own.ip == address and zone in ("", each.name)}
    if not names:  # all of 127.0.0.0/8 is the loopback's
        names = {each.name for each, own in carried if each.kind == "loopback" and address in own.network}
    if len(names) == 1:
        return names.pop()
    if names:
        return Unknown(f"{address} is on several interfaces: {', '.join(sorted(names))}")
    return Unknown(f"no interface has the address {address}: is there NAT on the way?")


def _port_range(text: Found[str]) -> Found[Tuple[int, int]]:
    if not isinstance(text, str):
        return Unknown(text.reason)
    match = re.fullmatch(r"([0-9]{1,5})\s+([0-9]{1,5})", text.strip())
    return (int(match[1]), int(match[2])) if match else Unknown(f"ip_local_port_range: {shown(text)} is not understood")


def _listeners(text: Found[str]) -> Found[Tuple[Listener, ...]]:
    """Read `ss -ltnp`, or the listening rows of /proc/net/tcp and tcp6; in the order of the ports, each once."""
    if not isinstance(text, str):
        return Unknown(text.reason)
    found = set()
    # ss of 4.17 to 5.3 puts what does not fit into 80 columns onto the next line
    for line in re.sub(r"\n(?=[ \t]|users:)", " ", text).split("\n"):
        row = re.fullmatch(r"/proc/net/tcp(6?): +[0-9]+: ([0-9A-F]+):([0-9A-F]{4}) [0-9A-F]+:0000 0A .*", line)
        match = _LISTEN.fullmatch(line)
        if match is not None and int(match[2]) < 1 << 16:
            found.add(Listener(match[1].strip("[]").replace("]%", "%"), int(match[2]), match[3]))
        elif row is not None and len(row[2]) == (32 if row[1] else 8):
            found.add(Listener(_unhexed(row[2]), int(row[3], 16), None))
        elif line.strip() and not re.match(r"State\s+Recv-Q\s", line):
            return Unknown(f"listening ports: {shown(line)} is not understood")
    owned = {(each.address, each.port) for each in found if each.process is not None}
    once = [each for each in found if each.process is not None or (each.address, each.port) not in owned]
    return tuple(sorted(once, key=lambda each: (each.port, each.address, each.process or "")))


def _unhexed(words: str) -> str:
    """Return an address of /proc/net/tcp: words of four bytes, each in the order of a little-endian machine."""
    data = b"".join(bytes.fromhex(words[place : place + 8])[::-1] for place in range(0, len(words), 8))
    return socket.inet_ntop(socket.AF_INET6 if len(data) == 16 else socket.AF_INET, data)  # as ss writes it
