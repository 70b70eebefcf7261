"""Snapshots: what a tree is, it is again where it is written; an unchanged one is not read; what changes is noticed."""

import hashlib
import os
import shutil
import tempfile
from pathlib import Path
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from taco_launch.agent.snapshots.checkout import check_out
from taco_launch.agent.snapshots.store import SnapshotStore
from taco_launch.core import manifest
from taco_launch.core.errors import UsageError
from taco_launch.core.model.job_request import JobRequest
from taco_launch.core.model.jobs import JobSpec
from taco_launch.jobs.code import config_files, snapshot
from taco_launch.jobs.code.job_code import JobCode
from taco_launch.jobs.code.snapshot import Snapshot
from taco_launch.jobs.code.tree_walk import walk
from tests.support import packs, trees
from tests.support.git_server import ENVIRONMENT, git, repository
from tests.support.trees import quiet


def taken(root: Path, cache: Path) -> Snapshot:
    return snapshot.take(walk(str(root), quiet), (), cache)


@given(st.dictionaries(trees.PATHS, trees.CONTENT, max_size=8))
def test_a_tree_comes_out_as_it_went_in(drawn: trees.Drawn) -> None:
    with tempfile.TemporaryDirectory() as name:
        scratch = Path(name)
        trees.make(scratch / "tree", drawn)
        found = taken(scratch / "tree", scratch / "cache")
        store = SnapshotStore(scratch / "state")
        with store.open(packs.keep_taken(store, found)) as pack:
            assert pack.manifest == found.manifest
            assert set(pack.places()) == set(found.places)
            assert check_out(pack, scratch / "written") == []
        assert trees.seen(scratch / "written") == trees.seen(scratch / "tree")


@given(st.dictionaries(trees.PATHS, trees.CONTENT, max_size=6))
def test_the_same_tree_elsewhere_has_the_same_id(drawn: trees.Drawn) -> None:
    with tempfile.TemporaryDirectory() as name:
        scratch = Path(name)
        trees.make(scratch / "one", drawn)
        trees.make(scratch / "deeper" / "two", drawn)
        one, two = taken(scratch / "one", scratch / "cache"), taken(scratch / "deeper" / "two", scratch / "cache")
        assert one.id == two.id == hashlib.sha256(one.text).hexdigest()


def test_a_large_file_is_read_in_pieces(tmp_path: Path) -> None:
    (tmp_path / "tree").mkdir()
    data = os.urandom((2 << 20) + 5)
    (tmp_path / "tree" / "large").write_bytes(data)
    found = taken(tmp_path / "tree", tmp_path / "cache")
    (file,) = found.manifest.files
    assert file.content == hashlib.sha256(data).hexdigest()
    assert list(found.read(file.content)) == [data[: 1 << 20], data[1 << 20 : 2 << 20], data[2 << 20 :]]


def test_an_unchanged_file_is_not_read_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root = tmp_path / "tree"
    root.mkdir()
    old = root / "old"
    old.write_text("old")
    monkeypatch.setattr("taco_launch.jobs.code.hash_cache._FRESH_NS", 0)
    first = taken(root, tmp_path / "cache")
    monkeypatch.setattr(snapshot, "_read", lambda _root, file: pytest.fail(f"{file.path} is read"))
    assert taken(root, tmp_path / "cache").id == first.id
    old.write_text("new")
    with pytest.raises(pytest.fail.Exception, match="old is read"):
        taken(root, tmp_path / "cache")


def test_a_file_that_was_just_written_is_read_again(tmp_path: Path) -> None:
    """It may be written again within one tick of the file system's clock."""
    root = tmp_path / "tree"
    root.mkdir()
    path = root / "file"
    path.write_text("one")
    first = taken(root, tmp_path / "cache")
    status = path.stat()
    path.write_text("two")
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))
    assert taken(root, tmp_path / "cache").id != first.id


