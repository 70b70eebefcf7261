"""A snapshot on its way to the head: what the head lacks of it, as much at a time as one call may have."""

import time
import zlib
from collections.abc import Callable

from taco_launch import trace
from taco_launch.errors import HostError
from taco_launch.protocol.calls.snapshots import (
    MOST_PUT,
    ChunksStored,
    MissingChunks,
    SnapshotOffer,
    SnapshotPut,
    packed,
)
from taco_launch.remote.head import Head
from taco_launch.sync.snapshot import Snapshot, size_text

# Less than that is sent before anybody wonders.
_SILENT_BYTES = 16 << 20
_SAY_SECONDS = 2.0


def send(head: Head, snapshot: Snapshot, say: Callable[[str], None]) -> int:
    """Bring a snapshot to the head; return how many bytes of files were sent.

    Raises:
        UsageError: a file has changed since the snapshot was made.
        HostError: the head does not take it.
    """
    offer = SnapshotOffer(snapshot=snapshot.id, data=zlib.compress(snapshot.text, 6))
    missing = head.expect(offer, MissingChunks).hashes
    strange = [chunk for chunk in missing if chunk not in snapshot.places]
    if strange:
        raise HostError(f"{head.name}: it asks for what is not in the code: {strange[0][:12]}")
    total = sum(snapshot.places[chunk].size for chunk in missing)
    trace.decision("code: %s lacks %s chunks, %s bytes", head.name, len(missing), total)
    sent = 0
    progress = _Progress(total, say)
    batch: list[bytes] = []
    size = 0
    for chunk in missing:
        data = packed(snapshot.read(chunk))
        if size + len(data) > MOST_PUT:
            sent += _put(head, snapshot, batch)
            progress.tell(sent)
            batch, size = [], 0
        batch.append(data)
        size += len(data)
    if batch:
        sent += _put(head, snapshot, batch)
    progress.tell(sent)
    return total


def _put(head: Head, snapshot: Snapshot, batch: list[bytes]) -> int:
    data = b"".join(batch)
    head.expect(SnapshotPut(snapshot=snapshot.id, data=data), ChunksStored)
    return len(data)


class _Progress:
    """Says how far it is, now and then, where it takes long."""

    def __init__(self, total: int, say: Callable[[str], None]) -> None:
        self._total, self._say = total, say
        self._at = time.monotonic() + _SAY_SECONDS
        self._begun = time.monotonic()
        self._said = False
        if total > _SILENT_BYTES:
            self._said = True
            say(f"sending the code to the head: {size_text(total)}")

    def tell(self, sent: int) -> None:
        """Note how many bytes were sent."""
        now = time.monotonic()
        if not self._said or now < self._at:
            return
        self._at = now + _SAY_SECONDS
        rate = sent / max(now - self._begun, 0.001)
        say = f"sent {size_text(min(sent, self._total))} of {size_text(self._total)}, {size_text(int(rate))}/s"
        self._say(say)
