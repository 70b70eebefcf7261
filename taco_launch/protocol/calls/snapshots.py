"""Calls about snapshots of code: snapshot-offer, snapshot-put, snapshot-prune.

A snapshot is offered by its manifest; the chunks that the head lacks are put, as many at a time as one request may have.
"""

import hashlib
import struct
import zlib
from typing import Iterable, Iterator, List, Sequence, Tuple

from taco_launch.manifest import CHUNK_BYTES, MOST_BYTES
from taco_launch.protocol.calls import Reply, Request, check_counts

# What one request may have behind its line.
MOST_PUT = 1 << 25
_HEAD = struct.Struct(">32sI")
_HASH_BYTES = 32


class SnapshotOffer(Request):
    """Offer a snapshot: `data` is its manifest, compressed. Reply: MissingChunks."""

    op = "snapshot-offer"
    snapshot: str
    data: bytes = b""

    @property
    def manifest(self) -> bytes:
        """The text of the manifest.

        Raises:
            ValueError: it is no such text, or too large.
        """
        unpack = zlib.decompressobj()
        try:
            text = unpack.decompress(self.data, MOST_BYTES)
        except zlib.error as error:
            raise ValueError(f"the manifest is damaged: {error}") from None
        if not unpack.eof:
            raise ValueError("the manifest is too large, or cut")
        return text


class SnapshotPut(Request):
    """Send chunks of a snapshot that was offered, each behind its hash and length (`packed`). Reply: ChunksStored."""

    op = "snapshot-put"
    snapshot: str
    data: bytes = b""


class SnapshotPrune(Request):
    """Remove the snapshots that no job needs and that were last used more than `since` seconds ago, on the head and on `hosts`.

    Replies: SnapshotsRemoved for each host, Notice for one that does not answer.
    """

    op = "snapshot-prune"
    since: float
    dry_run: bool
    # the name of the agent's own host, and the names of the others
    here: str
    hosts: Sequence[str]


class MissingChunks(Reply):
    """The chunks that the head lacks: `data` is their hashes, 32 bytes each."""

    op = "missing"
    data: bytes = b""

    @property
    def hashes(self) -> List[str]:
        """The hashes, as text."""
        return [self.data[at : at + _HASH_BYTES].hex() for at in range(0, len(self.data), _HASH_BYTES)]


class ChunksStored(Reply):
    """The chunks are kept; how many are still missing."""

    op = "stored"
    missing: int


class SnapshotsRemoved(Reply):
    """How many snapshots a host has removed, or would, and the bytes of disk that this frees."""

    op = "snapshots-removed"
    snapshots: int
    freed: int
    # another host's own answer has no name
    host: str = ""

    def check(self) -> None:
        """Check that these are counts."""
        check_counts(snapshots=self.snapshots, freed=self.freed)


def missing(hashes: Iterable[str]) -> MissingChunks:
    """Return the reply that names chunks."""
    return MissingChunks(data=b"".join(map(bytes.fromhex, hashes)))


def packed(chunk: bytes) -> bytes:
    """Return a chunk as it is put."""
    return _HEAD.pack(hashlib.sha256(chunk).digest(), len(chunk)) + chunk


def unpacked(data: bytes) -> Iterator[Tuple[str, bytes]]:
    """Yield each chunk with the hash that it is said to have.

    Raises:
        ValueError: it is cut, or has another form.
    """
    view, at = memoryview(data), 0
    while at < len(view):
        if len(view) - at < _HEAD.size:
            raise ValueError("a chunk is cut")
        digest, size = _HEAD.unpack_from(view, at)
        at += _HEAD.size
        if size > CHUNK_BYTES or len(view) - at < size:
            raise ValueError("a chunk is cut, or too large")
        yield digest.hex(), bytes(view[at : at + size])
        at += size
