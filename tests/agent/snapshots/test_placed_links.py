"""Links at absolute paths: made where nothing is, taken from a job that has ended, and nothing else is ever touched."""

import json
from pathlib import Path

import pytest

from taco_launch.agent.snapshots.placed_links import LinkError, PlacedLinks
from taco_launch.agent.store.folders import JobFolder


@pytest.fixture
def jobs(tmp_path: Path) -> Path:
    return tmp_path / "state" / "jobs"


def job(jobs: Path, name: str) -> JobFolder:
    (jobs / name / "config").mkdir(parents=True)
    (jobs / name / "config" / "0").write_text(name)
    return JobFolder(jobs / name)


def make(folder: JobFolder, path: Path) -> None:
    PlacedLinks(folder).make([(str(path), folder.path / "config" / "0")])


def test_a_link_is_made_and_removed(jobs: Path, tmp_path: Path) -> None:
    folder, path = job(jobs, "one"), tmp_path / "etc" / "deep" / "file.conf"
    make(folder, path)
    assert path.read_text() == "one"
    make(folder, path)  # once more for the next attempt
    PlacedLinks(folder).remove()
    assert not path.is_symlink()
    assert not (tmp_path / "etc").exists(), "folders that were made for it go with it"
    PlacedLinks(folder).remove()


def test_a_folder_stays_that_was_there_or_has_something_in_it(jobs: Path, tmp_path: Path) -> None:
    folder, path = job(jobs, "one"), tmp_path / "etc" / "deep" / "file.conf"
    (tmp_path / "etc").mkdir()
    make(folder, path)
    PlacedLinks(folder).remove()
    assert list((tmp_path / "etc").iterdir()) == []
    make(folder, path)
    (path.parent / "result").touch()
    PlacedLinks(folder).remove()
    assert list(path.parent.iterdir()) == [path.parent / "result"]


@pytest.mark.parametrize("kind", ["file", "folder", "link", "link-to-nowhere", "link-out"])
def test_what_is_there_stays(jobs: Path, tmp_path: Path, kind: str) -> None:
    folder, path = job(jobs, "one"), tmp_path / "there"
    targets = {"link": "/etc/passwd", "link-to-nowhere": "/nowhere", "link-out": f"{jobs}/one/../../../x"}
    if kind in targets:
        path.symlink_to(targets[kind])
    else:
        path.write_text("ours") if kind == "file" else path.mkdir()
    before = path.lstat()[:7]  # without the time of access
    with pytest.raises(
        LinkError,
        match="this path already exists, and taco-launch does not replace files",
    ):
        make(folder, path)
    assert path.lstat()[:7] == before
    PlacedLinks(folder).remove()
    assert path.lstat()[:7] == before


def test_no_link_above_is_followed(jobs: Path, tmp_path: Path) -> None:
    folder = job(jobs, "one")
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to("real")
    with pytest.raises(
        LinkError,
        match="a part of this path is not a folder or is a symbolic link",
    ):
        make(folder, tmp_path / "link" / "file")
    (tmp_path / "file").write_text("")
    with pytest.raises(
        LinkError,
        match="a part of this path is not a folder or is a symbolic link",
    ):
        make(folder, tmp_path / "file" / "file")
    assert list((tmp_path / "real").iterdir()) == []


def test_one_of_a_job_that_has_ended_is_replaced_and_of_one_that_runs_is_not(jobs: Path, tmp_path: Path) -> None:
    old, new, path = job(jobs, "old"), job(jobs, "new"), tmp_path / "file.conf"
    make(old, path)
    with (
        old.listen(),
        pytest.raises(LinkError, match="job old is using this path"),
    ):
        make(new, path)
    assert path.read_text() == "old"
    make(new, path)
    assert path.read_text() == "new"
    PlacedLinks(old).remove()  # it is another's by now
    assert path.read_text() == "new"
    assert [entry.name for entry in tmp_path.iterdir()] == ["state", "file.conf"] or path.is_symlink()


def test_a_list_that_was_tampered_with_names_no_other_folder(jobs: Path, tmp_path: Path) -> None:
    folder, path, other = job(jobs, "one"), tmp_path / "etc" / "file.conf", tmp_path / "other"
    make(folder, path)
    other.mkdir()
    noted = json.loads((folder.path / "links.json").read_text())
    (folder.path / "links.json").write_text(json.dumps([*noted, f"{other}/"]))
    PlacedLinks(folder).remove()
    assert (path.parent.exists(), other.exists()) == (False, True)


@pytest.mark.parametrize("text", ["", "{", "[1, null]", '["a\\u0000b"]', '"text"', '{"a": 1}', '["/etc/passwd"]'])
def test_a_list_that_was_tampered_with_removes_nothing(jobs: Path, text: str) -> None:
    folder = job(jobs, "one")
    (folder.path / "links.json").write_text(text)
    PlacedLinks(folder).remove()
    assert Path("/etc/passwd").exists()
