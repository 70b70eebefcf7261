"""JSON lines: between controller and agent (after a header that says who speaks), and between the agent's processes."""

import json
import socket
from typing import IO, Any, Dict, List, Optional

from taco_launch.errors import TacoLaunchError, UsageError

VERSION = 1
END = {"end": True}  # the last frame of an answer: without it, the answer broke off


def dump(message: Any) -> bytes:
    """Give one JSON line. Bytes that are no UTF-8 travel as lone surrogates, so nothing is lost."""
    return json.dumps(message, separators=(",", ":")).encode("ascii") + b"\n"


def header(op: str, agent: str) -> Dict[str, Any]:
    """Give the first line of every call and of every answer."""
    return {"protocol": VERSION, "agent": agent, "op": op}


def read(stream: IO[bytes]) -> Optional[Dict[str, Any]]:
    """Read one JSON line, None at the end.

    Raises:
        UsageError: the line is no JSON mapping.
    """
    line = stream.readline()
    if not line:
        return None
    try:
        message = json.loads(line)
    except (ValueError, RecursionError):
        message = None
    if not isinstance(message, dict):
        raise UsageError(f"not a message of taco-launch: {line[:80]!r}")
    return message


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
    """Give an error as a message."""
    return {"error": {"message": error.message, "hint": error.hint, "exit_code": error.exit_code}}


class Line:
    """One end of a connected Unix socket that carries JSON lines; never blocks on reading."""

    def __init__(self, sock: socket.socket) -> None:
        """Take over `sock`."""
        self.sock = sock
        self._rest = b""

    def fileno(self) -> int:
        """For selectors."""
        return self.sock.fileno()

    def send(self, message: Any) -> bool:
        """Send one message; False where the other side is gone."""
        try:
            self.sock.sendall(dump(message))
        except OSError:
            return False
        return True

    def receive(self) -> Optional[List[Dict[str, Any]]]:
        """Give the messages that have come, None when the other side is gone. Call it when the socket is readable."""
        try:
            data = self.sock.recv(1 << 16)
        except BlockingIOError:
            return []
        except OSError:
            return None
        if not data:
            return None
        *lines, self._rest = (self._rest + data).split(b"\n")
        return [json.loads(line) for line in lines]

    def close(self) -> None:
        """Close the socket."""
        self.sock.close()
