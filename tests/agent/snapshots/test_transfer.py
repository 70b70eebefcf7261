"""Snapshots from host to host, over an ssh that is a shell here: by whatever way a copy is cut or damaged, it is not taken."""

import hashlib
import os
import random
import shlex
import shutil
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from taco_launch.agent.snapshots import fetch, serve, transfer
from taco_launch.agent.snapshots import store as stores
from taco_launch.agent.snapshots.store import SnapshotStore, write
from taco_launch.agent.snapshots.transfer import TransferError
from taco_launch.agent.store.folders import JobFolder
from taco_launch.core import manifest
from taco_launch.core.manifest import FileEntry, Manifest
from taco_launch.core.protocol.connection import JsonConnection
from taco_launch.core.protocol.guard_messages import CodeFetched, FetchCode
from tests.conftest import eventually
from tests.support import packs
from tests.support.full_disk import FullDisk
from tests.support.patience import HANG

# The same in each process that collects these tests: their names have its hash.
LARGE, SMALL = random.Random(0).randbytes((4 << 20) + 1000), b"small"
LARGE_HASH, SMALL_HASH = (hashlib.sha256(data).hexdigest() for data in (LARGE, SMALL))
TREE = Manifest((FileEntry("large", False, len(LARGE), LARGE_HASH), FileEntry("src/small", True, 5, SMALL_HASH)))
TEXT = manifest.written(TREE)
ID = hashlib.sha256(TEXT).hexdigest()
SIZE = len(LARGE) + len(SMALL)
# The same with another small file.
EDIT = b"edited"
EDITED = Manifest((TREE.files[0], FileEntry("src/small", True, 6, hashlib.sha256(EDIT).hexdigest())))
# A host is a folder beside ours; what is between us, a host's file `way` says.
SSH = """#!/bin/sh
while case $1 in -*) true ;; *) false ;; esac; do shift 2; done
host=$1
cd {root}
echo "a message of the day"
[ -d "$host" ] || {{ echo "ssh: no route to $host" >&2; exit 255; }}
command=$(printf %s "$2" | sed "s#{root}/here#{root}/$host#g")
exec sh -c "$(cat "$host/way" 2>/dev/null || echo 'sh -c "$1"')" way "$command"
"""
# The connection ends behind so many bytes; or what comes behind them is changed.
FILTER = """
import os, sys
left, changes = int(sys.argv[1]), len(sys.argv) > 2
while left or changes:
    data = os.read(0, min(left, 65536) or 65536)
    if not data:
        break
    os.write(1, data if left else bytes(byte ^ 1 for byte in data))
    left -= len(data) if left else 0
"""


def cut(count: int, more: str = "") -> str:
    program = f"{sys.executable} -c {shlex.quote(FILTER)} {count} {more}"
    return f'{{ sh -c "$1" <&3 & }} 3<&0 | {program}'


class Site:
    """Hosts as folders, and the store of ours."""

    def __init__(self, root: Path, agent: Path) -> None:
        self.root = root
        self.agent = str(agent)
        self.store = SnapshotStore(root / "here")

    def host(self, name: str, *, way: str = "") -> SnapshotStore:
        store = SnapshotStore(self.root / name)
        packs.keep(store, TREE, LARGE, SMALL)
        if way:
            (self.root / name / "way").write_text(way)
        return store

    def damage(self, name: str, *contents: str) -> None:
        with SnapshotStore(self.root / name).open(ID) as pack:
            packs.damage(pack, *contents)

    def fetch(self, host: str, snapshot: str = ID) -> int:
        return transfer.fetch(self.store, snapshot, host, self.agent)

    def start(self, *sources: str, **more: object) -> "tuple[subprocess.Popen[bytes], JsonConnection]":
        """Start what a guard starts, and give it its order."""
        folder = self.root / "here" / "jobs" / "job"
        folder.mkdir(parents=True, exist_ok=True)
        ours, theirs = socket.socketpair()
        number = theirs.fileno()
        argv = [sys.executable, "-I", "-S", self.agent, "code", str(folder), str(number)]
        child = subprocess.Popen(argv, pass_fds=[number])
        theirs.close()
        line = JsonConnection(ours)
        fields = {"agent": self.agent, "tree": True, "at": "", "workdir": "", "cwd": "/", **more}
        line.send(FetchCode(snapshot=ID, sources=list(sources), **fields))  # type: ignore[arg-type]
        return child, line

    def order(self, *sources: str, **more: object) -> CodeFetched:
        """Have a child do what it is ordered; return its answer."""
        child, line = self.start(*sources, **more)
        answers: list[CodeFetched] = []

        def answered() -> bool:
            answers.extend(each for each in line.receive() or () if isinstance(each, CodeFetched))
            return bool(answers)

        eventually(answered, 30)
        line.close()
        assert child.wait(HANG) in (0, 1)
        return answers[0]

    @property
    def tree(self) -> Path:
        return self.root / "here" / "jobs" / "job" / "code"


