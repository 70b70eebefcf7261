"""Messages come through whole, wherever they are cut; a caller of another version is told what to upgrade."""

import io
import json
import socket
import threading
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from taco_launch.core.errors import UsageError
from taco_launch.core.protocol import framing as protocol
from taco_launch.core.protocol.connection import JsonConnection
from taco_launch.core.protocol.guard_messages import Heartbeat, LogData
from taco_launch.core.protocol.message import Message
from taco_launch.core.protocol.rank_messages import Welcome

TEXT = st.text(max_size=6) | st.binary(max_size=6).map(lambda data: data.decode("utf-8", "surrogateescape"))
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3),
    max_leaves=5,
)
MESSAGES = st.dictionaries(TEXT, VALUES, max_size=4)


@given(st.lists(MESSAGES, max_size=5))
def test_what_is_written_is_read(messages: list[dict[str, Any]]) -> None:
    stream = io.BytesIO(b"".join(map(protocol.dump, messages)))
    assert [protocol.read(stream) for _message in messages] == messages
    assert protocol.read(stream) is None


@given(MESSAGES)
def test_a_message_is_one_line(message: dict[str, Any]) -> None:
    line = protocol.dump(message)
    assert line.isascii()
    assert line.splitlines(keepends=True) == [line]


@given(st.binary(max_size=40) | MESSAGES.map(lambda message: protocol.dump(message)[1:]))
@example(b"\n")
@example(b"[1]\n")
@example(b"[" * 100_000 + b"\n")
@example(b'{"a": 1')
def test_what_is_no_message_is_refused(data: bytes) -> None:
    try:
        found = protocol.read(io.BytesIO(data))
    except UsageError as error:
        told = error.message
    else:
        assert found == (json.loads(data.partition(b"\n")[0]) if data else None)
        return
    assert "not a taco-launch message" in told
    assert len(told) < 500


def test_the_header() -> None:
    header = protocol.header("list", "/agent.pyz")
    assert header == {"protocol": protocol.VERSION, "agent": "/agent.pyz", "op": "list"}
    protocol.check(header, "the host", "the controller")


@pytest.mark.parametrize(
    ("first", "side"),
    [
        ({"protocol": protocol.VERSION + 1}, "the host"),
        ({"protocol": protocol.VERSION - 1}, "the controller"),
        ({"protocol": "one"}, "the controller"),
        ({}, "the controller"),
        (None, "the controller"),
    ],
    ids=["newer", "older", "text", "none", "nothing"],
)
def test_another_version_names_the_side_to_upgrade(first: dict[str, Any] | None, side: str) -> None:
    with pytest.raises(UsageError, match="does not match protocol version") as caught:
        protocol.check(first, "the host", "the controller")
    assert caught.value.hint == f"upgrade taco-launch on {side}"


# --- lines over a socket


@pytest.fixture
def pair() -> Iterator[tuple[socket.socket, socket.socket]]:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        yield ours, theirs


TIMES = st.lists(st.lists(st.integers(0, 1 << 40), min_size=2, max_size=2), max_size=3)
LOGS = st.fixed_dictionaries({"rank": st.integers(-1, 99), "offset": st.integers(0, 1 << 40), "times": TIMES})
MAIL = st.tuples(LOGS, st.binary(max_size=40))


@given(st.lists(MAIL, max_size=6), st.lists(st.integers(1, 30), min_size=1, max_size=10))
def test_messages_cut_anywhere(mail: list[tuple[dict[str, Any], bytes]], sizes: list[int]) -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        line = JsonConnection(ours)
        found: list[Message] = []
        data = b"".join(protocol.dump({"op": "log", **message, "bytes": len(raw)}) + raw for message, raw in mail)
        while data:
            for size in sizes:
                piece, data = data[:size], data[size:]
                if piece:
                    theirs.sendall(piece)
                    received = line.receive()
                    assert received is not None
                    found += received
        assert found == [LogData(**message, data=raw) for message, raw in mail]


@pytest.mark.parametrize(
    "text",
    [
        *(b"Welcome to gpu2!", b"", b"[1]", b'{"a":1}', b"\xff", b'{"op":', b"[" * 100_000),
        *(b'{"op":"log","bytes":%b}' % size for size in (b"-1", b'"8"', b"true", b"1.5", b"null", b"99999999999999")),
    ],
)
def test_what_is_no_message_is_noise(text: bytes, pair: tuple[socket.socket, socket.socket]) -> None:
    ours, theirs = pair
    theirs.sendall(text + b'\n{"op":"beat"}\n')
    line, found = JsonConnection(ours), list[Message]()
    while len(found) < 2:
        found += line.receive() or ()
    assert [message.op for message in found] == ["noise", "beat"]


def test_what_is_posted_waits_for_room_and_comes_whole(pair: tuple[socket.socket, socket.socket]) -> None:
    ours, theirs = pair
    sender, reader, found = JsonConnection(theirs), JsonConnection(ours), list[Message]()
    sent = [LogData(rank=number, offset=0, times=[], data=bytes([number]) * 1_000_000) for number in range(4)]
    for message in sent:
        sender.post(message)
    assert sender.waiting > 1_000_000
    while len(found) < 4:
        found += reader.receive() or ()
        sender.flush()
    assert sender.waiting == 0
    assert found == sent


def test_a_long_message(pair: tuple[socket.socket, socket.socket]) -> None:
    ours, theirs = pair
    message = Welcome(environment={"A": "x" * 2_000_000}, log_max_bytes=1, umask=0)
    sender = threading.Thread(target=JsonConnection(theirs).send, args=(message,))
    sender.start()
    line = JsonConnection(ours)
    found: list[Message] = []
    while not found:
        received = line.receive()
        assert received is not None
        found += received
    sender.join()
    assert found == [message]


def test_the_other_side_is_gone() -> None:
    ours, theirs = socket.socketpair()
    with ours:
        line = JsonConnection(ours)
        theirs.sendall(protocol.dump({"op": "beat"}) + b'{"half')
        theirs.close()
        assert line.receive() == [Heartbeat()]
        assert line.receive() is None
        assert not line.send(Heartbeat())
        line.close()
        assert line.receive() is None
        assert not line.send(Heartbeat())


def test_nothing_has_come(pair: tuple[socket.socket, socket.socket]) -> None:
    ours, theirs = pair
    ours.setblocking(False)
    line = JsonConnection(ours)
    assert line.receive() == []
    assert line.fileno() == ours.fileno()
    assert line.send(Heartbeat())
    assert theirs.recv(100) == b'{"op":"beat"}\n'


def test_who_sends_a_line_without_an_end_is_gone(
    monkeypatch: pytest.MonkeyPatch, pair: tuple[socket.socket, socket.socket]
) -> None:
    monkeypatch.setattr(protocol, "LINE_BYTES", 1 << 12)
    ours, theirs = pair
    line = JsonConnection(ours)
    theirs.sendall(b"x" * (1 << 12))
    assert line.receive() == []
    theirs.sendall(b"x")
    assert line.receive() is None
