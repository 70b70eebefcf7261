"""A tree is written as it was, into a folder of its own."""

import hashlib
import tempfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from taco_launch.agent.snapshots.checkout import check_out
from taco_launch.agent.snapshots.store import SnapshotStore
from taco_launch.manifest import FileEntry, Manifest
from taco_launch.sync import snapshot
from taco_launch.sync.tree_walk import walk
from tests.sync import trees

DATA = b"the code"
CHUNK = hashlib.sha256(DATA).hexdigest()
TREE = Manifest(
    (FileEntry("src/a", False, len(DATA), (CHUNK,)), FileEntry("run", True, len(DATA), (CHUNK,))),
    (("link", "src/a"),),
    ("empty",),
)


def filled(store: SnapshotStore, root: Path, cache: Path) -> Manifest:
    found = snapshot.take(walk(str(root), print), (), cache)
    for chunk in found.places:
        store.put(chunk, found.read(chunk))
    return found.manifest


@given(st.dictionaries(trees.PATHS, trees.CONTENT, max_size=6))
def test_a_tree_is_written_as_it_was(drawn: trees.Drawn) -> None:
    with tempfile.TemporaryDirectory() as name:
        scratch = Path(name)
        store = SnapshotStore(scratch / "state")
        trees.make(scratch / "one", drawn)
        assert check_out(store, filled(store, scratch / "one", scratch / "cache"), scratch / "written") == []
        assert trees.seen(scratch / "written") == trees.seen(scratch / "one")


@pytest.fixture
def store(tmp_path: Path) -> SnapshotStore:
    found = SnapshotStore(tmp_path / "state")
    found.put(CHUNK, DATA)
    return found


def test_nothing_is_written_into_what_is_there(store: SnapshotStore, tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "written").symlink_to("elsewhere")
    with pytest.raises(FileExistsError):
        check_out(store, TREE, tmp_path / "written")
    assert list((tmp_path / "elsewhere").iterdir()) == []


def test_a_file_that_is_damaged_in_the_store(store: SnapshotStore, tmp_path: Path) -> None:
    store.chunk(CHUNK).write_bytes(b"damaged!")
    assert sorted(check_out(store, TREE, tmp_path / "written")) == [(CHUNK, "run"), (CHUNK, "src/a")]
    assert not (tmp_path / "written" / "src" / "a").exists()
