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
from taco_launch.core.lifecycle import state
from taco_launch.core.manifest import FileEntry, Manifest
from taco_launch.core.model.jobs import CodeSnapshot, JobSpec
from tests.support import packs

SHARED = b"shared" * 100


@pytest.fixture
def store(tmp_path: Path) -> SnapshotStore:
    return SnapshotStore(tmp_path / "state")


def keep(store: SnapshotStore, data: bytes, days: float, *, whole: bool = True, base: str = "") -> str:
    """Keep a snapshot of its own data and some that all have, last used so many days ago."""
    contents = (data, SHARED)
    hashes = [hashlib.sha256(content).hexdigest() for content in contents]
    files = (FileEntry(f"f{number}", False, len(each), hashes[number]) for number, each in enumerate(contents))
    name = packs.keep(store, Manifest(tuple(files)), *contents, base=base)
    path = store.pack(name)
    if not whole:
        path = path.rename(path.with_name(f"{name}.part"))
    at = time.time() - days * 86400
    os.utime(path, (at, at))
    return name


def there(store: SnapshotStore) -> set[str]:
    return {path.name for path in store.packs.iterdir()}


def size(store: SnapshotStore, name: str) -> int:
    return store.pack(name).stat().st_size


def test_the_oldest_go_first(store: SnapshotStore) -> None:
    oldest, older, newest = (keep(store, bytes([number]) * 1000, 9 - number) for number in range(3))
    each = size(store, oldest)
    assert eviction.shrink(store, most=10_000) == (0, 0)
    assert eviction.shrink(store, most=2 * each) == (1, each)
    assert there(store) == {older, newest}
    assert eviction.shrink(store, keep=older, most=1) == (1, each)
    assert there(store) == {older}
    assert not store.use(oldest)


def test_a_base_goes_after_what_needs_it(store: SnapshotStore) -> None:
    base = keep(store, b"base" * 100, 9)
    needs, again = keep(store, b"one", 3, base=base), keep(store, b"two", 2, base=base)
    assert eviction.shrink(store, most=size(store, base) + size(store, again)).snapshots == 1
    assert there(store) == {base, again}
    assert not store.use(needs)
    assert store.use(again)  # and with it its base
    assert eviction.prune(store, 0, dry_run=False) == (0, 0)
    for name in (base, again):
        os.utime(store.pack(name), (1, 1))
    assert eviction.prune(store, 0, dry_run=False).snapshots == 2
    assert there(store) == set()


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
    freed = size(store, name)
    assert eviction.prune(store, 0, dry_run=False) == (0, 0)
    os.close(held)
    assert eviction.prune(store, 0, dry_run=False) == (1, freed)
    assert there(store) == set()


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
    freed = size(store, older)
    assert eviction.prune(store, 2 * 86400, dry_run=True) == (1, freed)
    assert there(store) == {older, newer}
    assert eviction.prune(store, 2 * 86400, dry_run=False) == (1, freed)
    assert there(store) == {newer}


def test_what_is_damaged_does_not_stay_for_ever(store: SnapshotStore) -> None:
    name = keep(store, b"damaged", 3)
    store.pack(name).write_text("no pack")
    os.utime(store.pack(name), (1, 1))
    assert eviction.prune(store, 0, dry_run=False) == (1, len("no pack"))
    assert there(store) == set()


def test_a_store_that_is_not_there(store: SnapshotStore) -> None:
    assert eviction.prune(store, 0, dry_run=False) == (0, 0)
    assert eviction.shrink(store, most=1) == (0, 0)


def test_another_host_says_what_it_removed(store: SnapshotStore, monkeypatch: pytest.MonkeyPatch) -> None:
    freed = size(store, keep(store, b"code", 3))
    said = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", SimpleNamespace(buffer=said))
    assert eviction.main(store.path.parent, 0.0, dry_run=False) == 0
    assert json.loads(said.getvalue()) == {"op": "snapshots-removed", "snapshots": 1, "freed": freed, "host": ""}


def test_what_an_earlier_version_kept_goes_once_it_is_no_longer_used(store: SnapshotStore) -> None:
    old, fresh = store.path / "chunks", store.path / "manifests"
    for folder in (old, fresh):
        (folder / "ab").mkdir(parents=True)
        (folder / "ab" / "x").write_bytes(b"x")
    os.utime(old, (1, 1))
    eviction.prune(store, 0.0, dry_run=True)
    assert old.exists()
    eviction.shrink(store)
    assert not old.exists()
    assert fresh.exists(), "an agent of that version may still use it"