@pytest.fixture
def site(tmp_path: Path, agent: Path, monkeypatch: pytest.MonkeyPatch) -> Site:
    programs = tmp_path / "bin"
    programs.mkdir()
    (programs / "ssh").write_text(SSH.format(root=tmp_path))
    (programs / "ssh").chmod(0o755)
    monkeypatch.setenv("PATH", f"{programs}:{Path(sys.executable).parent}:{os.environ['PATH']}")
    return Site(tmp_path, agent)


def test_a_snapshot_comes_over_whole(site: Site) -> None:
    other = site.host("head")
    assert site.fetch("head") == SIZE
    assert site.store.use(ID)
    assert site.store.pack(ID).read_bytes() == other.pack(ID).read_bytes()


def test_a_base_comes_where_it_is_not_there(site: Site) -> None:
    edited = packs.keep(site.host("head"), EDITED, EDIT, base=ID)
    assert site.fetch("head", edited) == SIZE + len(EDIT)
    site.store.pack(edited).unlink()
    assert site.fetch("head", edited) == len(EDIT)
    site.store.pack(edited).unlink()
    site.store.pack(ID).write_bytes(b"damaged")
    assert site.fetch("head", edited) == SIZE + len(EDIT)


def test_it_comes_as_it_arrives_there(site: Site) -> None:
    """The other host has nothing yet but somebody who brings it."""
    other = SnapshotStore(site.root / "neighbour")
    got: list[int] = []
    with other.arriving(ID):
        pack, part, _wanted = other.begin(ID, "", TEXT)
        thread = threading.Thread(target=lambda: got.append(site.fetch("neighbour")))
        thread.start()
        mine = site.store.packs / f"{ID}.part"
        for data in (LARGE, SMALL):
            time.sleep(0.05)
            assert not got
            write(pack.file, data)
            if data is LARGE:
                eventually(lambda: mine.exists() and mine.stat().st_size >= len(LARGE), 20)
        other.finish(ID, pack, part)
    thread.join()
    assert got == [SIZE]


@pytest.mark.parametrize(
    ("way", "words"),
    [
        (cut(300), "its answer broke off"),
        (cut(2_000_000), "its answer broke off"),
        (cut(150, "changes"), "the manifest of snapshot"),
        ("yes", "no answer of taco-launch"),
        ("head -c 9999999 /dev/zero", "no answer of taco-launch"),
        ("exit 3", "exit"),
        ("echo no python here >&2; exit 1", "no python here"),
        (f"echo taco-launch snapshot {ID}; echo - 1", "not a taco-launch answer: it has no header"),
        (f"echo taco-launch snapshot {ID}; printf -- '- 2 0\\n{{}}'", "the manifest of snapshot"),
        (f"echo taco-launch snapshot {ID}; echo why not >&2; exit 1", "why not"),
        (f"echo taco-launch snapshot {ID}; printf '\\033[31m\\n' >&2; exit 1", "?[31m"),
    ],
)
def test_what_is_cut_or_wrong_is_not_taken(site: Site, way: str, words: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transfer, "_SILENT_SECONDS", 20.0)
    site.host("other", way=way)
    with pytest.raises(TransferError) as error:
        site.fetch("other")
    assert words in str(error.value) or words == "exit"
    assert not site.store.use(ID)


def test_a_host_that_is_silent_is_given_up(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transfer, "_SILENT_SECONDS", 0.2)
    site.host("other", way="exec sleep 100")
    with pytest.raises(TransferError, match=r"it sent nothing for 0\.2 s"):
        site.fetch("other")


def test_a_host_that_does_not_have_it_says_so(site: Site) -> None:
    (site.root / "other").mkdir()
    # without anybody who brings it there it waits for no longer than a beginning takes
    (site.root / "other" / "way").write_text('printf %s "$1" >command; exit 1')
    with pytest.raises(TransferError):
        site.fetch("other")
    assert "snapshot-serve" in (site.root / "command").read_text()


def test_a_host_to_which_nothing_comes_names_what_it_lacks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(serve, "_BEGIN_SECONDS", 0.0)
    with pytest.raises(serve._NoMoreError, match="it has no copy of the code"):
        serve._opened(SnapshotStore(tmp_path), "0" * 64)


def test_the_tree_is_written_from_a_neighbour(site: Site) -> None:
    site.host("n2")
    answer = site.order("n2", "head")
    assert (answer.error, answer.notes, answer.received) == ("", [], SIZE)
    assert (answer.folder, answer.tree) == (str(site.tree), str(site.tree))
    assert (site.tree / "large").read_bytes() == LARGE
    assert os.access(site.tree / "src" / "small", os.X_OK)
    again = site.order("n2", "head")
    assert (again.error, again.received) == ("", 0)


