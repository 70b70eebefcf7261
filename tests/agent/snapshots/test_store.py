"""The store of snapshots: what is damaged, cut or hostile is refused, and nothing is written elsewhere."""

import hashlib
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from taco_launch.agent.snapshots.checkout import check_out
from taco_launch.agent.snapshots.store import DamagedError, SnapshotStore, checked, write
from taco_launch.core import manifest
from taco_launch.core.manifest import FileEntry, Manifest
from tests.support import packs

DATA = b"some data"
CONTENT = hashlib.sha256(DATA).hexdigest()
TREE = Manifest((FileEntry("folder/file", False, len(DATA), CONTENT), FileEntry("run", True, len(DATA), CONTENT)))


def document(**changes: Any) -> bytes:
    found = {"schema": 2, "files": [], "links": [], "folders": [], "config": [], **changes}
    return json.dumps(found).encode()


@pytest.fixture
def store(tmp_path: Path) -> SnapshotStore:
    return SnapshotStore(tmp_path / "state")


def kept(store: SnapshotStore) -> str:
    return packs.keep(store, TREE, DATA)


def test_a_snapshot_is_whole_once_its_contents_are_there(store: SnapshotStore, tmp_path: Path) -> None:
    text = manifest.written(TREE)
    name = hashlib.sha256(text).hexdigest()
    pack, part, wanted = store.begin(name, "", text)
    assert wanted == {CONTENT: len(DATA)}
    write(pack.file, DATA[:-1])
    with pytest.raises(DamagedError, match="is not whole"):
        store.finish(name, pack, part)
    assert not store.use(name)
    write(pack.file, DATA[-1:])
    store.finish(name, pack, part)
    assert store.use(name)
    assert check_out(pack, tmp_path / "written") == []
    assert (tmp_path / "written" / "folder" / "file").read_bytes() == DATA
    assert [(tmp_path / "written" / path).stat().st_mode & 0o777 for path in ("folder/file", "run")] == [0o600, 0o700]
    assert {path.stat().st_mode & 0o077 for path in store.path.rglob("*")} == {0}


def test_the_next_has_only_what_its_base_lacks(store: SnapshotStore, tmp_path: Path) -> None:
    base, more = kept(store), b"new"
    tree = Manifest((*TREE.files, FileEntry("new", False, 3, hashlib.sha256(more).hexdigest())))
    assert store.base_for(tree) == base
    name = packs.keep(store, tree, more, base=base)
    with store.open(name) as pack:
        assert pack.content == len(more)
        assert check_out(pack, tmp_path / "written") == []
    assert (tmp_path / "written" / "run").read_bytes() == DATA
    assert store.base_for(Manifest((FileEntry("big", False, 100, "0" * 64), *TREE.files))) == ""
    with pytest.raises(DamagedError, match="is not whole"):  # of a base no other base is needed
        store.begin(hashlib.sha256(manifest.written(TREE)).hexdigest(), name, manifest.written(TREE))
    store.pack(base).unlink()
    assert store.found(name) is None
    assert not store.pack(name).exists()


def test_a_name_that_looks_like_a_content_is_none(store: SnapshotStore) -> None:
    new = hashlib.sha256(b"new").hexdigest()
    names = (f'1,"{new}"]', new)
    base = packs.keep(
        store, Manifest(tuple(FileEntry(name, False, len(DATA), CONTENT) for name in sorted(names))), DATA
    )
    name = packs.keep(store, Manifest((*TREE.files, FileEntry("new", False, 3, new))), DATA, b"new", base=base)
    with store.open(name) as pack:
        assert pack.content == 3
        assert pack.places([new])[new].size == 3
        assert pack.places().keys() == {new, CONTENT}


def test_a_damaged_base_is_not_chosen(store: SnapshotStore) -> None:
    path = store.pack(kept(store))
    assert store.base_for(TREE) == path.name
    path.write_bytes(path.read_bytes().replace(b"folder/file", b"folder/fool"))
    assert store.base_for(TREE) == ""
    path.write_bytes(path.read_bytes().replace(b"folder/fool", b"folder/file")[:-1])
    assert store.base_for(TREE) == ""


