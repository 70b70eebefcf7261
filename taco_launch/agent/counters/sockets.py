"""The TCP connections that given processes have: between which hosts, on which interface, and how many bytes they carried."""

import os
import re
import socket
from pathlib import Path
from typing import Dict, Iterable, List, NamedTuple, Optional, Set, Tuple

from taco_launch.agent.counters import addresses, inet_diag, netlink, proc_net
from taco_launch.agent.counters.inet_diag import TcpConnection
from taco_launch.model.run.observed import InterfaceTraffic

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
    told = netlink.dump(0, addresses.RTM_GETADDR, addresses.every_address())  # 0: NETLINK_ROUTE
    read = (addresses.interface_address(message) for message in told)
    return addresses.by_address(
        (one for one in read if one), [name for _, name in there], [index for index, _ in there]
    )


def _listed(pid: int, name: str) -> List[TcpConnection]:
    try:
        with open(f"/proc/{pid}/net/{name}", encoding="ascii", errors="replace") as file:
            return list(proc_net.connections(file.read(_MOST_BYTES)))
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