def test_a_neighbour_that_fails_is_passed_over(site: Site) -> None:
    site.host("head")
    site.host("n2", way=cut(3_000_000))
    answer = site.order("n2", "head")
    assert answer.error == ""
    assert answer.notes == ["the code could not be fetched from n2: its answer broke off"]
    assert site.order("nowhere", "head").error == ""
    shutil.rmtree(site.root / "here" / "snapshots")
    answer = site.order("nowhere", "n2")
    assert answer.error.startswith(
        "the job's code could not be fetched from nowhere: ssh: no route to nowhere; n2: its answer"
    )


def test_a_neighbour_whose_copy_is_damaged_is_not_believed(site: Site) -> None:
    site.host("head")
    site.host("n2")
    site.damage("n2", SMALL_HASH)
    answer = site.order("n2", "head")
    assert answer.error == ""
    assert answer.notes == ["src/small: the copy on this host was damaged, so a new copy was fetched from head"]
    assert (site.tree / "src" / "small").read_bytes() == SMALL


def test_a_copy_that_is_damaged_on_its_way_is_not_believed(site: Site) -> None:
    site.host("head")
    site.host("n2", way=cut(5000, "changes"))
    answer = site.order("n2", "head")
    assert answer.error == ""
    assert answer.notes == ["large, src/small: the copy on this host was damaged, so a new copy was fetched from head"]
    assert (site.tree / "large").read_bytes() == LARGE


def test_a_copy_of_ours_that_is_damaged_is_fetched_again_once(site: Site) -> None:
    site.host("head")
    assert site.order("head").error == ""
    shutil.rmtree(site.tree)
    site.damage("here", LARGE_HASH)
    answer = site.order("head")
    assert answer.error == ""
    assert answer.notes == ["large: the copy on this host was damaged, so a new copy was fetched from head"]
    assert (site.tree / "large").read_bytes() == LARGE
    # and where the head's is damaged too, nothing starts
    for name in ("here", "head"):
        site.damage(name, LARGE_HASH)
    answer = site.order("head")
    assert answer.error == (
        "large: the copy on this host is damaged, and the copy that was fetched to replace it is damaged too"
    )
    shutil.rmtree(site.root / "head")
    packs.keep(site.store, TREE, LARGE, SMALL)
    site.damage("here", LARGE_HASH)
    assert site.order("head").error.startswith(
        "large: the copy on this host is damaged, and a new copy could not be fetched: the job's code could not be"
    )


def test_the_head_has_nobody_to_ask(site: Site) -> None:
    site.host("here")
    site.damage("here", SMALL_HASH)
    answer = site.order()
    assert answer.error == "src/small: the copy on this host was damaged and has been removed"
    assert "submit the job again" in answer.hint
    assert not site.store.use(ID)  # so that the next submit brings it
    assert site.order().error == "the job's code is no longer on this host"


@pytest.mark.parametrize(
    ("workdir", "error"), [("src", ""), ("no", "--workdir no: the code has no such folder"), ("large", "x")]
)
def test_the_folder_that_ranks_start_in(site: Site, workdir: str, error: str) -> None:
    site.host("here")
    answer = site.order(workdir=workdir)
    assert bool(answer.error) == bool(error)
    if not error:
        assert answer.folder == f"{site.tree}/src"


def test_an_absolute_one_has_to_be_there(site: Site) -> None:
    site.host("here")
    assert site.order(workdir="/nowhere").error == "--workdir /nowhere: there is no such folder there"
    assert site.order(workdir=str(site.root)).folder == str(site.root)


def test_each_attempt_has_a_clean_copy(site: Site) -> None:
    site.host("here")
    site.order()
    (site.tree / "large").write_bytes(b"written over by a rank")
    (site.tree / "output").write_bytes(b"left by a rank")
    (site.tree / "link").symlink_to("/etc")
    site.order()
    assert {path.name for path in site.tree.iterdir()} == {"large", "src"}
    assert (site.tree / "large").read_bytes() == LARGE
    assert Path("/etc/passwd").exists()


def test_a_guard_that_is_gone_ends_its_child(site: Site) -> None:
    site.host("head", way="exec sleep 100")
    child, line = site.start("head")
    eventually(site.store.packs.exists, 20)
    line.close()
    assert child.wait(HANG) == 1


def test_a_full_disk_keeps_no_half_copy(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    site.host("here")
    site.tree.parent.mkdir(parents=True)
    order = FetchCode(snapshot=ID, sources=[], agent=site.agent, tree=True, at="", workdir="", cwd="/")
    monkeypatch.setattr(stores, "os", FullDisk())
    with pytest.raises(OSError, match="No space left"):
        fetch._Fetch(JobFolder(site.tree.parent), order).run()
    assert os.listdir(site.tree.parent) == []
