"""A tree written over whatever is there is the tree, and nothing else of it is touched."""

import hashlib
import os
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from taco_launch.agent.snapshots.checkout import Before, check_out
from taco_launch.agent.snapshots.store import Pack, SnapshotStore
from taco_launch.core.manifest import FileEntry, Manifest
from taco_launch.jobs.code import snapshot
from taco_launch.jobs.code.tree_walk import walk
from tests.support import packs, trees

DATA = b"the code"
CONTENT = hashlib.sha256(DATA).hexdigest()
TREE = Manifest(
    (FileEntry("src/a", False, len(DATA), CONTENT), FileEntry("run", True, len(DATA), CONTENT)),
    (("link", "src/a"),),
    ("empty",),
)
CODE = {"src": None, "src/a": (DATA, False), "run": (DATA, True), "link": "src/a", "empty": None}


def filled(store: SnapshotStore, root: Path, cache: Path) -> Pack:
    found = snapshot.take(walk(str(root), print), (), cache)
    return store.open(packs.keep_taken(store, found))


def before(tree: Manifest) -> Before:
    """Return what a folder holds that was written a moment ago."""
    time.sleep(0.02)
    return Before(tree, time.time_ns())


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
        there = None
        for each in ("one", "two"):
            with filled(store, scratch / each, scratch / "cache") as pack:
                assert check_out(pack, scratch / "written", there) == []
                there = before(pack.manifest)
            assert trees.seen(scratch / "written") == trees.seen(scratch / each)


@pytest.fixture
def pack(tmp_path: Path) -> Iterator[Pack]:
    store = SnapshotStore(tmp_path / "state")
    with store.open(packs.keep(store, TREE, DATA)) as found:
        yield found


@pytest.fixture
def written(pack: Pack, tmp_path: Path) -> Path:
    folder = tmp_path / "written"
    check_out(pack, folder)
    return folder


def test_what_is_right_is_not_written_again(pack: Pack, written: Path) -> None:
    there = before(TREE)
    inodes = {path: path.lstat().st_ino for path in written.rglob("*")}
    packs.damage(pack)  # nothing is read of it
    assert check_out(pack, written, there) == []
    assert {path: path.lstat().st_ino for path in written.rglob("*")} == inodes


def test_a_folder_of_which_nothing_is_known_is_written_again(pack: Pack, written: Path) -> None:
    (written / "run").write_bytes(DATA[::-1])
    assert check_out(pack, written) == []
    assert trees.seen(written) == CODE


def _changed_long_ago(path: Path) -> None:
    path.write_bytes(b"not code")
    os.utime(path, (1, 1))


@pytest.mark.parametrize(
    "change",
    [
        lambda path: path.write_bytes(b"not code"),
        _changed_long_ago,  # the time that it shows is no proof
        lambda path: (path.with_name("new").write_bytes(b"not code"), path.with_name("new").rename(path)),
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
def test_what_a_rank_changed_is_put_right(pack: Pack, written: Path, change: object) -> None:
    there = before(TREE)
    time.sleep(0.02)  # no rank starts within one tick of the clock
    change(written / "src" / "a")  # type: ignore[operator]
    assert check_out(pack, written, there) == []
    assert trees.seen(written) == CODE
    assert {path.lstat().st_nlink for path in written.rglob("*") if path.is_file() and not path.is_symlink()} == {1}
    other = written.parent / "another name"
    assert not other.exists() or other.read_bytes() == DATA
    assert Path("/etc/passwd").exists()


def test_a_file_that_is_damaged_where_it_is_and_in_the_store(pack: Pack, written: Path) -> None:
    packs.damage(pack)
    assert check_out(pack, written) == ["run", "src/a"]
    assert [path for path in written.rglob("*") if path.is_file() and not path.is_symlink()] == []
