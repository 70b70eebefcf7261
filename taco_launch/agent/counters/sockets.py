"""The TCP connections that given processes have: between which hosts, on which interface, and how many bytes they carried."""

import os
import re
import socket
import struct
from pathlib import Path
from typing import Dict, Iterable, Iterator, List, NamedTuple, Optional, Sequence, Set, Tuple

from taco_launch.agent.counters import inet_diag, netlink
from taco_launch.agent.counters.inet_diag import TcpConnection, address
from taco_launch.agent.counters.netlink import NetlinkMessage, attributes
from taco_launch.core.model.run.observed import InterfaceTraffic

_SOCKET = re.compile(r"socket:\[(\d+)\]")
# A process may open as many files as it is let: what is beyond is not looked at, and said.
_MOST_FILES = 1 << 16
_MOST_BYTES = 32 << 20
_FAMILIES = (socket.AF_INET, socket.AF_INET6)


class ProcessSockets(NamedTuple):
    """The connections of some processes, by the interface of their own end, and why there may be more ("" if all were seen).

    `inside` are those between processes of this host, which no interface between hosts carries.
    """

    between: Tuple[InterfaceTraffic, ...]
    inside: InterfaceTraffic
    unknown: str = ""

    @property
    def bytes(self) -> Optional[int]:
        """All bytes of all connections, sent and received; None where the kernel does not tell."""
        told = [traffic.bytes for traffic in (*self.between, self.inside)]
        return None if None in told else sum(number for number in told if number is not None)


def of_processes(pids: Iterable[int]) -> ProcessSockets:
    """Return the connections of processes of this host; those that are gone have none."""
    inodes: Set[int] = set()
    unknown = ""
    foreign: List[int] = []
    own = _network_of("self")
    for pid in pids:
        try:
            inodes |= _inodes(pid)
            if _network_of(str(pid)) != own:
                foreign.append(pid)
        except FileNotFoundError:
            continue
        except OSError as error:
            unknown = f"process {pid}: {error.strerror or error}"
    if not inodes:
        return ProcessSockets((), InterfaceTraffic("", 0, 0), unknown)
    found: Dict[int, TcpConnection] = {}
    interfaces: Dict[str, List[str]] = {}
    try:
        found = _told_by_the_kernel(inodes)
        interfaces = _interfaces()
    except (netlink.NetlinkError, OSError) as error:
        unknown = unknown or f"byte counters: {error}"
        foreign = foreign or [os.getpid()]
    # Netlink tells of this process's network namespace alone.
    for pid in foreign:
        for name in ("tcp", "tcp6"):
            for one in _listed(pid, name):
                if one.inode in inodes:
                    found.setdefault(one.inode, one)
    return _by_interface(found.values(), interfaces, unknown)


def _by_interface(found: Iterable[TcpConnection], interfaces: Dict[str, List[str]], unknown: str) -> ProcessSockets:
    groups: Dict[str, List[TcpConnection]] = {}
    inside: List[TcpConnection] = []
    for one in found:
        if one.local == one.remote or one.remote in interfaces or one.local.startswith("127."):
            inside.append(one)
        else:
            groups.setdefault(",".join(interfaces.get(one.local, [])), []).append(one)
    between = tuple(_traffic(name, groups[name]) for name in sorted(groups))
    return ProcessSockets(between, _traffic("", inside), unknown)


def _traffic(interface: str, found: List[TcpConnection]) -> InterfaceTraffic:
    sent = [one.sent for one in found]
    received = [one.received for one in found]
    total: Optional[int] = None
    if None not in sent and None not in received:
        total = sum(number or 0 for number in (*sent, *received))
    return InterfaceTraffic(interface, len(found), total, tuple(sorted({one.remote for one in found})[:_MOST_PEERS]))


_MOST_PEERS = 64


def _told_by_the_kernel(inodes: Set[int]) -> Dict[int, TcpConnection]:
    found: Dict[int, TcpConnection] = {}
    for family in _FAMILIES:
        asked = inet_diag.established(family)
        for message in netlink.dump(inet_diag.NETLINK_SOCK_DIAG, inet_diag.SOCK_DIAG_BY_FAMILY, asked):
            one = inet_diag.connection(message.body)
            if one is not None and one.inode in inodes:
                found[one.inode] = one
    return found


