"""The tree of an attempt that has ended: its code is kept for the next one, what its ranks wrote stays with the job."""

import hashlib
import os
from pathlib import Path

import pytest

from taco_launch.agent.snapshots import recycled_tree
from taco_launch.agent.snapshots.checkout import check_out
from taco_launch.agent.snapshots.store import SnapshotStore
from taco_launch.agent.store.folders import JobFolder
from taco_launch.core import manifest
from taco_launch.core.manifest import FileEntry, Manifest
from tests.support import packs, trees
from tests.support.raisers import raiser

DATA = b"the code"
CONTENT = hashlib.sha256(DATA).hexdigest()
TREE = Manifest((FileEntry("src/a", False, len(DATA), CONTENT), FileEntry("b", False, len(DATA), CONTENT)))
ID = hashlib.sha256(manifest.written(TREE)).hexdigest()
CODE = {"src": None, "src/a": (DATA, False), "b": (DATA, False)}


@pytest.fixture
def store(tmp_path: Path) -> SnapshotStore:
    found = SnapshotStore(tmp_path / "state")
    packs.keep(found, TREE, DATA)
    return found


def attempt(store: SnapshotStore, name: str = "job") -> JobFolder:
    """Have an attempt's tree written."""
    folder = JobFolder(store.path.parent / "jobs" / name)
    folder.path.mkdir(parents=True, exist_ok=True)
    with store.open(ID) as pack:
        check_out(pack, folder.code, recycled_tree.take(store, folder.code, pack))
    recycled_tree.note(folder, ID)
    return folder


def test_what_ranks_wrote_stays_and_the_code_is_kept(store: SnapshotStore) -> None:
    folder = attempt(store)
    (folder.code / "out" / "deep").mkdir(parents=True)
    (folder.code / "out" / "deep" / "model.pt").write_bytes(b"trained")
    (folder.code / "b").write_bytes(b"changed")
    os.utime(folder.code / "b", (1, 1))  # the time that it shows is no proof
    (folder.code / "link").symlink_to("src/a")
    recycled_tree.keep(folder, store)
    assert trees.seen(folder.code) == {
        "out": None,
        "out/deep": None,
        "out/deep/model.pt": (b"trained", False),
        "b": (b"changed", False),
        "link": "src/a",
    }
    again = attempt(store, "next")
    assert trees.seen(again.code) == CODE
    assert not store.spare.exists()


def test_the_next_attempt_has_the_same_files(store: SnapshotStore) -> None:
    first = attempt(store)
    inode = (first.code / "src" / "a").stat().st_ino
    recycled_tree.keep(first, store)
    assert not first.code.exists()
    assert (attempt(store, "next").code / "src" / "a").stat().st_ino == inode


def test_one_is_enough(store: SnapshotStore) -> None:
    folders = [attempt(store, name) for name in ("one", "two")]
    (folders[1].code / "out").write_bytes(b"out")
    for folder in folders:
        recycled_tree.keep(folder, store)
    assert trees.seen(folders[1].code) == {"out": (b"out", False)}
    assert [path.name for path in store.path.iterdir() if path.name != "packs"] == ["tree"]


@pytest.mark.parametrize(
    "text",
    [None, "{", "[]", '{"snapshot": 1}', '{"snapshot": "../../x"}', f'{{"snapshot": "{"0" * 64}", "written": "soon"}}'],
)
def test_what_cannot_be_told_stays_where_it_is(store: SnapshotStore, text: "str | None") -> None:
    folder = attempt(store)
    (folder.code / "out").write_bytes(b"out")
    if text is None:
        (folder.path / "code.json").unlink()
    else:
        (folder.path / "code.json").write_text(text)
    recycled_tree.keep(folder, store)
    assert (folder.code / "out").read_bytes() == b"out"
    assert not store.spare.exists()


def test_a_tree_that_takes_too_long_stays(store: SnapshotStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recycled_tree, "_SECONDS", -1.0)
    folder = attempt(store)
    recycled_tree.keep(folder, store)
    assert trees.seen(folder.code) == CODE


def test_nothing_is_lost_where_the_outputs_cannot_be_moved(
    store: SnapshotStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = attempt(store)
    (folder.code / "out").write_bytes(b"out")
    monkeypatch.setattr(Path, "mkdir", raiser(OSError(28, "No space left on device")))
    recycled_tree.keep(folder, store)
    monkeypatch.undo()
    (rest,) = [path for path in folder.path.iterdir() if path.name.startswith("code.") and path.is_dir()]
    assert (rest / "out").read_bytes() == b"out"


def test_it_is_removed_with_its_size(store: SnapshotStore) -> None:
    assert recycled_tree.remove(store) == 0
    recycled_tree.keep(attempt(store), store)
    assert recycled_tree.remove(store, 3600) == 0, "it was used a moment ago"
    for dry_run in (True, False):
        assert recycled_tree.remove(store, dry_run=dry_run) == 2 * len(DATA)
    assert not store.spare.exists()
