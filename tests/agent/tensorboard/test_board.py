"""Which program TensorBoard is, what is said where there is none, and where one answers that runs."""

import json
import os
import stat
from pathlib import Path

import pytest

from taco_launch.agent.store.folders import JobFolder
from taco_launch.agent.tensorboard import board
from taco_launch.core.errors import UsageError
from taco_launch.core.model.job_view import BoardView


def program(folder: Path, name: str, script: str) -> Path:
    path = folder / name
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return path


def test_the_program_on_path(tmp_path: Path) -> None:
    own = program(tmp_path, "tensorboard", "exit 0")
    assert board.find({"PATH": f"/nosuch:{tmp_path}"}) == (str(own),)


@pytest.mark.parametrize(("code", "there"), [(0, True), (1, False), (3, False)])
def test_the_module_of_a_python(tmp_path: Path, code: int, there: bool) -> None:
    python = program(tmp_path, "python3", f"exit {code}")
    assert board.find({"PATH": str(tmp_path)}) == ((str(python), "-m", "tensorboard.main") if there else None)


@pytest.mark.parametrize(
    ("in_container", "recipe"),
    [(True, "install it in the training image (RUN pip install tensorboard)"), (False, "pip install tensorboard")],
)
def test_where_there_is_none(tmp_path: Path, in_container: bool, recipe: str) -> None:
    with pytest.raises(UsageError, match="TensorBoard is not installed on the head") as caught:
        board.require({"PATH": str(tmp_path)}, in_container=in_container)
    assert recipe in str(caught.value.hint)


def test_only_one_that_runs_is_shown(folder: JobFolder) -> None:
    assert board.view(folder) is None
    folder.board.write_text(json.dumps({"port": 4711}))
    assert board.view(folder) is None  # nobody keeps it
    lock = board.try_lock(folder)
    assert lock is not None
    assert board.try_lock(folder) is None
    assert board.view(folder) == BoardView(port=4711)
    os.close(lock)
    assert board.view(folder) is None


@pytest.mark.parametrize("written", [{"port": "1"}, {"port": 0}, {"port": 70000}, {"port": True}, {}])
def test_what_a_rank_may_have_written(folder: JobFolder, written: dict[str, object]) -> None:
    folder.board.write_text(json.dumps(written))
    lock = board.try_lock(folder)
    assert lock is not None
    assert board.view(folder) is None
    os.close(lock)


def test_why_there_is_none(folder: JobFolder) -> None:
    folder.board.write_text(json.dumps({"problem": "x" * 1000}))
    assert board.view(folder) == BoardView(problem="x" * 300)