def test_entries_are_read_once_and_a_change_of_one_byte_is_still_seen(
    store: SnapshotStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = kept(store)
    monkeypatch.setattr(manifest, "parsed", lambda _data: pytest.fail("it was read again"))
    with store.open(name) as pack:
        assert pack.manifest == TREE
    text = manifest.written(TREE)
    with pytest.raises(DamagedError, match="is damaged"):
        checked(name, text.replace(b"run", b"ran"))


@pytest.mark.parametrize("data", [b"evil data", b"some dat!"])
def test_a_content_that_was_tampered_with_is_not_written(store: SnapshotStore, tmp_path: Path, data: bytes) -> None:
    path = store.pack(kept(store))
    path.write_bytes(path.read_bytes().replace(DATA, data))
    with store.open(path.name) as pack:
        assert check_out(pack, tmp_path / "written") == ["folder/file", "run"]
    assert [path for path in (tmp_path / "written").rglob("*") if path.is_file()] == []
    store.drop(path.name)
    assert not store.use(path.name)


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"x",
        b"- 1 1",
        b"- -1 1\n",
        b"- 999999999 1\n",
        b"../../x 1 1\n",
        b"- 1 99999999999999999\n",
        b"- 2 0\n{}",
        b"a" * 1000,
    ],
)
def test_what_is_no_pack_is_forgotten(store: SnapshotStore, data: bytes) -> None:
    path = store.pack(kept(store))
    path.write_bytes(data)
    assert store.found(path.name) is None
    assert not path.exists()


@pytest.mark.parametrize("change", [lambda data: data[:-1], lambda data: data + b"!"])
def test_one_that_is_cut_is_not_whole(store: SnapshotStore, change: Callable[[bytes], bytes]) -> None:
    path = store.pack(kept(store))
    path.write_bytes(change(path.read_bytes()))
    with pytest.raises(DamagedError, match="is not whole"):
        store.open(path.name)


def test_what_stands_in_the_place_of_a_pack_is_not_followed(store: SnapshotStore, tmp_path: Path) -> None:
    path = store.pack(kept(store))
    path.rename(tmp_path / path.name)
    for put in (lambda path: path.symlink_to(tmp_path / path.name), os.mkfifo, Path.mkdir):
        put(path)
        with pytest.raises(DamagedError):
            store.open(path.name)
        path.rmdir() if path.is_dir() and not path.is_symlink() else path.unlink()


@pytest.mark.parametrize("name", ["", "..", "../../etc/passwd", "A" * 64, "a" * 63, "a" * 64 + "\n", "/" * 64])
def test_no_path_is_made_of_what_is_no_id(store: SnapshotStore, name: str) -> None:
    assert not store.use(name)
    with pytest.raises((ValueError, DamagedError)):
        store.begin(name, "", b"text")
    with pytest.raises((ValueError, DamagedError)):
        store.begin("0" * 64, name or "x", b"text")
    with pytest.raises((ValueError, DamagedError)):
        store.open(name)


def test_a_manifest_that_was_tampered_with_is_refused(store: SnapshotStore) -> None:
    path = store.pack(kept(store))
    path.write_bytes(path.read_bytes().replace(b"folder/file", b"folder/fire"))
    with pytest.raises(DamagedError, match=r"the manifest of snapshot \w+ is damaged"):
        store.open(path.name)


H = "0" * 64


