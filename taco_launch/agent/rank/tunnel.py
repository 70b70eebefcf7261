"""Streams of a caller, connected to a port of this machine's loopback: many at once, none of which holds up another."""

import contextlib
import errno
import os
import select
import socket
from typing import Callable, Dict, Optional

from taco_launch.agent.rank.caller_stream import CallerStream, told_to_end
from taco_launch.core.errors import NO_JOB
from taco_launch.core.protocol.calls import Reply
from taco_launch.core.protocol.calls.caller_input import WINDOW, CallerInput
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
from taco_launch.core.protocol.connection import JsonConnection

_TICK_MS = 5000
# A server listens on either, or on both.
_ADDRESSES = ((socket.AF_INET, "127.0.0.1"), (socket.AF_INET6, "::1"))


def serve(
    caller: CallerStream,
    guard: Optional[JsonConnection],
    port: int,
    out: int = 1,
    lives: Callable[[], bool] = lambda: True,
) -> int:
    """Serve the streams of a caller until it leaves, or the guard has it end; its replies go to `out`.

    Without a guard, `lives` tells every few seconds whether there is still anything behind the port.
    """
    os.set_blocking(out, False)
    tunnel = _Tunnel(port, out)
    tunnel.reply(ForwardReady(host=socket.gethostname()))
    messages = caller.receive(0, wanted=True)
    while True:
        for message in messages:
            tunnel.take(message)
        poll = select.poll()
        caller.listen(poll, wanted=True)
        if guard is not None:
            poll.register(guard.fileno(), select.POLLIN)
        tunnel.listen(poll)
        events = dict(poll.poll(_TICK_MS))
        if guard is not None and guard.fileno() in events and told_to_end(guard):
            return NO_JOB
        if not lives():
            return NO_JOB
        tunnel.act(events)
        messages = caller.receive(events.get(caller.fileno(), 0), wanted=True)
        if caller.gone or tunnel.unread:
            tunnel.close()
            return 0


