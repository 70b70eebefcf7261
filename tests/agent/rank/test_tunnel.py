"""Streams to a port: all bytes both ways, ends of either side, ports that refuse, windows that are kept, many at once."""

import contextlib
import os
import socket
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from taco_launch.agent.rank import tunnel
from taco_launch.agent.rank.caller_stream import CallerStream
from taco_launch.core.protocol.calls import reply_of
from taco_launch.core.protocol.calls.caller_input import CallerInput
from taco_launch.core.protocol.calls.forwarding import (
    MOST_STREAMS,
    STREAM_CHUNK,
    STREAM_WINDOW,
    DropStream,
    ForwardReady,
    OpenStream,
    SendCredit,
    SendData,
    SendEnd,
    StreamClosed,
    StreamCredit,
    StreamData,
    StreamEnd,
)
from taco_launch.core.protocol.frames import FrameReader
from tests.conftest import eventually
from tests.support.patience import HANG

pytestmark = pytest.mark.enable_socket  # they connect to this machine alone


class Caller:
    """The caller's end of a tunnel that runs in a thread."""

    def __init__(self, port: int) -> None:
        stdin, self._to = os.pipe()
        self._from, out = os.pipe()
        self._frames = FrameReader(reply_of, STREAM_CHUNK)
        self.heard: list[Any] = []
        self.code: int | None = None

        def work() -> None:
            with os.fdopen(stdin, "rb") as file:
                self.code = tunnel.serve(CallerStream(file), None, port, out)
            os.close(out)

        self.thread = threading.Thread(target=work, daemon=True)
        self.thread.start()

    def say(self, *frames: CallerInput) -> None:
        os.write(self._to, b"".join(frame.encode() for frame in frames))

    def hear(self) -> Any:
        """Return the next reply."""
        while not self.heard:
            data = os.read(self._from, 1 << 16)
            assert data, "the tunnel has ended"
            self.heard += self._frames.feed(data)
        return self.heard.pop(0)

    def until(self, kind: type) -> list[Any]:
        """Return the replies up to the first of a kind."""
        found = [self.hear()]
        while not isinstance(found[-1], kind):
            found.append(self.hear())
        return found

    def leave(self) -> None:
        with contextlib.suppress(OSError):
            os.close(self._to)
        self.thread.join(HANG)


@pytest.fixture
def server() -> Iterator[socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as found:
        yield found


@pytest.fixture
def caller(server: socket.socket) -> Iterator[Caller]:
    found = Caller(server.getsockname()[1])
    assert isinstance(found.hear(), ForwardReady)
    yield found
    found.leave()
    assert found.code == 0
    os.close(found._from)


def test_bytes_go_both_ways_and_each_side_ends(caller: Caller, server: socket.socket) -> None:
    caller.say(OpenStream(stream=7), SendData(stream=7, data=b"hello"))
    connection, _address = server.accept()
    assert connection.recv(100) == b"hello"
    assert caller.hear() == StreamCredit(stream=7, count=5)
    connection.sendall(b"world")
    assert caller.hear() == StreamData(stream=7, data=b"world")
    caller.say(SendEnd(stream=7))
    assert connection.recv(100) == b""
    connection.close()
    assert caller.until(StreamClosed) == [StreamEnd(stream=7), StreamClosed(stream=7)]


def test_the_port_ends_first(caller: Caller, server: socket.socket) -> None:
    caller.say(OpenStream(stream=1))
    connection, _address = server.accept()
    connection.shutdown(socket.SHUT_WR)
    assert caller.hear() == StreamEnd(stream=1)
    caller.say(SendData(stream=1, data=b"late"), SendEnd(stream=1))
    assert connection.recv(100) == b"late"
    assert connection.recv(100) == b""
    assert isinstance(caller.until(StreamClosed)[-1], StreamClosed)


def test_a_port_where_nobody_listens() -> None:
    with socket.create_server(("127.0.0.1", 0)) as gone:
        port = gone.getsockname()[1]
    caller = Caller(port)
    caller.say(OpenStream(stream=1))
    closed = caller.until(StreamClosed)[-1]
    assert closed == StreamClosed(stream=1, why="Connection refused")
    caller.leave()


def test_a_server_on_ipv6_alone() -> None:
    try:
        server = socket.create_server(("::1", 0), family=socket.AF_INET6)
    except OSError as error:
        pytest.skip(f"cannot: {error}")
    with server:
        caller = Caller(server.getsockname()[1])
        caller.say(OpenStream(stream=1))
        connection, _address = server.accept()
        connection.sendall(b"six")
        assert caller.until(StreamData)[-1].data == b"six"
        caller.leave()


def test_no_more_than_the_window_is_on_its_way(caller: Caller, server: socket.socket) -> None:
    caller.say(OpenStream(stream=1))
    connection, _address = server.accept()
    threading.Thread(target=_fill, args=(connection,), daemon=True).start()
    got = 0
    while got < STREAM_WINDOW:
        got += len(caller.hear().data)
    assert got == STREAM_WINDOW
    assert caller.heard == []
    caller.say(SendCredit(stream=1, count=10))
    assert len(caller.hear().data) == 10
    connection.close()


def _fill(connection: socket.socket) -> None:
    with contextlib.suppress(OSError):
        while True:
            connection.sendall(bytes(1 << 16))


def test_a_caller_that_sends_more_than_the_window(caller: Caller, server: socket.socket) -> None:
    caller.say(OpenStream(stream=1))
    server.accept()  # and reads nothing
    data = bytes(STREAM_CHUNK)

    def send() -> None:
        for _piece in range(4000):
            try:
                caller.say(SendData(stream=1, data=data))
            except OSError:
                return

    threading.Thread(target=send, daemon=True).start()
    assert caller.until(StreamClosed)[-1].why in (
        "the other side sent more data than the window allows",
        "Connection reset by peer",
        "Broken pipe",
    )


def test_many_at_once_none_holds_up_another(caller: Caller, server: socket.socket) -> None:
    caller.say(*(OpenStream(stream=number) for number in range(MOST_STREAMS + 1)))
    closed = caller.until(StreamClosed)[-1]
    assert (closed.stream, closed.why) == (MOST_STREAMS, "the limit of 256 connections is reached")
    held = [server.accept()[0] for _each in range(MOST_STREAMS)]
    caller.say(SendData(stream=200, data=b"x"), DropStream(stream=100))
    eventually(lambda: [each for each in held if _has(each, b"x")])
    caller.say(OpenStream(stream=999))
    held.append(server.accept()[0])
    for each in held:
        each.close()


def _has(connection: socket.socket, data: bytes) -> bool:
    connection.setblocking(False)
    with contextlib.suppress(BlockingIOError):
        return connection.recv(10, socket.MSG_PEEK) == data
    return False


def test_connections_end_with_the_caller(server: socket.socket) -> None:
    caller = Caller(server.getsockname()[1])
    caller.say(OpenStream(stream=1))
    connection, _address = server.accept()
    caller.leave()
    assert connection.recv(10) == b""
