"""A snapshot on its way to a head: only what is missing, in pieces, and what comes back is checked."""

import hashlib
import os
import zlib
from pathlib import Path
from typing import Any

import pytest

from taco_launch.backend import code_upload
from taco_launch.errors import HostError
from taco_launch.protocol.calls import snapshots as calls
from taco_launch.protocol.calls.snapshots import ChunksStored, MissingChunks, SnapshotOffer, SnapshotPut
from taco_launch.sync import snapshot
from taco_launch.sync.snapshot import Snapshot
from taco_launch.sync.tree_walk import walk


class FakeHead:
    """Lacks some chunks."""

    name = "gpu1"

    def __init__(self, lacks: list[str]) -> None:
        self.lacks = lacks
        self.had: dict[str, bytes] = {}
        self.puts: list[int] = []

    def expect(self, request: Any, _kind: type) -> Any:
        if isinstance(request, SnapshotOffer):
            assert hashlib.sha256(request.manifest).hexdigest() == request.snapshot
            return calls.missing(self.lacks)
        assert isinstance(request, SnapshotPut)
        self.puts.append(len(request.data))
        self.had.update(calls.unpacked(request.data))
        return ChunksStored(missing=len(self.lacks) - len(self.had))


@pytest.fixture
def taken(tmp_path: Path) -> Snapshot:
    root = tmp_path / "tree"
    root.mkdir()
    for number in range(12):
        (root / f"f{number}").write_bytes(os.urandom(4 << 20))
    return snapshot.take(walk(str(root), print), (), tmp_path / "cache")


def send(head: FakeHead, taken: Snapshot) -> list[str]:
    said: list[str] = []
    code_upload.send(head, taken, said.append)  # type: ignore[arg-type]
    return said


def test_only_what_is_missing_is_sent_and_no_more_at_a_time_than_one_call_may_have(taken: Snapshot) -> None:
    head = FakeHead(list(taken.places)[:11])
    said = send(head, taken)
    assert set(head.had) == set(head.lacks)
    assert all(hashlib.sha256(data).hexdigest() == chunk for chunk, data in head.had.items())
    assert len(head.puts) == 2
    assert max(head.puts) <= calls.MOST_PUT
    assert said[0] == "sending the code to the head: 44 MiB"


def test_nothing_is_sent_where_nothing_is_missing(taken: Snapshot) -> None:
    head = FakeHead([])
    assert send(head, taken) == []
    assert head.puts == []


def test_a_head_gets_nothing_else(taken: Snapshot) -> None:
    """It may be anybody's by now: files of ours that are no code are none of its business."""
    head = FakeHead([hashlib.sha256(Path("/etc/hostname").read_bytes()).hexdigest()])
    with pytest.raises(HostError, match="gpu1: it asks for what is not in the code"):
        send(head, taken)


def test_hashes_on_the_wire() -> None:
    hashes = [hashlib.sha256(bytes([number])).hexdigest() for number in range(5)]
    assert calls.missing(hashes).hashes == hashes
    assert MissingChunks(data=b"\1" * 40).hashes[-1] == "01" * 8  # cut: no chunk has it


@pytest.mark.parametrize(
    "data", [b"x", calls.packed(b"abc")[:-1], calls.packed(b"abc") + b"x", b"\0" * 32 + b"\xff" * 4]
)
def test_what_is_put_is_checked(data: bytes) -> None:
    with pytest.raises(ValueError, match="a chunk is cut"):
        list(calls.unpacked(data))


def test_a_manifest_that_unpacks_for_ever() -> None:
    bomb = zlib.compress(bytes(65 << 20))
    with pytest.raises(ValueError, match="too large, or cut"):
        _ = SnapshotOffer(snapshot="0", data=bomb).manifest
    with pytest.raises(ValueError, match="too large, or cut"):
        _ = SnapshotOffer(snapshot="0", data=zlib.compress(b"text")[:-3]).manifest
    with pytest.raises(ValueError, match="is damaged"):
        _ = SnapshotOffer(snapshot="0", data=b"no zlib").manifest
