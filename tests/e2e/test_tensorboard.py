"""A TensorBoard beside a job: it shows what rank 0 wrote, outlives the job by its grace time, and nothing else."""

import contextlib
import importlib.util
import json
import os
import re
import signal
import socket
import sys
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import Taco, eventually
from tests.e2e.process_table import line, running
from tests.support.browser import find, page
from tests.support.patience import patience

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.skipif(importlib.util.find_spec("tensorboard") is None, reason="cannot: there is no tensorboard"),
]
SCALARS = Path(__file__).with_name("scalars.py")


@pytest.fixture
def board(taco: Taco) -> Iterator[Taco]:
    """The command line, with TensorBoard on PATH."""
    taco.env["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{taco.env['PATH']}"
    yield taco
    taco("delete", "j")


def start(taco: Taco, folder: Path, *options: str, seconds: str = "600") -> None:
    words = ("submit", "--name", "j", "--launcher", "env", "--np", "2", "--tensorboard", *options)
    taco.ok(*words, "--", sys.executable, str(SCALARS), "runs/one", seconds, cwd=folder)
    eventually(lambda: view(taco), 60)


def view(taco: Taco) -> dict[str, Any] | None:
    """Return what `get` says of it."""
    found: dict[str, Any] | None = taco.job("j")["tensorboard"]
    return found


def processes(folder: Path) -> list[int]:
    """Return the processes of a TensorBoard that reads a folder."""
    return [pid for pid in running("--logdir") if pid in running(str(folder))]


def read(url: str, path: str) -> Any:
    with urllib.request.urlopen(f"{url}data/plugin/scalars/{path}", timeout=20) as answer:
        return json.load(answer)


def test_what_rank_0_wrote_is_seen_from_here(board: Taco, tmp_path: Path) -> None:
    start(board, tmp_path)
    port = (view(board) or {})["port"]
    shown = board("get", "j").stdout
    assert f"TensorBoard: http://127.0.0.1:{port} on localhost\n" in shown
    assert "open it here: taco-launch tensorboard j" in shown
    with board.start("tensorboard", "j", "--port", "0") as opened:
        url = line(opened).decode().strip()
        assert re.fullmatch(r"http://127\.0\.0\.1:\d+/", url)
        assert url != f"http://127.0.0.1:{port}/"
        eventually(lambda: read(url, "tags"))
        assert list(read(url, "tags")["one"]) == ["loss"]
        assert [value for _time, _step, value in read(url, "scalars?tag=loss&run=one")] == [
            42.125 - step for step in range(5)
        ]
        # Its job is removed: it ends at once, and so does what shows it here.
        assert board("delete", "j", "--yes").returncode == 0
        eventually(lambda: not processes(tmp_path))
        assert opened.wait(patience(30)) in (0, 1)


def test_mpirun_does_not_wait_for_what_listens_where_tensorboard_does(taco: Taco) -> None:
    """The port is also that of X display :6, which hwloc looks for."""
    with socket.socket() as silent:
        silent.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        with contextlib.suppress(OSError):  # it is in use: as good
            silent.bind(("127.0.0.1", 6006))
            silent.listen()
        assert taco("run", "--np", "1", "-H", "localhost:1", "--", "true", timeout=30).returncode == 0


def test_it_outlives_the_job_by_its_grace_time(board: Taco, tmp_path: Path) -> None:
    # A busy machine takes longer to start TensorBoard, which has to be seen before its time is over.
    start(board, tmp_path, "--tensorboard-grace", f"{patience(4):g}", seconds="3")
    job = board.ended("j")
    assert job["state"] == "SUCCEEDED"
    assert processes(tmp_path), "the job's state does not wait for it, and it is still there"
    assert view(board)
    eventually(lambda: not processes(tmp_path), patience(20))
    assert view(board) is None
    done = board("tensorboard", "j", "--port", "0")
    assert "its TensorBoard has ended" in done.stderr
    assert not list(Path(board.env["TACO_LAUNCH_LEASES"]).glob("port-*"))


def test_it_ends_with_a_suspended_job_and_comes_back(board: Taco, tmp_path: Path) -> None:
    start(board, tmp_path, "--tensorboard-grace", "1", "--grace", "1")
    first = (view(board) or {})["port"]
    assert board("suspend", "j").returncode == 0
    eventually(lambda: not processes(tmp_path))
    assert board("resume", "j").returncode == 0
    eventually(lambda: (view(board) or {}).get("port"), 60)
    assert first


@pytest.mark.parametrize("whom", ["keeper", "tensorboard"])
def test_it_is_killed(board: Taco, tmp_path: Path, whom: str) -> None:
    """Neither outlives the other, and the job does not mind."""
    start(board, tmp_path)
    (pid,) = processes(tmp_path)
    keeper = int(Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2].split()[1])
    os.kill(keeper if whom == "keeper" else pid, signal.SIGKILL)
    eventually(lambda: not processes(tmp_path))
    eventually(lambda: not Path(f"/proc/{keeper}").exists())
    found = view(board)
    assert found is None if whom == "keeper" else "ended with exit code -9" in (found or {})["problem"]
    if whom == "tensorboard":
        assert "TensorBoard: TensorBoard ended with exit code -9: see " in board("get", "j").stdout
    assert board.job("j")["state"] == "RUNNING"


def test_no_process_of_it_is_the_jobs(board: Taco, tmp_path: Path) -> None:
    """The end of an attempt ends all that is the job's at once, and leaves it alone."""
    start(board, tmp_path)
    (before,) = processes(tmp_path)
    assert board("stop", "--grace", "0", "j").returncode == 0
    assert processes(tmp_path) == [before]


def test_where_there_is_none(taco: Taco, tmp_path: Path) -> None:
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin/sh").symlink_to("/bin/sh")
    taco.env["PATH"] = str(tmp_path / "bin")
    done = taco("submit", "--name", "j", "--launcher", "env", "--np", "1", "--tensorboard", "--", "sh", "-c", "true")
    assert done.returncode == 2
    assert "--tensorboard: TensorBoard is not installed on the head" in done.stderr
    assert "hint: install it on the head in the Python environment of the job: pip install tensorboard" in done.stderr
    assert "not found" in taco("get", "j").stderr


@pytest.mark.parametrize("option", [("--logdir", "x"), ("--tensorboard-grace", "5")])
def test_what_goes_with_it(taco: Taco, option: tuple[str, str]) -> None:
    done = taco("submit", *option, "--np", "1", "--", "true")
    assert done.returncode == 2
    assert f"{option[0]} requires --tensorboard" in done.stderr


@pytest.mark.nightly
@pytest.mark.parametrize("options", [(), ("--sync", ".")], ids=["here", "sync"])
def test_a_browser_shows_it(board: Taco, tmp_path: Path, options: tuple[str, ...]) -> None:
    """A real one, without a screen: the page has the tag that rank 0 wrote, and its last value."""
    browser = find()
    start(board, tmp_path, *options)
    with board.start("tensorboard", "j", "--port", "0") as opened:
        url = line(opened).decode().strip()
        eventually(lambda: read(url, "tags"))
        shown = page(browser, f"{url}#timeseries", "38.125", tmp_path)
        assert ">loss<" in shown
        os.kill(opened.pid, signal.SIGINT)
        opened.wait(patience(20))
