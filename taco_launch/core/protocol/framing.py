"""JSON lines: between controller and agent (after a header that says who speaks), and between the agent's processes."""

import json
from typing import IO, Any, Dict, Optional

from taco_launch.core.errors import UsageError

VERSION = 1


def dump(message: Any) -> bytes:
    """Return one JSON line. Bytes that are no UTF-8 travel as lone surrogates, so nothing is lost."""
    return json.dumps(message, separators=(",", ":")).encode("ascii") + b"\n"


def header(op: str, agent: str) -> Dict[str, Any]:
    """Return the first line of every call and of every answer."""
    return {"protocol": VERSION, "agent": agent, "op": op}


# A line is a row of a table, a job with its events, or what is known of a host.
LINE_BYTES = 1 << 23
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
        raise UsageError(f"not a taco-launch message: {line[:80]!r}")
    return found


def check(first: Optional[Dict[str, Any]], ours: str, theirs_is: str) -> None:
    """Check a header that came from the side called `theirs_is`, to the side called `ours`.

    Raises:
        UsageError: it speaks another protocol; the hint says which side is to be upgraded.
    """
    theirs = (first or {}).get("protocol")
    if theirs != VERSION:
        older = ours if isinstance(theirs, int) and theirs > VERSION else theirs_is
        raise UsageError(
            f"protocol version {theirs} does not match protocol version {VERSION}",
            hint=f"upgrade taco-launch on {older}",
        )


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
