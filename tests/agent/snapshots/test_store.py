"""The store of snapshots: what is damaged, cut or hostile is refused, and nothing is written elsewhere."""

import hashlib
import json
import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from taco_launch.agent.snapshots.checkout import check_out, of_chunks, write_files
from taco_launch.agent.snapshots.store import DamagedError, SnapshotStore, checked
from taco_launch.core import manifest
from taco_launch.core.manifest import FileEntry, Manifest

DATA = b"some data"
CHUNK = hashlib.sha256(DATA).hexdigest()
TREE = Manifest((FileEntry("folder/file", False, len(DATA), (CHUNK,)), FileEntry("run", True, len(DATA), (CHUNK,))))


def snapshot_of(tree: Manifest) -> tuple[str, bytes]:
    text = manifest.written(tree)
    return hashlib.sha256(text).hexdigest(), text


def document(**changes: Any) -> bytes:
    found = {"schema": 1, "files": [], "links": [], "folders": [], "config": [], **changes}
    return json.dumps(found).encode()


@pytest.fixture
def store(tmp_path: Path) -> SnapshotStore:
    return SnapshotStore(tmp_path / "state")


def kept(store: SnapshotStore) -> str:
    """Keep the tree, whole."""
    name, text = snapshot_of(TREE)
    store.begin(name, text)
    assert not store.use(name)
    assert store.missing(TREE) == {CHUNK: len(DATA)}
    store.put(CHUNK, DATA)
    store.finish(name)
    return name


def test_a_snapshot_is_whole_once_its_chunks_are_there(store: SnapshotStore, tmp_path: Path) -> None:
    name = kept(store)
    assert store.use(name)
    assert store.read(name)[0] == TREE
    assert check_out(store, TREE, tmp_path / "written") == []
    assert (tmp_path / "written" / "folder" / "file").read_bytes() == DATA
    assert [(tmp_path / "written" / path).stat().st_mode & 0o777 for path in ("folder/file", "run")] == [0o600, 0o700]
    modes = {path.stat().st_mode & 0o077 for path in store.path.rglob("*")}
    assert modes == {0}


@pytest.mark.parametrize("data", [b"", b"some", b"some data and more", b"same size", bytes(1000)])
def test_a_chunk_that_was_tampered_with_is_not_written(store: SnapshotStore, tmp_path: Path, data: bytes) -> None:
    name = kept(store)
    store.chunk(CHUNK).write_bytes(data)
    with pytest.raises(DamagedError):
        store.get(CHUNK, len(DATA))
    damaged = check_out(store, TREE, tmp_path / "written")
    assert sorted(damaged) == [(CHUNK, "folder/file"), (CHUNK, "run")]
    assert [path for path in (tmp_path / "written").rglob("*") if path.is_file()] == []
    store.drop(name, [CHUNK])
    assert not store.use(name)
    store.put(CHUNK, DATA)
    assert write_files(store, of_chunks(TREE, [CHUNK]), tmp_path / "written") == []
    assert (tmp_path / "written" / "run").read_bytes() == DATA


def test_what_stands_in_the_place_of_a_chunk_is_not_followed(store: SnapshotStore, tmp_path: Path) -> None:
    kept(store)
    (tmp_path / "secret").write_bytes(DATA)
    for put in (lambda path: path.symlink_to(tmp_path / "secret"), os.mkfifo, Path.mkdir):
        path = store.chunk(CHUNK)
        path.rmdir() if path.is_dir() and not path.is_symlink() else path.unlink()
        put(path)
        with pytest.raises(DamagedError):
            store.get(CHUNK, len(DATA))


@given(st.binary(max_size=20))
def test_no_other_data_is_kept_under_a_hash(data: bytes) -> None:
    store = SnapshotStore(Path("/nonexistent"))
    if data != DATA:
        with pytest.raises(DamagedError):
            store.put(CHUNK, data)


@pytest.mark.parametrize("name", ["", "..", "../../etc/passwd", "A" * 64, "a" * 63, "a" * 64 + "\n", "/" * 64])
def test_no_path_is_made_of_what_is_no_id(store: SnapshotStore, name: str) -> None:
    assert not store.use(name)
    with pytest.raises((ValueError, DamagedError)):
        store.begin(name, b"text")
    with pytest.raises((ValueError, DamagedError)):
        store.read(name)


def test_a_manifest_that_was_tampered_with_is_refused(store: SnapshotStore) -> None:
    name = kept(store)
    store.manifest(name).write_bytes(manifest.written(Manifest()))
    with pytest.raises(DamagedError, match=r"the manifest of snapshot \w+ is damaged"):
        store.read(name)


H = "0" * 64


