"""Files as archives: what is packed is unpacked as it was, and nothing else than files of the tree is ever written."""

import io
import os
import stat
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from taco_launch.agent.rank import tree_pack, tree_unpack
from taco_launch.agent.rank.tree_pack import pack
from taco_launch.agent.rank.tree_unpack import unpack
from taco_launch.core.errors import UsageError

BIG = 1 << 40
NAMES = st.text(st.characters(exclude_characters="/\0", exclude_categories=["Cs"]), min_size=1, max_size=40).filter(
    lambda name: name not in (".", "..") and len(name.encode()) < 200
)


def packed(path: Path, most: int = BIG) -> tuple[bytes, list[str]]:
    out, said = io.BytesIO(), list[str]()
    pack(path, out, most, said.append)
    return out.getvalue(), said


def unpacked(data: bytes, target: Path, most: int = BIG) -> list[str]:
    said: list[str] = []
    unpack(io.BytesIO(data), target, most, said.append)
    return said


def looks(top: Path) -> dict[str, object]:
    """Return all that counts of a tree."""
    found: dict[str, object] = {}
    for path in (top, *sorted(top.rglob("*"))):
        mode = path.lstat().st_mode
        content: object = path.readlink() if path.is_symlink() else path.read_bytes() if path.is_file() else None
        found[str(path.relative_to(top))] = (stat.S_IFMT(mode), content)
    return found


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    top = tmp_path / "tree of mine"
    (top / "sub/deep").mkdir(parents=True)
    (top / "sub/deep/data").write_bytes(os.urandom(300_000))
    (top / "empty").mkdir()
    (top / "run.sh").write_text("#!/bin/sh\n")
    (top / "run.sh").chmod(0o755)
    (top / os.fsdecode(b"no text \xff\n")).write_text("x")
    (top / ("long" * 60)).write_text("y")
    (top / "hole").write_bytes(b"")
    os.truncate(top / "hole", 1 << 20)
    (top / "twice").hardlink_to(top / "run.sh")
    (top / "sub/up").symlink_to("../run.sh")
    (top / "down").symlink_to("sub/deep")
    (top / "through").symlink_to("down/data")
    os.utime(top / "run.sh", (1e9, 1e9))
    return top


def test_a_tree_is_what_it_was(tree: Path, tmp_path: Path) -> None:
    data, said = packed(tree)
    assert said == []
    assert unpacked(data, tmp_path / "copy") == []
    assert looks(tmp_path / "copy") == looks(tree)
    run = (tmp_path / "copy/run.sh").stat()
    assert (run.st_mtime, run.st_mode & 0o777) == (1e9, 0o755)
    assert sorted(tmp_path.iterdir()) == [tmp_path / "copy", tree]


