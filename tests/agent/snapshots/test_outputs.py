"""What ranks have written into a tree stays with the job when an attempt has ended, and the code goes."""

import hashlib
import os
import time
from pathlib import Path

import pytest

from taco_launch.agent.snapshots import outputs
from taco_launch.agent.snapshots.checkout import check_out
from taco_launch.agent.snapshots.store import SnapshotStore
from taco_launch.agent.store.folders import JobFolder
from taco_launch.manifest import FileEntry, Manifest
from tests.sync import trees

DATA = b"the code"
CHUNK = hashlib.sha256(DATA).hexdigest()
TREE = Manifest(
    (FileEntry("src/a", False, len(DATA), (CHUNK,)), FileEntry("b", False, len(DATA), (CHUNK,))),
    (("here", "src"),),
    ("empty",),
)
CODE = {"src": None, "src/a": (DATA, False), "b": (DATA, False), "here": "src", "empty": None}


@pytest.fixture
def folder(tmp_path: Path) -> JobFolder:
    """Have an attempt's tree written."""
    store = SnapshotStore(tmp_path / "state")
    store.put(CHUNK, DATA)
    found = JobFolder(tmp_path / "state" / "jobs" / "job")
    found.path.mkdir(parents=True)
    check_out(store, TREE, found.code)
    outputs.note(found)
    time.sleep(0.02)  # no rank starts within one tick of the clock
    return found


def test_what_ranks_wrote_stays(folder: JobFolder) -> None:
    (folder.code / "out" / "deep").mkdir(parents=True)
    (folder.code / "out" / "deep" / "model.pt").write_bytes(b"trained")
    (folder.code / "b").write_bytes(b"changed")
    os.utime(folder.code / "b", (1, 1))  # the time that it shows is no proof
    (folder.code / "link").symlink_to("src/a")
    outputs.leave(folder)
    assert trees.seen(folder.code) == {
        "out": None,
        "out/deep": None,
        "out/deep/model.pt": (b"trained", False),
        "b": (b"changed", False),
        "link": "src/a",
    }


def test_what_a_link_of_a_rank_leads_to_is_not_touched(folder: JobFolder, tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "old").touch()
    (folder.code / "src" / "a").unlink()
    (folder.code / "src").rmdir()
    (folder.code / "src").symlink_to(tmp_path / "elsewhere")
    outputs.leave(folder)
    assert (tmp_path / "elsewhere" / "old").exists()


def test_a_tree_whose_writing_was_not_noted_stays(folder: JobFolder) -> None:
    (folder.path / "code.written").unlink()
    outputs.leave(folder)
    assert trees.seen(folder.code) == CODE


def test_a_tree_that_takes_too_long_stays(folder: JobFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(outputs, "_SECONDS", -1.0)
    outputs.leave(folder)
    assert trees.seen(folder.code) == CODE