@pytest.mark.parametrize(
    "changes",
    [
        {"files": [["/etc/passwd", False, 0, []]]},
        {"files": [["../out", False, 0, []]]},
        {"files": [["a/../../out", False, 0, []]]},
        {"files": [["a/./b", False, 0, []]]},
        {"files": [["", False, 0, []]]},
        {"files": [["a\0b", False, 0, []]]},
        {"files": [["a" * 256, False, 0, []]]},
        {"files": [["/".join(["a"] * 1600), False, 0, []]]},
        {"files": [["\ud800", False, 0, []]]},
        {"files": [["a", False, 0, []], ["a", True, 0, []]]},
        {"files": [["é", False, 0, []], ["\udcc3\udca9", False, 0, []]]},
        {"files": [["a", False, 0, []], ["a/b", False, 0, []]]},
        {"links": [["a", "b"]], "files": [["a/b", False, 0, []]]},
        {"links": [["a", "b"], ["a/b", "c"]]},
        {"links": [["a", "b"]], "folders": ["a"]},
        {"links": [["a", "b"]], "folders": ["a/b"]},
        {"links": [["a", "/etc"]]},
        {"links": [["a", ".."]]},
        {"links": [["a/b", "../../x"]]},
        {"links": [["d/out", "..//./../x"]]},
        {"links": [["a", ""]]},
        {"links": [["a", "b\0c"]]},
        {"links": [["a", "b" * 5000]]},
        {"files": [["a", False, 1, []]]},
        {"files": [["a", False, 0, [H]]]},
        {"files": [["a", False, -1, []]]},
        {"files": [["a", False, 1, ["x"]]]},
        {"files": [["a", False, 1, ["../" + H[3:]]]]},
        {"files": [["a", 1, 1, [H]]]},
        {"files": [["a", False, True, [H]]]},
        {"files": [["a", False, 1 << 62, [H]]]},
        {"files": {"a": 1}},
        {"files": [[]]},
        {"files": [1]},
        {"folders": [1]},
        {"links": ["ab"]},
        {"config": [["relative", False, 0, []]]},
        {"config": [["/etc/../a", False, 0, []]]},
        {"config": [["/", False, 0, []]]},
        {"config": [["/a", False, 0, []], ["/a", False, 0, []]]},
        {"config": [["/a", False, (1 << 20) + 1, [H]]]},
        {"config": [[f"/{number}", False, 0, []] for number in range(101)]},
        {"schema": 2},
        {"schema": None},
    ],
)
def test_a_hostile_manifest_is_refused(changes: dict[str, Any]) -> None:
    text = document(**changes)
    with pytest.raises(ValueError):  # noqa: PT011 - each has its own words
        manifest.parsed(text)
    with pytest.raises(DamagedError):
        checked(hashlib.sha256(text).hexdigest(), text)


@pytest.mark.parametrize("text", [b"", b"{", b"[]", b"1", b"[" * 100_000, b'"text"', b"\xff\xfe"])
def test_what_is_no_manifest(text: bytes) -> None:
    with pytest.raises(ValueError):  # noqa: PT011 - each has its own words
        manifest.parsed(text)


def test_counts_have_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    entries = [[f"{number}", False, 0, []] for number in range(20)]
    assert len(manifest.parsed(document(files=entries)).files) == 20
    monkeypatch.setattr(manifest, "MOST_ENTRIES", 19)
    with pytest.raises(ValueError, match="more than 19 entries"):
        manifest.parsed(document(files=entries))
    with pytest.raises(ValueError, match="more than 19 files, links and folders"):
        manifest.parsed(document(files=entries[:15], folders=[f"f{number}" for number in range(5)]))
    monkeypatch.setattr(manifest, "MOST_CHUNKS", 2)
    with pytest.raises(ValueError, match="more than 2 chunks"):
        manifest.parsed(document(files=[["a", False, 3 * manifest.CHUNK_BYTES, [H] * 3]]))
    monkeypatch.setattr(manifest, "MOST_BYTES", 10)
    with pytest.raises(ValueError, match="the manifest is larger than 0 MiB"):
        manifest.parsed(document())


_TEXT = st.text(max_size=4) | st.sampled_from(["a", "a/b", "..", "/", "../a", "b"])
_ROW = st.lists(_TEXT | st.booleans() | st.integers() | st.lists(_TEXT, max_size=2), max_size=5)


@given(
    st.fixed_dictionaries({key: st.lists(_ROW | _TEXT, max_size=3) for key in ("files", "links", "folders", "config")})
)
def test_whatever_stands_there_is_a_manifest_or_an_error(changes: dict[str, Any]) -> None:
    try:
        found = manifest.parsed(document(**changes))
    except ValueError:
        return
    parts = tuple(map(tuple, map(sorted, found)))  # type: ignore[arg-type]
    assert tuple(manifest.parsed(manifest.written(found))) == parts


def test_who_brings_a_snapshot_is_seen(store: SnapshotStore) -> None:
    name = kept(store)
    assert not store.is_arriving(name)
    with store.arriving(name):
        assert store.is_arriving(name)
    assert not store.is_arriving(name)


def test_one_that_was_removed_is_not_held(store: SnapshotStore) -> None:
    name = kept(store)
    held = store.hold(name)
    assert held is not None
    os.close(held)
    store.manifest(name).unlink()
    assert store.hold(name) is None
