"""Netlink: a request for a dump, and the messages of its answer, as netlink(7) frames them."""

import socket
import struct
from typing import Callable, Dict, Iterator, List, NamedTuple, Tuple

_HEADER = struct.Struct("=IHHII")  # length, type, flags, sequence, port
_ATTRIBUTE = struct.Struct("=HH")  # length, type
_REQUEST, _DUMP = 0x1, 0x300
_NOOP, _ERROR, _DONE = 1, 2, 3
_NESTED_AND_ORDER = 0xC000  # bits of an attribute's type that are none of its number
_ALIGN = 4
_PIECE = 1 << 16
# Of one answer: 100000 sockets with what the kernel tells of each are about 40 MB.
MOST_BYTES = 64 << 20
_SECONDS = 5.0


class NetlinkError(Exception):
    """The kernel refused a request, or its answer is not whole; the text says why."""


class NetlinkMessage(NamedTuple):
    """One message of an answer: its type, and what stands behind its header."""

    kind: int
    body: bytes


def request(kind: int, body: bytes) -> bytes:
    """Return a request for a dump."""
    return _HEADER.pack(_HEADER.size + len(body), kind, _REQUEST | _DUMP, 1, 0) + body


def messages(data: bytes) -> Tuple[List[NetlinkMessage], bool]:
    """Take one datagram of an answer apart: its messages, and whether the answer ends with it.

    Raises:
        NetlinkError: it is an error of the kernel's, or its lengths do not agree.
    """
    found: List[NetlinkMessage] = []
    offset = 0
    while offset < len(data):
        if len(data) - offset < _HEADER.size:
            raise NetlinkError(f"a message of netlink is cut after {len(data) - offset} bytes")
        length, kind, _flags, _sequence, _port = _HEADER.unpack_from(data, offset)
        if length < _HEADER.size or offset + length > len(data):
            raise NetlinkError(f"a message of netlink says it has {length} bytes, and {len(data) - offset} are there")
        body = data[offset + _HEADER.size : offset + length]
        if kind == _DONE:
            return found, True
        if kind == _ERROR:
            raise NetlinkError(_refusal(body))
        if kind != _NOOP:
            found.append(NetlinkMessage(kind, body))
        offset += _aligned(length)
    return found, False


def attributes(data: bytes) -> Dict[int, bytes]:
    """Return the attributes by type; what is cut is left out."""
    found: Dict[int, bytes] = {}
    offset = 0
    while len(data) - offset >= _ATTRIBUTE.size:
        length, kind = _ATTRIBUTE.unpack_from(data, offset)
        if length < _ATTRIBUTE.size or offset + length > len(data):
            break
        found[kind & ~_NESTED_AND_ORDER] = data[offset + _ATTRIBUTE.size : offset + length]
        offset += _aligned(length)
    return found


def dump(family: int, kind: int, body: bytes) -> Iterator[NetlinkMessage]:
    """Ask the kernel, and yield the messages of its answer.

    Raises:
        NetlinkError: it refuses, does not answer in time, or answers more than `MOST_BYTES`.
        OSError: this process may not have a socket of that family.
    """
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_CLOEXEC, family) as link:
        link.settimeout(_SECONDS)
        link.bind((0, 0))
        link.sendto(request(kind, body), (0, 0))
        yield from _received(lambda: _one(link))


def _one(link: socket.socket) -> bytes:
    try:
        data, _ancillary, flags, sender = link.recvmsg(_PIECE)
    except OSError as error:
        raise NetlinkError(f"no answer of the kernel: {error}") from None
    if flags & socket.MSG_TRUNC:
        raise NetlinkError(f"a datagram of the kernel has more than {_PIECE} bytes")
    # Another process may send to a netlink socket: the kernel has port 0.
    return data if sender[0] == 0 else b""


def _received(receive: Callable[[], bytes]) -> Iterator[NetlinkMessage]:
    total = 0
    is_done = False
    while not is_done:
        data = receive()
        total += len(data) + 1
        if total > MOST_BYTES:
            raise NetlinkError(f"the kernel's answer has more than {MOST_BYTES} bytes")
        found, is_done = messages(data)
        yield from found


def _refusal(body: bytes) -> str:
    if len(body) < 4:
        return "the kernel refused the request"
    (number,) = struct.unpack_from("=i", body)
    return f"the kernel refused the request: error {-number}"


def _aligned(length: int) -> int:
    return (length + _ALIGN - 1) & ~(_ALIGN - 1)
