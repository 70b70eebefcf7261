"""Calls about snapshots of code: what the head wants of one while a job with it is submitted; and snapshot-prune."""

from typing import Iterable, List, Sequence

from taco_launch.core.protocol.calls import Reply, Request, check_counts

_HASH_BYTES = 32


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


class CodeWanted(Reply):
    """What the head lacks of a job's code: `data` is hashes, 32 bytes each, first of the manifest alone, then of contents.

    The caller sends what has these hashes as input, one behind the other: the manifest compressed, contents as they are.
    """

    op = "code-wanted"
    data: bytes = b""

    @property
    def hashes(self) -> List[str]:
        """The hashes, as text."""
        return [self.data[at : at + _HASH_BYTES].hex() for at in range(0, len(self.data), _HASH_BYTES)]


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


def wanted(hashes: Iterable[str]) -> CodeWanted:
    """Return the reply that names what has these hashes."""
    return CodeWanted(data=b"".join(map(bytes.fromhex, hashes)))
