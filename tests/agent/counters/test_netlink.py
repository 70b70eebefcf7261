"""Netlink's framing and the kernel's messages, also where they are cut or lie about their length."""

import socket
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from taco_launch.agent.counters import inet_diag, netlink, sockets
from taco_launch.agent.counters.inet_diag import TcpConnection
from taco_launch.agent.counters.netlink import NetlinkError, NetlinkMessage, attributes, messages
from taco_launch.agent.counters.sockets import InterfaceAddress, by_address, interface_address

# An answer of a real kernel (6.1) for one connection on 127.0.0.1, port 42000 to 42001, cut behind struct tcp_info's counters.
_ID = struct.pack(
    "!HH16s16s", 42000, 42001, socket.inet_aton("10.0.0.1") + bytes(12), socket.inet_aton("10.0.0.2") + bytes(12)
)


def told(state: int = 1, info: bytes = b"", inode: int = 77) -> bytes:
    head = (
        struct.pack("=BBBB", socket.AF_INET, state, 0, 0)
        + _ID
        + struct.pack("=I8x", 0)
        + struct.pack("=IIIII", 0, 0, 0, 0, inode)
    )
    return head + (struct.pack("=HH", 4 + len(info), 2) + info if info else b"")


def framed(kind: int, body: bytes) -> bytes:
    return struct.pack("=IHHII", 16 + len(body), kind, 2, 1, 0) + body


def test_a_connection_with_its_bytes() -> None:
    info = bytes(120) + struct.pack("=QQ", 1000, 2000)
    assert inet_diag.connection(told(info=info)) == TcpConnection(77, "10.0.0.1", 42000, "10.0.0.2", 42001, 1000, 2000)
    assert inet_diag.connection(told(info=info[:-1])) == TcpConnection(77, "10.0.0.1", 42000, "10.0.0.2", 42001)
    assert inet_diag.connection(told(state=10)) is None  # listens
    assert inet_diag.connection(told()[:-1]) is None


def test_datagrams_until_the_end() -> None:
    data = framed(20, b"abcd") + framed(20, b"efgh")
    assert messages(data) == ([NetlinkMessage(20, b"abcd"), NetlinkMessage(20, b"efgh")], False)
    assert messages(data + framed(3, bytes(4))) == ([NetlinkMessage(20, b"abcd"), NetlinkMessage(20, b"efgh")], True)


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (framed(2, struct.pack("=i", -13)), "error 13"),
        (framed(2, b""), "refused the request"),
        (framed(20, b"abcd")[:-1], "says it has 20 bytes, and 19 are there"),
        (b"abc", "cut after 3 bytes"),
        (struct.pack("=IHHII", 3, 20, 0, 0, 0), "says it has 3 bytes"),
    ],
)
def test_an_answer_that_is_not_whole(data: bytes, reason: str) -> None:
    with pytest.raises(NetlinkError, match=reason):
        messages(data)


def test_an_answer_without_an_end_is_given_up() -> None:
    with pytest.raises(NetlinkError, match=f"more than {netlink.MOST_BYTES} bytes"):
        for _ in netlink._received(lambda: framed(20, bytes(1 << 20))):
            pass
    with pytest.raises(NetlinkError, match="more than"):
        for _ in netlink._received(lambda: framed(1, bytes(1 << 20))):  # messages without a meaning
            pass


def test_attributes() -> None:
    data = struct.pack("=HH4s", 8, 2, b"abcd") + struct.pack("=HH1s3x", 5, 3 | 0x8000, b"x")
    assert attributes(data) == {2: b"abcd", 3: b"x"}
    assert attributes(data[:-4]) == {2: b"abcd"}


@given(st.binary())
def test_any_bytes_are_read(data: bytes) -> None:
    attributes(data)
    inet_diag.connection(data)
    interface_address(NetlinkMessage(20, data))
    try:
        messages(data)
    except NetlinkError:
        return


def test_addresses() -> None:
    body = struct.pack("=BBBBI", socket.AF_INET, 24, 0, 0, 2)
    local = struct.pack("=HH4s", 8, 2, socket.inet_aton("10.0.0.1"))
    other = struct.pack("=HH4s", 8, 1, socket.inet_aton("10.0.0.9"))
    assert interface_address(NetlinkMessage(20, body + other + local)) == InterfaceAddress(2, "10.0.0.1")
    assert interface_address(NetlinkMessage(20, body + other)) == InterfaceAddress(2, "10.0.0.9")
    assert interface_address(NetlinkMessage(21, body + local)) is None
    found = (InterfaceAddress(2, "10.0.0.1"), InterfaceAddress(3, "10.0.0.1"), InterfaceAddress(9, "10.0.0.2"))
    assert by_address(found, ("eth0", "docker0"), (2, 3)) == {"10.0.0.1": ["eth0", "docker0"]}


def test_an_address_that_both_families_have() -> None:
    mapped = socket.inet_pton(socket.AF_INET6, "::ffff:10.0.0.1")
    assert inet_diag.address(socket.AF_INET6, mapped) == "10.0.0.1"
    assert inet_diag.address(socket.AF_INET6, socket.inet_pton(socket.AF_INET6, "fe80::1")) == "fe80::1"
    assert inet_diag.address(socket.AF_UNIX, b"x" * 16) is None


def test_the_list_of_proc() -> None:
    text = (
        "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n"
        "   0: 0100007F:A410 0100007F:A411 01 00000000:00000000 00:00000000 00000000     0        0 4711 1 0 20 4 30 10 -1\n"
        "   1: 00000000:0016 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 4712 1 0 100 0 0 10 0\n"
        "   0: 0000000000000000FFFF00000100000A:A410 0000000000000000FFFF00000200000A:A411 01 00000000:00000000 00:00000000 00000000     0        0 4713 1\n"
        "   2: 0100007F:A410 0100007F:A4"
    )
    assert list(sockets.connections(text)) == [
        TcpConnection(4711, "127.0.0.1", 42000, "127.0.0.1", 42001),
        TcpConnection(4713, "10.0.0.1", 42000, "10.0.0.2", 42001),
    ]


@given(st.text(alphabet="0123456789ABCDEF: \n", max_size=200))
def test_any_list_is_read(text: str) -> None:
    list(sockets.connections(text))
