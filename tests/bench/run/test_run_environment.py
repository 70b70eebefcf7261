"""The commit that a run is measured with is that of the folder in which the command was typed."""

import shutil
from pathlib import Path

import pytest

from taco_launch.bench.run import run_environment
from tests.support.git_server import ENVIRONMENT, git, repository

pytestmark = pytest.mark.skipif(shutil.which("git") is None, reason="git is not installed (apt-get install git)")


def test_the_commit_of_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in ENVIRONMENT.items():
        monkeypatch.setenv(name, value)
    work = repository(tmp_path / "work", {"train.py": "1"})
    commit = git(work, "rev-parse", "HEAD")[:12]
    assert run_environment._commit(str(tmp_path)) == ""
    (work / "new").touch()
    assert run_environment._commit(str(work)) == commit
    (work / "train.py").write_text("22")
    assert run_environment._commit(str(work)) == f"{commit}-dirty"