@pytest.mark.parametrize("text", ["", "{", "[]", '{"schema":1}', '{"schema":1,"files":{"file":[3]}}', "[" * 100_000])
def test_a_damaged_cache_is_none(tmp_path: Path, text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("taco_launch.jobs.code.hash_cache._FRESH_NS", 0)
    root = tmp_path / "tree"
    root.mkdir()
    (root / "file").write_text("one")
    first = taken(root, tmp_path / "cache")
    (kept,) = (tmp_path / "cache" / "hashes").glob("*.json")
    kept.write_text(text)
    assert taken(root, tmp_path / "cache").id == first.id


def test_a_cache_that_cannot_be_written_is_done_without(tmp_path: Path) -> None:
    (tmp_path / "tree").mkdir()
    (tmp_path / "tree" / "file").write_text("one")
    (tmp_path / "cache").write_text("no folder")
    assert taken(tmp_path / "tree", tmp_path / "cache").manifest.files


def test_a_file_that_changes_after_the_snapshot_is_not_sent(tmp_path: Path) -> None:
    (tmp_path / "tree").mkdir()
    (tmp_path / "tree" / "file").write_text("one")
    found = taken(tmp_path / "tree", tmp_path / "cache")
    (tmp_path / "tree" / "file").write_text("two")
    with pytest.raises(UsageError, match="tree/file: changed while it was copied"):
        list(found.read(next(iter(found.places))))
    (tmp_path / "tree" / "file").unlink()
    with pytest.raises(UsageError, match="cannot be read"):
        list(found.read(next(iter(found.places))))


def test_a_file_that_changes_each_time_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "tree").mkdir()
    path = tmp_path / "tree" / "file"
    path.write_text("one")

    class Hash:
        def __init__(self) -> None:
            with open(path, "a") as out:
                out.write("more")

        def update(self, piece: bytes) -> None:
            assert piece

    monkeypatch.setattr(snapshot, "hashlib", SimpleNamespace(sha256=Hash))
    with pytest.raises(
        UsageError,
        match="changed while it was copied",
    ):
        taken(tmp_path / "tree", tmp_path / "cache")


def test_a_tree_that_is_too_large_names_what_is(tmp_path: Path) -> None:
    root = tmp_path / "tree"
    (root / "data").mkdir(parents=True)
    (root / "model.bin").write_bytes(bytes(5 << 20))
    for number in range(40):
        (root / "data" / str(number)).write_bytes(bytes(100_000))
    with pytest.raises(UsageError) as error:
        snapshot.take(walk(str(root), quiet), (), tmp_path / "cache", 1 << 20)
    lines = error.value.message.splitlines()
    assert lines[0].endswith("8.81 MiB in 41 files, but --sync-max is 1 MiB; the largest are")
    assert lines[1] == "  5 MiB  model.bin"
    assert lines[-1] == "  3.81 MiB  data/"
    assert error.value.hint is not None
    assert ".tacoignore" in error.value.hint


def test_config_files(tmp_path: Path) -> None:
    root = tmp_path / "tree"
    root.mkdir()
    (root / "own.conf").write_text("the tree's")
    (root / "link").symlink_to("own.conf")
    (tmp_path / "new.conf").write_text("new")
    source = str(tmp_path / "new.conf")
    words = [f"{source}:own.conf", f"{source}:link", f"{source}:/etc/new.conf"]
    config = config_files.read(words, "--config-file", has_tree=True)
    found = snapshot.take(walk(str(root), quiet), config, tmp_path / "cache")
    assert [(file.path, b"".join(found.read(file.content))) for file in found.manifest.files] == [
        ("link", b"new"),
        ("own.conf", b"new"),
    ]
    assert found.manifest.links == ()
    assert [file.path for file in found.manifest.config] == ["/etc/new.conf"]
    below = config_files.read([f"{source}:own.conf/inner"], "--config-file", has_tree=True)
    with pytest.raises(UsageError, match=r"--config-file: an entry is below a path that is a file: b'own\.conf'"):
        snapshot.take(walk(str(root), quiet), below, tmp_path / "cache")


@pytest.mark.parametrize(
    ("count", "text"),
    [
        (0, "0 bytes"),
        (1, "1 byte"),
        (1023, "1023 bytes"),
        (1 << 20, "1 MiB"),
        (1010 << 20, "1010 MiB"),
        (10**6, "977 KiB"),
        (3 << 29, "1.5 GiB"),
    ],
)
def test_a_size_as_people_write_it(count: int, text: str) -> None:
    assert manifest.size_text(count) == text


# --- A request's code as its job has it: one snapshot for all jobs that ask for the same, where Arena's tree lies, git's state


class Maker:
    """Attaches code, and keeps what was provided and said."""

    def __init__(self, tmp_path: Path) -> None:
        self.said: list[str] = []
        self.provided: list[Snapshot] = []
        environ = {**ENVIRONMENT, "XDG_CACHE_HOME": str(tmp_path / "cache")}
        self.code = JobCode(environ, self.said.append, lambda snapshot, _say: self.provided.append(snapshot))

    def __call__(self, request: JobRequest, workdir: str = "") -> JobSpec:
        return self.code.attach(JobSpec("job", ("true",), (), workdir=workdir), request)


