"""JSON lines: between controller and agent (after a header that says who speaks), and between the agent's processes."""

import json
import select
import socket
import time
from typing import IO, Any, Dict, List, Optional

from taco_launch.errors import TacoLaunchError, UsageError

VERSION = 1
END = {"end": True}  # the last frame of an answer: without it, the answer broke off


def dump(message: Any) -> bytes:
    """Return one JSON line. Bytes that are no UTF-8 travel as lone surrogates, so nothing is lost."""
    return json.dumps(message, separators=(",", ":")).encode("ascii") + b"\n"


def header(op: str, agent: str) -> Dict[str, Any]:
    """Return the first line of every call and of every answer."""
    return {"protocol": VERSION, "agent": agent, "op": op}


# A line is a row of a table, a job with its events, or what is known of a host.
LINE_BYTES = 1 << 23
# What follows a message of the agent's processes: a piece of a log.
DATA_BYTES = 1 << 24
# Each value of a line takes up to a hundred bytes in memory: `[[],[],...` is short as text.
LINE_VALUES = 1 << 19


def read(stream: IO[bytes]) -> Optional[Dict[str, Any]]:
    """Read one JSON line, None at the end.

    Raises:
        UsageError: the line is no JSON mapping, or longer than any message.
    """
    return message(stream.readline(LINE_BYTES + 1))


def message(line: bytes) -> Optional[Dict[str, Any]]:
    """Return what a line holds, None for an empty one, which is the end. Raises as `read` does."""
    if not line:
        return None
    if len(line) > LINE_BYTES or values(line) > LINE_VALUES:
        raise UsageError(f"a message is larger than {LINE_BYTES} bytes or {LINE_VALUES} values: {line[:80]!r} ...")
    found = parsed(line)
    if found is None:
        raise UsageError(f"not a message of taco-launch: {line[:80]!r}")
    return found


def check(first: Optional[Dict[str, Any]], ours: str, theirs_is: str) -> None:
    """Check a header that came from the side called `theirs_is`, to the side called `ours`.

    Raises:
        UsageError: it speaks another protocol; the hint says which side is to be upgraded.
    """
    theirs = (first or {}).get("protocol")
    if theirs != VERSION:
        older = ours if isinstance(theirs, int) and theirs > VERSION else theirs_is
        raise UsageError(f"protocol {theirs} meets protocol {VERSION}", hint=f"upgrade taco-launch on {older}")


def error_message(error: TacoLaunchError) -> Dict[str, Any]:
    """Return an error as a message."""
    return {"error": {"message": error.message, "hint": error.hint, "exit_code": error.exit_code}}


class Line:
    """One end of a connected socket that carries JSON lines, and raw bytes behind those with `bytes` in them.

    Reading never blocks; `send` may, `post` does not.
    """

    def __init__(self, sock: socket.socket) -> None:
        """Take over `sock`."""
        self.sock = sock
        self._rest = b""
        self._out = bytearray()

    def fileno(self) -> int:
        """For selectors."""
        return self.sock.fileno()

    @property
    def waiting(self) -> int:
        """How many posted bytes have not gone out yet; `flush` when the socket can be written."""
        return len(self._out)

    def send(self, message: Any) -> bool:
        """Send one message; False where the other side is gone."""
        try:
            self.sock.sendall(dump(message))
        except OSError:
            return False
        return True

    def post(self, message: Any, data: bytes = b"") -> None:
        """Send a message, and `data` behind it, as far as that goes at once. That the other side is gone is read."""
        self._out += dump({**message, "bytes": len(data)} if data else message) + data
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

    def receive(self) -> Optional[List[Dict[str, Any]]]:
        """Return the messages that have come, None when the other side is gone. Call it when the socket is readable.

        What follows a message with `bytes` is its `data`. A line that is no message (what a login script says) is one
        of op `noise`. Who sends a line without an end is taken to be gone.
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
        messages: List[Dict[str, Any]] = []
        while True:
            line, newline, rest = self._rest.partition(b"\n")
            if not newline:
                return messages if len(self._rest) <= LINE_BYTES else None
            message = _message(line)
            count = message.get("bytes", 0)
            if len(rest) < count:
                return messages
            if count:
                message["data"] = rest[:count]
            self._rest = rest[count:]
            messages.append(message)

    def close(self) -> None:
        """Close the socket."""
        self.sock.close()


def values(line: bytes) -> int:
    """Return how many values a JSON line holds at most; commas in strings count as well."""
    return line.count(b",") + line.count(b"[") + line.count(b"{")


def parsed(line: bytes) -> Optional[Dict[str, Any]]:
    """Read one JSON mapping, None where it is none."""
    try:
        message = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return message if isinstance(message, dict) else None


def _message(line: bytes) -> Dict[str, Any]:
    message = parsed(line) if values(line) <= LINE_VALUES else None
    if message is None or not isinstance(message.get("op"), str):
        return {"op": "noise", "text": repr(line)}
    size = message.get("bytes", 0)
    return message if type(size) is int and 0 <= size <= DATA_BYTES else {"op": "noise", "text": repr(line)}