def test_a_file_takes_the_place_of_a_file(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("new")
    (tmp_path / "b").write_text("old")
    (tmp_path / "link").symlink_to("a")
    unpacked(packed(tmp_path / "link")[0], tmp_path / "b")
    assert (tmp_path / "b").read_text() == "new"


def test_a_folder_takes_no_place(tree: Path, tmp_path: Path) -> None:
    (tmp_path / "there").mkdir()
    (tmp_path / "there/kept").write_text("kept")
    with pytest.raises(UsageError, match="there: Directory not empty"):
        unpacked(packed(tree)[0], tmp_path / "there")
    assert (tmp_path / "there/kept").read_text() == "kept"
    assert sorted(tmp_path.iterdir()) == [tmp_path / "there", tree]


@given(st.dictionaries(st.lists(NAMES, min_size=1, max_size=3).map(tuple), st.binary(max_size=2000), max_size=6))
def test_any_tree(files: dict[tuple[str, ...], bytes]) -> None:
    with tempfile.TemporaryDirectory() as name:
        top = Path(name, "top")
        top.mkdir()
        for parts, content in files.items():
            path = top.joinpath(*parts)
            try:
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(content)
            except OSError:  # one is a file and a folder
                continue
        unpacked(packed(top)[0], Path(name, "copy"))
        assert looks(Path(name, "copy")) == looks(top)


def test_what_cannot_be_copied_is_said(tree: Path, tmp_path: Path) -> None:
    os.mkfifo(tree / "fifo")
    (tree / "out").symlink_to("/etc/passwd")
    (tree / "sub/out").symlink_to("../../x")
    data, said = packed(tree)
    assert said == [f"left out: {tree}/fifo: is neither a file, a folder nor a link"]
    assert sorted(unpacked(data, tmp_path / "copy")) == [
        "left out: tree/out: this link points outside of the copied folder",
        "left out: tree/sub/out: this link points outside of the copied folder",
    ]
    assert not (tmp_path / "copy/out").is_symlink()
    with pytest.raises(UsageError, match="fifo: is neither a file nor a folder"):
        packed(tree / "fifo")
    with pytest.raises(UsageError, match="nosuch: No such file"):
        packed(tree / "nosuch")
    (tmp_path / "circle").symlink_to("circle")
    with pytest.raises(UsageError, match="circle: "):
        packed(tmp_path / "circle")


def test_a_file_that_becomes_shorter(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "shrinks"
    file.write_bytes(b"x" * 100_000)
    before = os.fstat

    def fstat(descriptor: int) -> os.stat_result:
        found = before(descriptor)
        if found.st_size == 100_000:
            file.write_bytes(b"y")
        return found

    monkeypatch.setattr("taco_launch.agent.rank.tree_pack.os.fstat", fstat)
    with pytest.raises(UsageError, match="shrinks: became shorter while it was copied"):
        packed(file)


@pytest.mark.parametrize("most", [0, 4096, 300_000])
def test_a_tree_that_is_too_large(tree: Path, tmp_path: Path, most: int) -> None:
    with pytest.raises(UsageError, match=f"is larger than {most} bytes"):
        packed(tree, most)
    with pytest.raises(UsageError, match=f"is larger than {most} bytes"):
        unpacked(packed(tree)[0], tmp_path / "copy", most)
    assert list(tmp_path.iterdir()) == [tree]


def test_a_part_is_never_taken_for_the_whole(tree: Path, tmp_path: Path) -> None:
    data = packed(tree)[0]
    whole = len(data) - tarfile.RECORDSIZE
    for size in (
        *range(0, len(data) - 2 * tarfile.RECORDSIZE, 20_480),
        *range(whole - 2048, whole, 512),
        1,
        511,
        whole,
    ):
        if len(data[:size].rstrip(b"\0")) + 1024 > size:
            with pytest.raises(UsageError, match=r"not a taco-launch archive"):
                unpacked(data[:size], tmp_path / "copy")
    assert list(tmp_path.iterdir()) == [tree]


# A process of one thread, as the agent's is: with more of them another one would take the signal.
INTERRUPTED = """
import os, shutil, signal, sys
from taco_launch.agent.rank import tree_unpack
remove = shutil.rmtree
def interrupted(folder, **how):
    os.kill(os.getpid(), signal.SIGTERM)
    remove(folder, **how)
shutil.rmtree = interrupted
sys.exit(tree_unpack.main(1 << 40, sys.argv[1]))
"""


def test_a_signal_while_a_part_is_removed(tree: Path, tmp_path: Path) -> None:
    """As a caller that is lost: its input ends, and while what came is removed, the process is ended."""
    argv = (sys.executable, "-c", INTERRUPTED, str(tmp_path / "copy"))
    done = subprocess.run(argv, input=packed(tree)[0][:-100_000], capture_output=True, check=False)
    assert (done.returncode, list(tmp_path.iterdir())) == (1, [tree]), done.stderr


def archive(*entries: Callable[[tarfile.TarFile], None], form: int = tarfile.GNU_FORMAT) -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=form) as made:
        for entry in entries:
            entry(made)
    return out.getvalue()


def entry(
    name: str, kind: bytes = tarfile.REGTYPE, link: str = "", data: bytes = b"", **more: object
) -> Callable[[tarfile.TarFile], None]:
    def add(made: tarfile.TarFile) -> None:
        info = tarfile.TarInfo(name)
        info.type, info.linkname, info.size = kind, link, len(data)
        for field, value in more.items():
            setattr(info, field, value)
        made.addfile(info, io.BytesIO(data.ljust(info.size, b"x")))

    return add


TOP = entry("tree", tarfile.DIRTYPE)
EVIL = {
    "absolute": archive(TOP, entry("/tmp/evil", data=b"x")),
    "above": archive(TOP, entry("tree/../evil", data=b"x")),
    "beside": archive(TOP, entry("evil", data=b"x")),
    "dot": archive(TOP, entry("tree/./evil", data=b"x")),
    "two": archive(entry("tree", data=b"x"), entry("tree", data=b"y")),
    "again": archive(TOP, entry("tree/a", data=b"x"), entry("tree/a", data=b"y")),
    "through a link": archive(TOP, entry("tree/l", tarfile.SYMTYPE, "/etc"), entry("tree/l/evil", data=b"x")),
    "through a link inside": archive(TOP, entry("tree/l", tarfile.SYMTYPE, "."), entry("tree/l/evil", data=b"x")),
    "hard link": archive(TOP, entry("tree/h", tarfile.LNKTYPE, "/etc/passwd")),
    "device": archive(TOP, entry("tree/d", tarfile.CHRTYPE, devmajor=1, devminor=3)),
    "block device": archive(TOP, entry("tree/d", tarfile.BLKTYPE)),
    "fifo": archive(TOP, entry("tree/f", tarfile.FIFOTYPE)),
    "sparse": archive(TOP, entry("tree/s", tarfile.GNUTYPE_SPARSE)),
    "pax": archive(TOP, entry("tree/p", pax_headers={"path": "/tmp/evil"}), form=tarfile.PAX_FORMAT),
    "long name": archive(TOP, entry("tree/" + "x" * (1 << 17))),
    "long component": archive(TOP, entry("tree/" + "x" * 300)),
    "no folder": archive(TOP, entry("tree/a/b", data=b"x")),
    "nothing": archive(),
    "empty": b"",
    "text": b"hello\n" * 1000,
    "a link within a tree of the same name": archive(entry("tree", tarfile.SYMTYPE, "tree/x")),
    "a link alone": archive(entry("tree", tarfile.SYMTYPE, "a")),
    "unknown kind": archive(TOP, entry("tree/u", b"Z")),
    "link with a size": archive(TOP, entry("tree/l", tarfile.SYMTYPE, "x", size=1 << 20)),
}


@pytest.mark.parametrize("which", sorted(EVIL))
def test_what_is_refused(which: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError):
        unpacked(EVIL[which], tmp_path / "copy")
    assert list(tmp_path.iterdir()) == []
    assert not Path("/tmp/evil").exists()


@pytest.mark.parametrize(
    ("name", "target", "kept"),
    [
        ("tree/l", "a", True),
        ("tree/l", "./a", True),
        ("tree/s/l", "../a", True),
        ("tree/s/l", "..", True),
        ("tree/l", "..", False),
        ("tree/l", "../tree/a", False),
        ("tree/s/l", ".././../tree/a", False),
        ("tree/s/l", "..//..", False),
        ("tree/s/l", "../../x", False),
        ("tree/l", "/a", False),
        ("tree/l", "s/../a", False),
        ("tree/l", "", False),
    ],
)
def test_where_links_may_lead(name: str, target: str, kept: bool, tmp_path: Path) -> None:
    """`..` behind another name may lead anywhere: that may be a link. The copy has another name than `tree` in the end."""
    entries = (TOP, entry("tree/s", tarfile.DIRTYPE), entry(name, tarfile.SYMTYPE, target))
    said = unpacked(archive(*entries), tmp_path / "copy")
    assert (said == []) == kept
    assert (tmp_path / "copy" / name[5:]).is_symlink() == kept


def test_modes_are_plain(tmp_path: Path) -> None:
    data = archive(entry("tree", tarfile.DIRTYPE, mode=0o7000), entry("tree/a", data=b"x", mode=0o7777, uid=4711))
    unpacked(data, tmp_path / "copy")
    assert stat.S_IMODE((tmp_path / "copy/a").stat().st_mode) == 0o777 & ~tree_unpack._umask() | 0o600
    assert (tmp_path / "copy/a").stat().st_uid == os.geteuid()
    assert stat.S_IMODE((tmp_path / "copy").stat().st_mode) == 0o700


def test_too_many_entries(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (tree_pack, tree_unpack):
        monkeypatch.setattr(module, "MOST_ENTRIES", 3)
    data = archive(TOP, *(entry(f"tree/{number}") for number in range(3)))
    with pytest.raises(UsageError, match="more than 3 files"):
        unpacked(data, tmp_path / "copy")


@given(st.data())
def test_a_damaged_archive_writes_nothing_but_below_its_place(data: st.DataObject) -> None:
    made = bytearray(
        archive(
            TOP,
            entry("tree/s", tarfile.DIRTYPE),
            entry("tree/s/a", data=b"x" * 700),
            entry("tree/l", tarfile.SYMTYPE, "s/a"),
        )
    )
    for _change in range(data.draw(st.integers(1, 6))):
        made[data.draw(st.integers(0, 3000))] = data.draw(st.integers(0, 255))
    with tempfile.TemporaryDirectory() as name:
        top = Path(name, "top")
        top.mkdir()
        try:
            unpacked(bytes(made), top / "copy")
        except UsageError:
            assert list(top.iterdir()) == []
        assert list(Path(name).iterdir()) == [top]
        assert set(top.iterdir()) <= {top / "copy"}