@pytest.mark.parametrize(
    "changes",
    [
        {"files": [["/etc/passwd", False, 0, H]]},
        {"files": [["../out", False, 0, H]]},
        {"files": [["a/../../out", False, 0, H]]},
        {"files": [["a/./b", False, 0, H]]},
        {"files": [["", False, 0, H]]},
        {"files": [["a\0b", False, 0, H]]},
        {"files": [["a" * 256, False, 0, H]]},
        {"files": [["/".join(["a"] * 1600), False, 0, H]]},
        {"files": [["\ud800", False, 0, H]]},
        {"files": [["a", False, 0, H], ["a", True, 0, H]]},
        {"files": [["é", False, 0, H], ["\udcc3\udca9", False, 0, H]]},
        {"files": [["a", False, 0, H], ["a/b", False, 0, H]]},
        {"links": [["a", "b"]], "files": [["a/b", False, 0, H]]},
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
        {"files": [["a", False, -1, H]]},
        {"files": [["a", False, 1, "x"]]},
        {"files": [["a", False, 1, [H]]]},
        {"files": [["a", False, 1, "../" + H[3:]]]},
        {"files": [["a", False, 1, "A" * 64]]},
        {"files": [["a", False, 1, "0" * 31 + "  " + "0" * 31]]},
        {"files": [["a", False, 1, "\u0660" * 64]]},
        {"files": [["a", 1, 1, H]]},
        {"files": [["a", False, True, H]]},
        {"files": [["a", False, 1 << 62, H]]},
        {"files": [["a", False, 1, H], ["b", False, 2, H]]},
        {"files": {"a": 1}},
        {"files": [[]]},
        {"files": [1]},
        {"folders": [1]},
        {"links": ["ab"]},
        {"config": [["relative", False, 0, H]]},
        {"config": [["/etc/../a", False, 0, H]]},
        {"config": [["/", False, 0, H]]},
        {"config": [["/a", False, 0, H], ["/a", False, 0, H]]},
        {"config": [["/a", False, (1 << 20) + 1, H]]},
        {"config": [[f"/{number}", False, 0, H] for number in range(101)]},
        {"schema": 1},
        {"schema": None},
    ],
)
def test_a_hostile_manifest_is_refused(changes: dict[str, Any]) -> None:
    text = document(**changes)
    with pytest.raises(ValueError):  # noqa: PT011 - each has its own words
        manifest.parsed(text)
    with pytest.raises(DamagedError):
        checked(hashlib.sha256(text).hexdigest(), text)


@given(st.lists(st.text(max_size=3) | st.sampled_from(["a/b", "..", "a/../b", "./a", "a//b", "x" * 256, "\udc80"])))
def test_paths_are_looked_at_together_as_one_by_one(paths: list[str]) -> None:
    found: list[object] = []
    for look in (manifest.check_paths, lambda every: [manifest.check_path(path) for path in every]):
        try:
            found.append(look(paths))
        except ValueError as error:
            found.append(str(error))
    assert found[0] == found[1]


@pytest.mark.parametrize("text", [b"", b"{", b"[]", b"1", b"[" * 100_000, b'"text"', b"\xff\xfe"])
def test_what_is_no_manifest(text: bytes) -> None:
    with pytest.raises(ValueError):  # noqa: PT011 - each has its own words
        manifest.parsed(text)


def test_counts_have_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    entries = [[f"{number}", False, 0, H] for number in range(20)]
    assert len(manifest.parsed(document(files=entries)).files) == 20
    monkeypatch.setattr(manifest, "MOST_ENTRIES", 19)
    with pytest.raises(ValueError, match="more than 19 entries"):
        manifest.parsed(document(files=entries))
    with pytest.raises(ValueError, match="more than 19 files, links and folders"):
        manifest.parsed(document(files=entries[:15], folders=[f"f{number}" for number in range(5)]))
    monkeypatch.setattr(manifest, "MOST_BYTES", 10)
    with pytest.raises(ValueError, match="the manifest is larger than 0 MiB"):
        manifest.parsed(document())


_TEXT = st.text(max_size=4) | st.sampled_from(["a", "a/b", "..", "/", "../a", "b"])
_ROW = st.lists(_TEXT | st.booleans() | st.integers() | st.just(H), max_size=5)


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
    store.pack(name).unlink()
    assert store.hold(name) is None
