"""Established TCP connections as the kernel's sock_diag(7) tells them, with the bytes that each has carried. Pure."""

import socket
import struct
from typing import NamedTuple, Optional

from taco_launch.agent.counters.netlink import attributes

SOCK_DIAG_BY_FAMILY = 20  # linux/sock_diag.h
NETLINK_SOCK_DIAG = 4
_ESTABLISHED = 1
_INFO = 2  # INET_DIAG_INFO, asked for by bit 1 of `idiag_ext`
# family, protocol, ext, pad, states, then a socket's id of 48 bytes
_REQUEST = struct.Struct("=BBBxI48x")
# family, state, timer, retransmits; ports, addresses, interface, cookie; expires, queues, user, inode
_MESSAGE = struct.Struct("=BBxx2s2s16s16sI8xIIIII")
_BYTES = struct.Struct("=QQ")
_BYTES_AT = 120  # tcpi_bytes_acked and tcpi_bytes_received of struct tcp_info, since Linux 4.1


class TcpConnection(NamedTuple):
    """One established connection: both ends, and the bytes sent and acknowledged, and received; None where not told.

    Addresses are text without a zone; an IPv4 address that an IPv6 socket has is IPv4.
    """

    inode: int
    local: str
    local_port: int
    remote: str
    remote_port: int
    sent: Optional[int] = None
    received: Optional[int] = None


def established(family: int) -> bytes:
    """Return what is asked for: the established connections of a family, with their byte counters."""
    return _REQUEST.pack(family, socket.IPPROTO_TCP, 1 << (_INFO - 1), 1 << _ESTABLISHED)


def connection(body: bytes) -> Optional[TcpConnection]:
    """Read one message; None where it is none of an established connection, or cut."""
    if len(body) < _MESSAGE.size:
        return None
    family, state, sport, dport, source, target, _interface, *_queues, _user, inode = _MESSAGE.unpack_from(body)
    local, remote = address(family, source), address(family, target)
    if state != _ESTABLISHED or local is None or remote is None:
        return None
    info = attributes(body[_MESSAGE.size :]).get(_INFO, b"")
    sent = received = None
    if len(info) >= _BYTES_AT + _BYTES.size:
        sent, received = _BYTES.unpack_from(info, _BYTES_AT)
    return TcpConnection(
        inode, local, int.from_bytes(sport, "big"), remote, int.from_bytes(dport, "big"), sent, received
    )


def address(family: int, data: bytes) -> Optional[str]:
    """Return an address in network order as text; None where it is of no known family."""
    if family == socket.AF_INET and len(data) >= 4:
        return socket.inet_ntop(socket.AF_INET, data[:4])
    if family == socket.AF_INET6 and len(data) >= 16:
        if data[:12] == b"\0" * 10 + b"\xff\xff":
            return socket.inet_ntop(socket.AF_INET, data[12:16])
        return socket.inet_ntop(socket.AF_INET6, data[:16])
    return None
