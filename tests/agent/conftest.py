"""What the agent's tests share: its zipapp, a job's folder, and processes that are gone when the test is."""

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from taco_launch.agent import processes
from taco_launch.agent.folders import JobFolder
from taco_launch.launch.env import JOB_ID
from taco_launch.remote import bundle

PYTHON = (sys.executable, "-I", "-S")


@pytest.fixture(scope="session")
def agent(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The agent's zipapp."""
    path = tmp_path_factory.mktemp("agent") / "agent.pyz"
    path.write_bytes(bundle.build(bundle.sources()))
    return path


@pytest.fixture
def folder(tmp_path: Path) -> JobFolder:
    """An empty folder of a job."""
    found = JobFolder(tmp_path / "job")
    found.logs.mkdir(parents=True)
    return found


class Family:
    """Starts processes of a job of its own, and ends them without the code under test."""

    def __init__(self, job_id: str) -> None:
        self.job_id = job_id
        self.started: list[subprocess.Popen[bytes]] = []

    def start(self, argv: Sequence[str], *, marked: bool = False, **more: Any) -> "subprocess.Popen[bytes]":
        """Start a process in a session of its own, its environment empty but for the mark of the job."""
        env = {JOB_ID: self.job_id} if marked else {}
        options: dict[str, Any] = {"env": env, "stdout": subprocess.PIPE, "start_new_session": True, **more}
        process = subprocess.Popen(argv, **options)
        self.started.append(process)
        return process

    def python(self, script: str, *args: str, **more: Any) -> "subprocess.Popen[bytes]":
        return self.start((*PYTHON, "-c", script, *args), **more)

    def root(self, process: "subprocess.Popen[bytes]") -> tuple[int, int]:
        """Name a process as guards do."""
        entry = processes.identify(process.pid)
        assert entry is not None
        return entry.pid, entry.start

    def end(self) -> None:
        """Kill all that holds the end of a pipe that was given out as stdout."""
        pipes = {os.readlink(f"/proc/self/fd/{process.stdout.fileno()}") for process in self.started if process.stdout}
        for process in self.started:
            process.kill()
        for name in filter(str.isdigit, os.listdir("/proc")):
            with contextlib.suppress(OSError):
                if os.readlink(f"/proc/{name}/fd/1") in pipes:
                    os.kill(int(name), signal.SIGKILL)
        for process in self.started:
            process.communicate(timeout=10)


@pytest.fixture
def family(tmp_path: Path) -> Iterator[Family]:
    found = Family(f"test-{os.getpid()}-{tmp_path.name}")
    yield found
    found.end()


def number(process: "subprocess.Popen[bytes]") -> int:
    """Read a process number that a process prints."""
    assert process.stdout is not None
    return int(process.stdout.readline())