@pytest.fixture
def make(tmp_path: Path) -> Maker:
    return Maker(tmp_path)


@pytest.fixture
def tree(tmp_path: Path) -> str:
    (tmp_path / "tree" / "src").mkdir(parents=True)
    (tmp_path / "tree" / "src" / "a").write_text("a")
    (tmp_path / "tree" / "link").symlink_to("src")
    return str(tmp_path / "tree")


def test_jobs_that_ask_for_the_same_have_the_same(make: Maker, tree: str) -> None:
    one, two = make(JobRequest(sync=tree)), make(JobRequest(sync=tree, np=4))
    (Path(tree) / "src" / "a").write_text("changed since")
    three = make(JobRequest(sync=tree, sync_max=1 << 20))
    assert one.code == two.code
    assert one.code is not None
    assert three.code is not None
    assert one.code.id != three.code.id
    assert [each.id for each in make.provided] == [one.code.id, three.code.id]
    assert (one.code.source, one.code.files, one.code.bytes, one.code.commit) == (tree, 1, 1, "")


@pytest.mark.parametrize("workdir", ["src", "link", ""])
def test_a_folder_of_the_code(make: Maker, tree: str, workdir: str) -> None:
    assert make(JobRequest(sync=tree), workdir).workdir == workdir


@pytest.mark.parametrize("workdir", ["sr", "src/a", "no/where"])
def test_one_that_is_not_there(make: Maker, tree: str, workdir: str) -> None:
    with pytest.raises(UsageError, match=f"workdir {workdir}: the code has no such folder"):
        make(JobRequest(sync=tree), workdir)


def test_arenas_place_is_a_link_to_the_code(make: Maker, tree: str) -> None:
    request = JobRequest(sync=tree, code_at="code/name")
    inside, link = make(request), make(request, "/root")
    assert inside.code is not None
    assert link.code is not None
    assert (inside.code.at, link.code.at) == ("", "/root/code/name")
    links = [dict(each.manifest.links).get("code/name") for each in make.provided]
    assert links == ["..", None]
    assert [[file.path for file in each.manifest.files] for each in make.provided] == [["src/a"], ["src/a"]]


@pytest.mark.parametrize("taken", ["code/name/own.py", "code"])
def test_arenas_place_is_left_to_the_tree_that_has_it(make: Maker, tree: str, taken: str) -> None:
    (Path(tree) / taken).parent.mkdir(parents=True, exist_ok=True)
    (Path(tree) / taken).write_text("1")
    make(JobRequest(sync=tree, code_at="code/name"))
    assert "code/name" not in dict(make.provided[0].manifest.links)


def test_config_files_alone_are_no_tree(make: Maker, tree: str) -> None:
    spec = make(JobRequest(config_files=(f"{tree}/src/a:/etc/a.conf",)))
    assert spec.code is not None
    assert (spec.code.source, spec.code.files, spec.code.bytes) == ("", 1, 1)
    with pytest.raises(UsageError, match="a relative path starts at the folder of the code, but this job has no code"):
        make(JobRequest(config_files=(f"{tree}/src/a:a.conf",)))


@pytest.mark.skipif(shutil.which("git") is None, reason="git is not installed (apt-get install git)")
def test_git_is_in_the_record(make: Maker, tmp_path: Path) -> None:
    work = repository(tmp_path / "work", {"train.py": "1", "docs/a": "a"})
    commit = git(work, "rev-parse", "HEAD")
    clean = make(JobRequest(sync=str(work))).code
    assert clean is not None
    assert (clean.commit, clean.ref, clean.dirty) == (commit, "main", "")
    (work / "train.py").write_text("2")
    dirty = make(JobRequest(sync=str(work), sync_max=1 << 30)).code
    assert dirty is not None
    assert (dirty.commit, len(dirty.dirty)) == (commit, 16)
    fetched = make(JobRequest(sync=f"git+file://{work}@main")).code
    assert fetched is not None
    assert (fetched.source, fetched.commit, fetched.ref, fetched.dirty) == (f"git+file://{work}", commit, "main", "")
    assert fetched.id == clean.id
    assert make.said == [f"fetching file://{work}"]
