"""`agent snapshot-serve ID`: sends another host a snapshot, as it arrives here itself.

The answer begins with a line that says so, since a login script may print before it; then comes the pack as it is. What is
printed on stderr says why there is no more.
"""

import os
import select
import sys
import time
from pathlib import Path

from taco_launch.agent.snapshots.store import LINE_BYTES, PART, DamagedError, SnapshotStore, header, write
from taco_launch.agent.store import untrusted
from taco_launch.core.errors import FAILED, OK

# A neighbour that is asked before anything has begun to arrive there waits for so long, and for more of it so long.
_BEGIN_SECONDS = 20.0
MORE_SECONDS = 60.0
_POLL_SECONDS = 0.01
_BLOCK = 1 << 20


class _NoMoreError(Exception):
    """Why there is no more to be sent."""


def greeting(snapshot: str) -> bytes:
    """Return the line that an answer begins with."""
    return f"taco-launch snapshot {snapshot}\n".encode()


def main(state: Path, snapshot: str) -> int:
    """Answer on stdout."""
    store = SnapshotStore(state)
    try:
        write(1, greeting(snapshot))
        _send(store, snapshot, _opened(store, snapshot))
    except BrokenPipeError:
        return FAILED
    except (_NoMoreError, DamagedError, ValueError, OSError) as error:
        sys.stderr.write(f"{error}\n")
        return FAILED
    return OK


def _opened(store: SnapshotStore, snapshot: str) -> int:
    """Open a snapshot once it begins to arrive here."""
    path, begun = store.pack(snapshot), time.monotonic()
    while True:
        arriving = store.is_arriving(snapshot)  # before the look: what came last is seen by it
        for each in (path, path.with_name(path.name + PART)):
            if each == path or arriving:
                try:
                    return untrusted.open_regular(each)
                except FileNotFoundError:
                    continue
        _wait(begun, MORE_SECONDS if arriving else _BEGIN_SECONDS)


def _send(store: SnapshotStore, snapshot: str, file: int) -> None:
    line = b"".join(os.pread(file, LINE_BYTES, 0).partition(b"\n")[:2])
    found = header(line)
    if found is None:
        raise _NoMoreError("its copy is damaged")
    at, since = 0, time.monotonic()
    size = len(line) + found.text + found.content
    while at < size:
        arriving = store.is_arriving(snapshot)
        data = os.pread(file, min(_BLOCK, size - at), at)
        if data:
            write(1, data)
            at, since = at + len(data), time.monotonic()
        elif not arriving:
            raise _NoMoreError("it has a part of the code only")
        else:
            _wait(since, MORE_SECONDS)


def _wait(since: float, most: float) -> None:
    """Wait a moment.

    Raises:
        _NoMoreError: this was done for long enough, or the receiver has left.
    """
    if time.monotonic() - since > most:
        raise _NoMoreError("it has no copy of the code")
    if select.select([0], [], [], _POLL_SECONDS)[0] and not os.read(0, 1):
        raise _NoMoreError("the receiver no longer waits for it")
