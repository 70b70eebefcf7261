"""Frames in a stream of bytes that comes in pieces: each a line of JSON, and the bytes behind it."""

from typing import Any, Callable, List, Mapping

from taco_launch.core.errors import UsageError
from taco_launch.core.protocol import framing
from taco_launch.core.protocol.message import Message

# Of a frame's own line: none of those that are read by this has many values.
_LINE_BYTES = 1 << 16


class FrameReader:
    """Reads the frames of one stream."""

    def __init__(self, read: Callable[[Mapping[str, Any]], Message], most_data: int) -> None:
        """Have `read` return the message of a line; a frame has at most `most_data` bytes of data."""
        self._read = read
        self._most = most_data
        self._rest = bytearray()

    def feed(self, data: bytes) -> List[Message]:
        """Return the messages that are whole with the next piece.

        Raises:
            UsageError: what comes is no frame; nothing more can be read.
        """
        self._rest += data
        found: List[Message] = []
        while True:
            end = self._rest.find(b"\n", 0, _LINE_BYTES)
            if end < 0:
                if len(self._rest) >= _LINE_BYTES:
                    raise UsageError(f"not a taco-launch message: {bytes(self._rest[:80])!r} ...")
                return found
            line = framing.message(bytes(self._rest[: end + 1])) or {}
            size = line.get("bytes", 0)
            if type(size) is not int or not 0 <= size <= self._most:
                raise UsageError(f"not a taco-launch message: invalid byte count {str(size)[:40]}")
            if len(self._rest) < end + 1 + size:
                return found
            try:
                message = self._read(line)
            except ValueError as error:
                raise UsageError(f"not a taco-launch message: {error!s:.200}") from None
            if size and "data" not in vars(message):
                raise UsageError(f"not a taco-launch message: unexpected bytes after {message.op}")
            if size:
                message = message.replace(data=bytes(self._rest[end + 1 : end + 1 + size]))
            del self._rest[: end + 1 + size]
            found.append(message)
