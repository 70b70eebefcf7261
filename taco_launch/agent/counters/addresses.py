"""Which interface has which address, as the kernel's rtnetlink(7) tells it. Pure."""

import socket
import struct
from typing import Dict, Iterable, List, NamedTuple, Optional, Sequence

from taco_launch.agent.counters.inet_diag import address
from taco_launch.agent.counters.netlink import NetlinkMessage, attributes

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
