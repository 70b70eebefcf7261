"""Old copies of code are removed, and never what a job needs, or somebody is bringing."""

import hashlib
import io
import json
import os
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

from taco_launch.agent.snapshots import eviction
from taco_launch.agent.snapshots.store import SnapshotStore
from taco_launch.agent.store import records
from taco_launch.agent.store.folders import Jobs
from taco_launch.core import manifest
from taco_launch.core.lifecycle import state
from taco_launch.core.manifest import FileEntry, Manifest
from taco_launch.core.model.jobs import CodeSnapshot, JobSpec

SHARED = b"shared" * 100


@pytest.fixture
def store(tmp_path: Path) -> SnapshotStore:
    return SnapshotStore(tmp_path / "state")


def keep(store: SnapshotStore, data: bytes, days: float, *, whole: bool = True) -> str:
    """Keep a snapshot of its own data and some that all have, last used so many days ago."""
    pieces = (data, SHARED)
    hashes = [hashlib.sha256(piece).hexdigest() for piece in pieces]
    files = (FileEntry(f"f{number}", False, len(piece), (hashes[number],)) for number, piece in enumerate(pieces))
    text = manifest.written(Manifest(tuple(files)))
    name = hashlib.sha256(text).hexdigest()
    store.begin(name, text)
    for chunk, piece in zip(hashes, pieces, strict=True):
        store.put(chunk, piece)
    if whole:
        store.finish(name)
    at = time.time() - days * 86400
    for path in (store.manifests / (name if whole else f"{name}.part"), *map(store.chunk, hashes)):
        os.utime(path, (at, at))
    return name


def there(store: SnapshotStore) -> set[str]:
    return {path.name for path in store.manifests.iterdir()}


def chunks(store: SnapshotStore) -> set[bytes]:
    return {path.read_bytes() for path in store.chunks.rglob("*") if path.is_file()}


def test_the_oldest_go_first(store: SnapshotStore) -> None:
    oldest, older, newest = (keep(store, bytes([number]) * 1000, 9 - number) for number in range(3))
    assert eviction.shrink(store, most=10_000) == (0, 0)
    assert eviction.shrink(store, most=2700) == (1, 1000)
    assert there(store) == {older, newest}
    assert chunks(store) == {bytes([1]) * 1000, bytes([2]) * 1000, SHARED}
    assert eviction.shrink(store, keep=older, most=1) == (1, 1000)
    assert there(store) == {older}
    assert not store.use(oldest)


def test_what_was_just_used_stays(store: SnapshotStore) -> None:
    fresh, old = keep(store, b"fresh" * 100, 0.001), keep(store, b"old" * 100, 1)
    eviction.shrink(store, most=1)
    assert there(store) == {fresh}
    assert old


def test_what_is_being_brought_stays_for_a_day(store: SnapshotStore) -> None:
    part = keep(store, b"part", 0.5, whole=False)
    left = keep(store, b"left", 2, whole=False)
    assert eviction.prune(store, 0, dry_run=False).snapshots == 1
    assert there(store) == {f"{part}.part"}
    assert left not in there(store)


def test_what_a_guard_holds_stays(store: SnapshotStore) -> None:
    name = keep(store, b"held", 3)
    held = store.hold(name)
    assert held is not None
    assert eviction.prune(store, 0, dry_run=False) == (0, 0)
    os.close(held)
    assert eviction.prune(store, 0, dry_run=False) == (1, 604)
    assert there(store) == set()
    assert chunks(store) == set()


@pytest.mark.parametrize("ended", [False, True])
def test_what_a_job_needs_stays_until_it_has_ended(store: SnapshotStore, *, ended: bool) -> None:
    name = keep(store, b"code", 3)
    jobs = Jobs(store.path.parent)
    with jobs.create("job") as draft:
        records.write_spec(draft, JobSpec("job", ("true",), (), code=CodeSnapshot(name)))
        events = records.Events(draft)
        events.add(state.SUBMITTED, id="1")
        if ended:
            events.add(state.ENDED, state="FAILED", exit_code=1)
        jobs.mark("job")
        jobs.publish(draft, "job")
    assert eviction.prune(store, 0, dry_run=False).snapshots == ended
    assert there(store) == (set() if ended else {name})


def test_only_older_ones_are_pruned_and_a_dry_run_only_counts(store: SnapshotStore) -> None:
    older, newer = keep(store, b"older", 3), keep(store, b"newer", 1)
    assert eviction.prune(store, 2 * 86400, dry_run=True) == (1, 5)
    assert there(store) == {older, newer}
    assert eviction.prune(store, 2 * 86400, dry_run=False) == (1, 5)
    assert there(store) == {newer}


def test_what_is_damaged_does_not_stay_for_ever(store: SnapshotStore) -> None:
    name = keep(store, b"damaged", 3)
    store.manifest(name).write_text("no manifest")
    for path in store.chunks.rglob("*"):
        if path.is_file():
            os.utime(path, (1, 1))
    assert eviction.prune(store, 0, dry_run=False).bytes > 0
    assert chunks(store) == set()


def test_a_store_that_is_not_there(store: SnapshotStore) -> None:
    assert eviction.prune(store, 0, dry_run=False) == (0, 0)
    assert eviction.shrink(store, most=1) == (0, 0)


def test_another_host_says_what_it_removed(store: SnapshotStore, monkeypatch: pytest.MonkeyPatch) -> None:
    keep(store, b"code", 3)
    said = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", SimpleNamespace(buffer=said))
    assert eviction.main(store.path.parent, 0.0, dry_run=False) == 0
    assert json.loads(said.getvalue()) == {"op": "snapshots-removed", "snapshots": 1, "freed": 604, "host": ""}
