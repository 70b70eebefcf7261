"""Who may change what a program reads: each step on the way to a file counts, as the kernel resolves it."""

import os
from pathlib import Path

import pytest

from taco_launch.bench.nightly.writable_by_others import writable_by_others

OWN = os.geteuid()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder below which only what a test makes may be written by others; what is above is not its business."""
    found = tmp_path / "a" / "b"
    found.mkdir(parents=True)
    for each in (found.parent, found):
        each.chmod(0o755)
    return found


def below(folder: Path, *paths: Path) -> list[str]:
    top = str(folder.parent)
    return [line.replace(top, "") for line in writable_by_others(paths, OWN) if line.startswith((f"{top}/", f"{top} "))]


@pytest.mark.parametrize(
    ("mode", "others", "writable"),
    [(0o644, "not there/at all", []), (0o666, "file", ["/b/file is writable by everyone"])],
)
def test_what_is_ones_own_or_everybodys(folder: Path, mode: int, others: str, writable: list[str]) -> None:
    file = folder / "file"
    file.write_text("")
    file.chmod(mode)
    assert below(folder, file, folder / others) == writable


def test_a_folder_on_the_way(folder: Path) -> None:
    (folder / "file").write_text("")
    (folder / "file").chmod(0o600)
    folder.chmod(0o777)
    assert below(folder, folder / "file") == ["/b is writable by everyone"]
    folder.chmod(0o1777)  # as /tmp is: the file is its owner's
    assert below(folder, folder / "file") == []


def test_the_way_of_a_link(folder: Path) -> None:
    real = folder / "real"
    real.mkdir(mode=0o755)
    (real / "file").write_text("")
    (real / "file").chmod(0o644)
    real.chmod(0o777)
    (folder / "link").symlink_to("real")
    (folder / "absolute").symlink_to(real)
    (folder / "up").symlink_to("../b/real/../link")
    for name in ("link", "absolute", "up"):
        assert below(folder, folder / name / "file") == ["/b/real is writable by everyone"]


def test_links_that_go_round(folder: Path) -> None:
    (folder / "one").symlink_to("two")
    (folder / "two").symlink_to("one")
    assert below(folder, folder / "one" / "file") == []


@pytest.mark.skipif(OWN != 0, reason="cannot: only root gives files away")
def test_what_belongs_to_others(folder: Path) -> None:
    file = folder / "file"
    file.write_text("")
    os.chown(file, 12345, 0)
    assert below(folder, file) == ["/b/file belongs to user 12345"]
    os.chown(file, 0, 12345)
    file.chmod(0o664)
    assert below(folder, file) == [
        "/b/file is writable by the group 12345, or by those that its access control list names"
    ]
    file.chmod(0o644)
    assert below(folder, file) == []


def test_what_is_not_there_in_a_folder_like_tmp(folder: Path) -> None:
    folder.chmod(0o1777)
    assert below(folder, folder / "new" / "bin") == ["/b/new does not exist, and anyone can create it"]


@pytest.mark.skipif(OWN != 0, reason="cannot: only root gives files away")
def test_a_link_of_another_user(folder: Path) -> None:
    folder.chmod(0o1777)
    (folder / "real").write_text("")
    (folder / "real").chmod(0o600)
    (folder / "link").symlink_to("real")
    os.lchown(folder / "link", 12345, 12345)
    assert below(folder, folder / "link") == ["/b/link belongs to user 12345"]
