"""A connection between two processes of a job: messages, each a line of JSON, and raw bytes behind those that have some."""

import select
import socket
import time
from typing import List, Optional, Tuple

from taco_launch.core import trace
from taco_launch.core.protocol import framing
from taco_launch.core.protocol.message import KINDS, Message


class StrayLine(Message):
    """A line that is no message, as a login script may print."""

    op = "noise"
    text: str


# What follows a message: a piece of a log.
DATA_BYTES = 1 << 24


class JsonConnection:
    """One end of a connected socket that carries JSON lines, and raw bytes behind those with `bytes` in them.

    Reading never blocks; `send` may, `post` does not.
    """

    def __init__(self, sock: socket.socket, peer: str = "") -> None:
        """Take over `sock`; `peer` is who is on the other end, for the trace."""
        self.sock = sock
        self._peer = peer
        self._rest = b""
        self._out = bytearray()

    def fileno(self) -> int:
        """For selectors."""
        return self.sock.fileno()

    @property
    def waiting(self) -> int:
        """How many posted bytes have not gone out yet; `flush` when the socket can be written."""
        return len(self._out)

    def send(self, message: Message) -> bool:
        """Send one message; False where the other side is gone."""
        trace.message("sent", message, self._peer)
        try:
            self.sock.sendall(message.encode())
        except OSError:
            return False
        return True

    def post(self, message: Message) -> None:
        """Send a message, and its data behind it, as far as that goes at once. That the other side is gone is read."""
        trace.message("sent", message, self._peer)
        self._out += message.encode()
        self.flush()

    def flush(self) -> None:
        """Send on what was posted, as far as that goes at once."""
        try:
            while self._out:
                del self._out[: self.sock.send(self._out, socket.MSG_DONTWAIT)]
        except BlockingIOError:
            return
        except OSError:
            self._out.clear()

    def finish(self, seconds: float) -> None:
        """Send on all that was posted, waiting for the other side for at most some seconds."""
        deadline = time.monotonic() + seconds
        while self._out and time.monotonic() < deadline:
            select.select([], [self.sock], [], max(0.0, deadline - time.monotonic()))
            self.flush()

    def receive(self) -> Optional[List[Message]]:
        """Return the messages that have come, None when the other side is gone. Call it when the socket is readable.

        What follows a line with `bytes` is the message's data. A line that is no message (what a login script says), or
        none with the fields of its kind, is a StrayLine. Who sends a line without an end is taken to be gone.
        """
        try:
            data = self.sock.recv(1 << 18, socket.MSG_DONTWAIT)
        except BlockingIOError:
            return []
        except OSError:
            return None
        if not data:
            return None
        self._rest += data
        messages: List[Message] = []
        while True:
            line, newline, rest = self._rest.partition(b"\n")
            if not newline:
                return messages if len(self._rest) <= framing.LINE_BYTES else None
            message, count = _message(line)
            if len(rest) < count:
                return messages
            self._rest = rest[count:]
            trace.message("received", message, self._peer)
            messages.append(message.replace(data=rest[:count]) if "data" in vars(message) else message)

    def close(self) -> None:
        """Close the socket."""
        self.sock.close()


def _message(line: bytes) -> Tuple[Message, int]:
    """Return what a line says, and how many bytes follow it."""
    read = framing.parsed(line) if framing.values(line) <= framing.LINE_VALUES else None
    size = 0 if read is None else read.get("bytes", 0)
    if read is None or type(size) is not int or not 0 <= size <= DATA_BYTES:
        return StrayLine(text=repr(line)), 0
    kind = KINDS.get(str(read.get("op")), StrayLine)
    try:
        return kind.from_wire(read), size
    except ValueError:
        return StrayLine(text=repr(line)), size
