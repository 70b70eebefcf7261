"""A tree written over whatever is there is the tree, and nothing else of it is touched."""

import hashlib
import os
import tempfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from taco_launch.agent.snapshots.checkout import check_out
from taco_launch.agent.snapshots.store import SnapshotStore
from taco_launch.core.manifest import FileEntry, Manifest
from taco_launch.jobs.code import snapshot
from taco_launch.jobs.code.tree_walk import walk
from tests.support import trees

DATA = b"the code"
CHUNK = hashlib.sha256(DATA).hexdigest()
TREE = Manifest(
    (FileEntry("src/a", False, len(DATA), (CHUNK,)), FileEntry("run", True, len(DATA), (CHUNK,))),
    (("link", "src/a"),),
    ("empty",),
)
CODE = {"src": None, "src/a": (DATA, False), "run": (DATA, True), "link": "src/a", "empty": None}


def filled(store: SnapshotStore, root: Path, cache: Path) -> Manifest:
    found = snapshot.take(walk(str(root), print), (), cache)
    for chunk in found.places:
        store.put(chunk, found.read(chunk))
    return found.manifest


@given(
    st.dictionaries(trees.PATHS, trees.CONTENT, max_size=6),
    st.dictionaries(trees.PATHS, trees.CONTENT, max_size=6),
    st.booleans(),
)
def test_one_tree_over_another(first: trees.Drawn, second: trees.Drawn, both: bool) -> None:
    with tempfile.TemporaryDirectory() as name:
        scratch = Path(name)
        store = SnapshotStore(scratch / "state")
        trees.make(scratch / "one", first)
        trees.make(scratch / "two", {**first, **second} if both else second)
        for each in ("one", "two"):
            assert check_out(store, filled(store, scratch / each, scratch / "cache"), scratch / "written") == []
            assert trees.seen(scratch / "written") == trees.seen(scratch / each)


@pytest.fixture
def store(tmp_path: Path) -> SnapshotStore:
    found = SnapshotStore(tmp_path / "state")
    found.put(CHUNK, DATA)
    return found


@pytest.fixture
def written(store: SnapshotStore, tmp_path: Path) -> Path:
    folder = tmp_path / "written"
    check_out(store, TREE, folder)
    return folder


def test_what_is_right_is_not_written_again(store: SnapshotStore, written: Path) -> None:
    before = {path: path.lstat().st_ino for path in written.rglob("*")}
    store.chunk(CHUNK).unlink()  # nothing is read of the store
    assert check_out(store, TREE, written) == []
    assert {path: path.lstat().st_ino for path in written.rglob("*")} == before


@pytest.mark.parametrize(
    "change",
    [
        lambda path: path.write_bytes(b"not code"),
        lambda path: path.write_bytes(DATA[:-1]),
        lambda path: path.write_bytes(DATA + b"!"),
        lambda path: path.chmod(0o4700),
        lambda path: path.chmod(0o644),
        lambda path: os.link(path, path.parents[2] / "another name"),
        lambda path: (path.unlink(), path.symlink_to("../run")),
        lambda path: (path.unlink(), os.mkfifo(path)),  # type: ignore[func-returns-value]
        lambda path: (path.unlink(), path.mkdir(), (path / "inner").write_bytes(b"x")),
        lambda path: (path.unlink(), path.parent.rmdir(), path.parent.symlink_to("/etc")),
        lambda path: (path.unlink(), path.parent.rmdir(), path.parent.write_bytes(b"x")),
        lambda path: path.parent.chmod(0o777),
        lambda path: (path.parents[1] / "link").unlink(),
        lambda path: ((path.parents[1] / "link").unlink(), (path.parents[1] / "link").symlink_to("/etc/passwd")),
        lambda path: ((path.parents[1] / "empty").rmdir(), (path.parents[1] / "empty").write_bytes(b"x")),
        lambda path: (path.parent / "more").write_bytes(b"left by a rank"),
        lambda path: (path.parents[1] / "empty" / "__pycache__").mkdir(),
    ],
)
def test_what_a_rank_changed_is_put_right(store: SnapshotStore, written: Path, change: object) -> None:
    change(written / "src" / "a")  # type: ignore[operator]
    assert check_out(store, TREE, written) == []
    assert trees.seen(written) == CODE
    assert {path.lstat().st_nlink for path in written.rglob("*") if path.is_file() and not path.is_symlink()} == {1}
    other = written.parent / "another name"
    assert not other.exists() or other.read_bytes() == DATA
    assert Path("/etc/passwd").exists()


def test_a_file_that_is_damaged_where_it_is_and_in_the_store(store: SnapshotStore, written: Path) -> None:
    (written / "src" / "a").write_bytes(b"not code")
    store.chunk(CHUNK).write_bytes(b"damaged!")
    assert check_out(store, TREE, written) == [(CHUNK, "src/a")]
    assert not (written / "src" / "a").exists()
