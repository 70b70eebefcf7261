"""`agent snapshot-serve ID`: sends another host the chunks of a snapshot that it lacks, as they arrive here themselves.

The answer begins with a line that says so, since a login script may print before it; then comes the manifest behind its
length. What is asked for next is a bit for each chunk in the order of the manifest, and what follows is each of these
behind its length. A length of 0 is followed by a line that says why there is no more.
"""

import os
import select
import struct
import sys
import time
from pathlib import Path
from typing import Any, Callable, Iterable, List

from taco_launch.agent.snapshots.store import DamagedError, SnapshotStore
from taco_launch.core import manifest
from taco_launch.core.errors import FAILED, OK

# A neighbour that is asked before anything has begun to arrive there waits for so long, and for each chunk so long.
_BEGIN_SECONDS = 20.0
CHUNK_SECONDS = 60.0
_POLL_SECONDS = (0.002, 0.05)
_LENGTH = struct.Struct(">I")


class _NoMoreError(Exception):
    """Why there is no more to be sent."""


def greeting(snapshot: str) -> bytes:
    """Return the line that an answer begins with."""
    return f"taco-launch snapshot {snapshot}\n".encode()


def length(count: int) -> bytes:
    """Return a length as it is sent."""
    return _LENGTH.pack(count)


def length_of(data: bytes) -> int:
    """Return the length that 4 bytes are."""
    count: int = _LENGTH.unpack(data)[0]
    return count


LENGTH_BYTES = _LENGTH.size


def main(state: Path, snapshot: str) -> int:
    """Answer on stdout what is asked on stdin."""
    out = sys.stdout.buffer
    store = SnapshotStore(state)
    try:
        out.write(greeting(snapshot))
        out.flush()
        begun = time.monotonic()
        text = _wait(lambda: _text(store, snapshot), store, snapshot, begun)
        out.write(length(len(text)) + text)
        out.flush()
        sizes = manifest.sizes(manifest.parsed(text))
        for chunk in _wanted(list(sizes)):
            data = _wait(lambda: _chunk(store, snapshot, chunk, sizes[chunk]), store, snapshot, begun)  # noqa: B023 - used at once
            out.write(length(len(data)))
            out.write(data)
            out.flush()
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        return FAILED
    except (_NoMoreError, ValueError, OSError) as error:
        out.write(length(0) + f"{error}\n".encode("utf-8", "replace"))
        out.flush()
        return FAILED
    return OK


def _text(store: SnapshotStore, snapshot: str) -> bytes:
    try:
        return store.read(snapshot)[1]
    except DamagedError as error:
        raise FileNotFoundError(str(error)) from None


def _chunk(store: SnapshotStore, snapshot: str, chunk: str, size: int) -> bytes:
    """Return a chunk; one that is damaged is forgotten, so that it is brought here again.

    Raises:
        FileNotFoundError: it is not here yet.
        _NoMoreError: it is damaged.
    """
    store.chunk(chunk).lstat()
    try:
        return store.get(chunk, size)
    except DamagedError as error:
        store.drop(snapshot, [chunk])
        raise _NoMoreError(f"its copy is damaged: {error}") from None


def _wanted(chunks: List[str]) -> Iterable[str]:
    """Return the chunks that the bits on stdin ask for.

    Raises:
        _NoMoreError: the request broke off.
    """
    count = -(-len(chunks) // 8)
    bits = sys.stdin.buffer.read(count)
    if len(bits) < count:
        raise _NoMoreError("the request broke off")
    return (chunk for number, chunk in enumerate(chunks) if bits[number // 8] >> (number % 8) & 1)


def bits(chunks: Iterable[str], wanted: Iterable[str]) -> bytes:
    """Return a bit for each chunk: whether it is wanted."""
    asked, every = set(wanted), list(chunks)
    found = bytearray(-(-len(every) // 8))
    for number, chunk in enumerate(every):
        if chunk in asked:
            found[number // 8] |= 1 << (number % 8)
    return bytes(found)


def _wait(look: Callable[[], bytes], store: SnapshotStore, snapshot: str, begun: float) -> bytes:
    """Return what `look` finds once it is here.

    Raises:
        _NoMoreError: nobody brings it here, or not in time.
    """
    since, pause = time.monotonic(), _POLL_SECONDS[0]
    while True:
        arriving = store.is_arriving(snapshot)  # before the look: what came last is seen by it
        try:
            return look()
        except FileNotFoundError:
            now = time.monotonic()
            if now - since > CHUNK_SECONDS or not (arriving or now - begun < _BEGIN_SECONDS):
                raise _NoMoreError("it has no copy of the code") from None
        if select.select([0], [], [], pause)[0] and not _asks():
            raise _NoMoreError("the receiver no longer waits for it")
        pause = min(2 * pause, _POLL_SECONDS[1])


def _asks() -> bool:
    """Return whether whoever asked is still there."""
    stdin: Any = sys.stdin.buffer  # a BufferedReader
    return bool(stdin.peek(1))
