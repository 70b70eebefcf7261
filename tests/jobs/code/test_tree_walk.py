"""The walk: what is not a file is said, what cannot be read or leads out is an error that names it, links are not followed."""

import os
import socket
import subprocess
import tempfile
from pathlib import Path

import pytest

from taco_launch.core.errors import UsageError
from taco_launch.jobs.code.tree_walk import walk
from tests.support.trees import quiet


def test_what_is_no_file_is_left_out_and_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    os.mkfifo(tmp_path / "pipe")
    with socket.socket(socket.AF_UNIX) as server:
        server.bind("sock")
        said: list[str] = []
        assert walk(str(tmp_path), said.append).files == ()
    assert said == ["left out: pipe is a FIFO", "left out: sock is a socket"]


def test_many_of_them_are_counted(tmp_path: Path) -> None:
    for number in range(13):
        os.mkfifo(tmp_path / f"{number:02}")
    said: list[str] = []
    walk(str(tmp_path), said.append)
    assert len(said) == 11
    assert said[-1] == "left out: 3 more sockets, FIFOs and devices"


@pytest.mark.parametrize(
    ("path", "target"),
    [
        ("link", "/etc/passwd"),
        ("link", "../beside"),
        ("folder/link", "../../beside"),
        ("link", "folder/../.././beside"),
        ("link", ".."),
    ],
)
def test_links_that_lead_out_are_refused(tmp_path: Path, path: str, target: str) -> None:
    root = tmp_path / "tree"
    (root / "folder").mkdir(parents=True)
    (root / path).symlink_to(target)
    with pytest.raises(UsageError) as error:
        walk(str(root), quiet)
    assert error.value.message == f"{root}: a symbolic link leads out of it\n  {path} -> {target}"


def test_links_inside_stay_links(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "file").write_text("a")
    (tmp_path / "loop").symlink_to("loop")
    (tmp_path / "to-folder").symlink_to("folder")
    (tmp_path / "gone").symlink_to("nowhere/at/all")
    found = walk(str(tmp_path), quiet)
    assert [file.path for file in found.files] == ["folder/file"]  # not once more by way of the link
    assert found.links == (("gone", "nowhere/at/all"), ("loop", "loop"), ("to-folder", "folder"))


def test_a_link_that_leads_out_may_be_left_out(tmp_path: Path) -> None:
    (tmp_path / "data").symlink_to("/mnt/data")
    (tmp_path / ".tacoignore").write_text("/data\n")
    assert walk(str(tmp_path), quiet).links == ()


def test_what_cannot_be_read_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="nowhere: no such folder"):
        walk(str(tmp_path / "nowhere"), quiet)
    (tmp_path / "file").write_text("")
    with pytest.raises(UsageError, match="file: not a folder"):
        walk(str(tmp_path / "file"), quiet)


@pytest.mark.skipif(os.geteuid() != 0, reason="cannot: only root becomes somebody else")
def test_a_folder_that_may_not_be_read() -> None:
    with tempfile.TemporaryDirectory() as name:  # not below one that is the tests' user's alone
        Path(name).chmod(0o755)
        (Path(name) / "closed").mkdir(mode=0)
        pid = os.fork()
        if pid == 0:
            code = 3
            try:
                os.setuid(65534)
                walk(name, quiet)
                code = 1
            except UsageError as error:
                code = 0 if error.message == f"{name}/closed: cannot be read: Permission denied" else 2
            finally:
                os._exit(code)
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0


def test_git_is_left_out_and_an_empty_folder_is_not(tmp_path: Path) -> None:
    subprocess.run(["git", "init", "-q", tmp_path / "sub"], check=True)
    (tmp_path / "sub" / "inner").mkdir()
    (tmp_path / "sub" / "inner" / ".git").write_text("gitdir: elsewhere")
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "a.pyc").write_text("")
    (tmp_path / ".gitignore").write_text("*.pyc\n")
    found = walk(str(tmp_path), quiet)
    assert [file.path for file in found.files] == [".gitignore"]
    assert found.folders == ("full", "sub/inner")


def test_names_that_no_terminal_should_see(tmp_path: Path) -> None:
    (tmp_path / "new\nline").write_text("a")
    (tmp_path / os.fsdecode(b"no utf-8 \xff")).write_text("b")
    assert {file.path for file in walk(str(tmp_path), quiet).files} == {"new\nline", "no utf-8 \udcff"}
    os.mkfifo(tmp_path / "pipe\x1b[31m")
    said: list[str] = []
    walk(str(tmp_path), said.append)
    assert said == ["left out: 'pipe\\x1b[31m' is a FIFO"]


def test_a_tree_that_is_too_deep(tmp_path: Path) -> None:
    folder = tmp_path
    for _level in range(203):
        folder = folder / "d"
    folder.mkdir(parents=True)
    with pytest.raises(UsageError, match="more than 200 folders deep"):
        walk(str(tmp_path), quiet)