def _interfaces() -> Dict[str, List[str]]:
    there = socket.if_nameindex()
    told = netlink.dump(0, RTM_GETADDR, every_address())  # 0: NETLINK_ROUTE
    read = (interface_address(message) for message in told)
    return by_address((one for one in read if one), [name for _, name in there], [index for index, _ in there])


def _listed(pid: int, name: str) -> List[TcpConnection]:
    try:
        with open(f"/proc/{pid}/net/{name}", encoding="ascii", errors="replace") as file:
            return list(connections(file.read(_MOST_BYTES)))
    except OSError:  # gone, or a kernel without IPv6
        return []


def _inodes(pid: int) -> Set[int]:
    """Return the inodes of a process's sockets.

    Raises:
        OSError: it is gone, or another user's, or has too many files.
    """
    folder = Path(f"/proc/{pid}/fd")
    found: Set[int] = set()
    for count, name in enumerate(os.listdir(folder)):
        if count >= _MOST_FILES:
            raise OSError(f"more than {_MOST_FILES} open files")
        try:
            match = _SOCKET.fullmatch(os.readlink(folder / name))
        except FileNotFoundError:  # closed meanwhile
            continue
        if match is not None:
            found.add(int(match[1]))
    return found


def _network_of(pid: str) -> str:
    return os.readlink(f"/proc/{pid}/ns/net")


RTM_GETADDR = 22
_RTM_NEWADDR = 20
_ADDRESS_MESSAGE = struct.Struct("=BBBBI")  # family, prefix length, flags, scope, index of the interface
_IFA_ADDRESS, _IFA_LOCAL = 1, 2


class InterfaceAddress(NamedTuple):
    """One address of an interface, which has that number."""

    number: int
    address: str


def every_address() -> bytes:
    """Return what is asked for: the addresses of all interfaces, of both families."""
    return _ADDRESS_MESSAGE.pack(socket.AF_UNSPEC, 0, 0, 0, 0)


def interface_address(message: NetlinkMessage) -> Optional[InterfaceAddress]:
    """Read one message; None where it is about no address."""
    if message.kind != _RTM_NEWADDR or len(message.body) < _ADDRESS_MESSAGE.size:
        return None
    family, _prefix, _flags, _scope, index = _ADDRESS_MESSAGE.unpack_from(message.body)
    told = attributes(message.body[_ADDRESS_MESSAGE.size :])
    # On a link between two ends, IFA_ADDRESS is the other end's.
    text = address(family, told.get(_IFA_LOCAL, told.get(_IFA_ADDRESS, b"")))
    return None if text is None else InterfaceAddress(index, text)


def by_address(found: Iterable[InterfaceAddress], names: Sequence[str], indices: Sequence[int]) -> Dict[str, List[str]]:
    """Return the names of the interfaces that have each address: more than one where an address is there twice."""
    name_of = dict(zip(indices, names))
    result: Dict[str, List[str]] = {}
    for one in found:
        if one.number in name_of:
            result.setdefault(one.address, []).append(name_of[one.number])
    return result


# proc(5): number, local end, remote end, state (01: established), queues, timer, retransmits, user, timeout, inode
_ROW = re.compile(
    r" *\d+: (?P<local>[0-9A-F]{8}|[0-9A-F]{32}):(?P<lport>[0-9A-F]{4}) (?P<remote>[0-9A-F]{8}|[0-9A-F]{32}):"
    r"(?P<rport>[0-9A-F]{4}) 01 \S+ \S+ \S+ +\d+ +\d+ (?P<inode>\d+)(?: |$)"
)


def connections(text: str) -> Iterator[TcpConnection]:
    """Yield the established connections of such a file; a line that is cut is none."""
    for line in text.split("\n"):
        row = _ROW.match(line)
        if row is not None:
            local, remote = _address(row["local"]), _address(row["remote"])
            if local is not None and remote is not None:
                yield TcpConnection(int(row["inode"]), local, int(row["lport"], 16), remote, int(row["rport"], 16))


def _address(digits: str) -> Optional[str]:
    """Return an address: the kernel prints its words of 32 bits as numbers of this machine's byte order."""
    words = [int(digits[index : index + 8], 16) for index in range(0, len(digits), 8)]
    data = struct.pack(f"={len(words)}I", *words)
    return address(socket.AF_INET if len(words) == 1 else socket.AF_INET6, data)