class _Stream:
    """One connection to the port."""

    def __init__(self, number: int, port: int) -> None:
        self.number = number
        self._port = port
        self._addresses = list(_ADDRESSES)
        self.socket: Optional[socket.socket] = None
        self.connecting = False
        self.why = ""
        self.waiting = bytearray()
        self.taken = 0  # bytes that came from the caller and were not credited yet
        self.credit = STREAM_WINDOW
        self.ends = self.ended = False  # whether the caller has ended, and the port

    def connect(self) -> bool:
        """Begin to connect to the next address; return whether there is one."""
        while self._addresses:
            family, address = self._addresses.pop(0)
            if self.socket is not None:
                self.socket.close()
            try:
                self.socket = socket.socket(family, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
                code = self.socket.connect_ex((address, self._port))
            except OSError as error:  # such as no IPv6 at all
                code = error.errno or errno.EIO
            if code in (0, errno.EINPROGRESS):
                self.connecting = True
                return True
            self.why = self.why or os.strerror(code)
        return False

    def connected(self) -> bool:
        """Return whether the connection that was begun is there; otherwise the next one was begun, or there is none."""
        assert self.socket is not None
        code = self.socket.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
        if code == 0:
            self.connecting = False
            self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            return True
        self.why = self.why or os.strerror(code)
        return False

    def close(self) -> None:
        """Close the connection."""
        if self.socket is not None:
            self.socket.close()


class _Tunnel:
    def __init__(self, port: int, out: int) -> None:
        self._port = port
        self._out = out
        self._replies = bytearray()
        self._streams: Dict[int, _Stream] = {}
        # Whether nobody reads our replies any more.
        self.unread = False

    def reply(self, message: Reply) -> None:
        self._replies += message.encode()

    def take(self, message: CallerInput) -> None:
        """Do what the caller says; what concerns a stream that is over is of the past."""
        if isinstance(message, OpenStream):
            self._open(message.stream)
            return
        stream = self._streams.get(getattr(message, "stream", -1))
        if stream is None:
            return
        if isinstance(message, SendData):
            stream.taken += len(message.data)
            stream.waiting += message.data
            if stream.taken > STREAM_WINDOW:
                self._drop(stream, "the other side sent more data than the window allows")
        elif isinstance(message, SendCredit):
            stream.credit += message.count
        elif isinstance(message, SendEnd):
            stream.ends = True
            self._send(stream)
        elif isinstance(message, DropStream):
            self._forget(stream)

    def listen(self, poll: "select.poll") -> None:
        """Have a poll wait for what is to be done."""
        if self._replies:
            poll.register(self._out, select.POLLOUT)
        for stream in self._streams.values():
            assert stream.socket is not None
            reads = not stream.ended and stream.credit > 0 and len(self._replies) < WINDOW and not stream.connecting
            writes = stream.connecting or bool(stream.waiting)
            if reads or writes:
                poll.register(stream.socket, (select.POLLIN if reads else 0) | (select.POLLOUT if writes else 0))

    def act(self, events: Dict[int, int]) -> None:
        """Move on what can be moved after a poll that gave these events."""
        for stream in tuple(self._streams.values()):
            event = events.get(-1 if stream.socket is None else stream.socket.fileno(), 0)
            if not event:
                continue
            if stream.connecting:
                if not stream.connected():
                    if not stream.connect():
                        self._drop(stream, stream.why)
                    continue
                event |= select.POLLOUT
            if event & (select.POLLIN | select.POLLHUP | select.POLLERR) and not stream.ended:
                self._receive(stream)
            if stream.number in self._streams and (stream.waiting or stream.ends):
                self._send(stream)
        self._show()

    def close(self) -> None:
        """Close all connections, and bring out what was said of them."""
        for stream in self._streams.values():
            stream.close()

    def _open(self, number: int) -> None:
        if number in self._streams or len(self._streams) >= MOST_STREAMS:
            self.reply(StreamClosed(stream=number, why=f"the limit of {MOST_STREAMS} connections is reached"))
            return
        stream = _Stream(number, self._port)
        if stream.connect():
            self._streams[number] = stream
        else:
            stream.close()
            self.reply(StreamClosed(stream=number, why=stream.why))

    def _receive(self, stream: _Stream) -> None:
        assert stream.socket is not None
        try:
            data = stream.socket.recv(min(STREAM_CHUNK, max(stream.credit, 1)))
        except BlockingIOError:
            return
        except OSError as error:
            self._drop(stream, error.strerror or str(error))
            return
        if data:
            stream.credit -= len(data)
            self.reply(StreamData(stream=stream.number, data=data))
            return
        stream.ended = True
        self.reply(StreamEnd(stream=stream.number))
        self._send(stream)

    def _send(self, stream: _Stream) -> None:
        """Send on what waits, and the end behind it; forget the stream where both sides have ended."""
        if stream.connecting:
            return
        assert stream.socket is not None
        sent = 0
        try:
            while stream.waiting:
                count = stream.socket.send(stream.waiting[:STREAM_CHUNK])
                del stream.waiting[:count]
                sent += count
            if stream.ends:
                with contextlib.suppress(OSError):  # the port has closed it meanwhile
                    stream.socket.shutdown(socket.SHUT_WR)
        except BlockingIOError:
            pass
        except OSError as error:
            self._drop(stream, error.strerror or str(error))
            return
        if sent:
            stream.taken -= sent
            self.reply(StreamCredit(stream=stream.number, count=sent))
        if stream.ends and stream.ended and not stream.waiting:
            self._drop(stream, "")

    def _drop(self, stream: _Stream, why: str) -> None:
        self._forget(stream)
        self.reply(StreamClosed(stream=stream.number, why=why))

    def _forget(self, stream: _Stream) -> None:
        stream.close()
        self._streams.pop(stream.number, None)

    def _show(self) -> None:
        try:
            while self._replies:
                del self._replies[: os.write(self._out, self._replies[:WINDOW])]
        except BlockingIOError:
            return
        except OSError:
            self.unread = True
