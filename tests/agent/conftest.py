"""What the agent's tests share: its zipapp, a job's folder, and processes that are gone when the test is."""

import contextlib
import os
import select
import signal
import socket
import subprocess
import sys
import tempfile
import time
import zipfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from taco_launch.agent.host import processes
from taco_launch.agent.store.folders import JobFolder, Jobs
from taco_launch.core.launch.command_line.env import JOB_ID
from taco_launch.core.lifecycle import state
from taco_launch.core.protocol import guard_messages, rank_messages  # noqa: F401 - a connection reads the kinds that are known
from taco_launch.core.protocol.connection import JsonConnection
from taco_launch.core.protocol.framing import dump
from tests.support.agent_calls import PLACED, locked, submitted
from tests.support.patience import HANG
from tests.support.smi import GPUS, Smi, install

PYTHON = (sys.executable, "-I", "-S")


def close_what_lies_in(folder: Path) -> None:
    """Close the files of a folder: a log's writer and an event file are open for the life of their process."""
    for name in os.listdir("/proc/self/fd"):
        with contextlib.suppress(OSError):
            if folder in Path(f"/proc/self/fd/{name}").readlink().parents:
                os.close(int(name))


@contextlib.contextmanager
def scratch() -> Iterator[Path]:
    """A folder for one of many examples of a property."""
    with tempfile.TemporaryDirectory() as name:
        yield Path(name)
        close_what_lies_in(Path(name))


@pytest.fixture(autouse=True)
def _closed(tmp_path: Path) -> Iterator[None]:
    yield
    close_what_lies_in(tmp_path)


@pytest.fixture
def folder(tmp_path: Path) -> JobFolder:
    """An empty folder of a job."""
    found = JobFolder(tmp_path / "job")
    found.logs.mkdir(parents=True)
    return found


@pytest.fixture
def jobs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Jobs:
    monkeypatch.setenv("TACO_LAUNCH_STATE", str(tmp_path / "state"))
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    return Jobs(tmp_path / "state")


@pytest.fixture
def running(jobs: Jobs) -> Iterator[JobFolder]:
    """A job with a supervisor, as far as its lock tells."""
    folder = submitted(jobs, "running", (state.PLACED, PLACED), (state.RUNNING, {"boot": "b", "roots": []}))
    lock = locked(folder)
    yield folder
    os.close(lock)


@pytest.fixture
def smi(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Smi:
    """An nvidia-smi that tells of the usual GPUs."""
    found = install(tmp_path / "smi", monkeypatch)
    found.gpus(GPUS)
    return found


def write_agent(path: Path, script: str) -> None:
    """Put a program where an agent is looked for: a zip file, as that is."""
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("__main__.py", script)


def _executes(pid: int) -> bool:
    try:
        readable = bool(Path(f"/proc/{pid}/environ").read_bytes())
    except OSError:  # it has ended
        return False
    entry = processes.identify(pid)
    return not readable and entry is not None and entry.state not in "ZX"


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
        # Popen returns in the middle of execve(2): for a moment the new program has no environment that could be read.
        while marked and _executes(process.pid):
            time.sleep(0.001)
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
        ends = [process.stdout.fileno() for process in self.started if process.stdout and not process.stdout.closed]
        pipes = {Path(f"/proc/self/fd/{end}").readlink() for end in ends}
        for process in self.started:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)  # also what forks faster than anybody looks
            process.kill()
        for name in filter(str.isdigit, os.listdir("/proc")):
            with contextlib.suppress(OSError):
                if Path(f"/proc/{name}/fd/1").readlink() in pipes:
                    os.kill(int(name), signal.SIGKILL)
        for process in self.started:
            process.wait(HANG)
            for stream in (process.stdout, process.stderr):
                if stream is not None:
                    stream.close()


@pytest.fixture
def family(tmp_path: Path) -> Iterator[Family]:
    found = Family(f"test-{os.getpid()}-{tmp_path.name}")
    yield found
    found.end()


@contextlib.contextmanager
def held(process: "subprocess.Popen[bytes]") -> Iterator[None]:
    """Stop a process for the length of a block: what comes to it meanwhile is there all at once."""
    process.send_signal(signal.SIGSTOP)
    while (entry := processes.identify(process.pid)) is not None and entry.state != "T":
        time.sleep(0.001)
    yield
    process.send_signal(signal.SIGCONT)


def number(process: "subprocess.Popen[bytes]") -> int:
    """Read a process number that a process prints."""
    assert process.stdout is not None
    return int(process.stdout.readline())


def connected(folder: JobFolder) -> socket.socket | None:
    """Return a connection to a job's guard, None while it does not listen yet."""
    try:
        return folder.connect()
    except OSError:
        return None


class Mail:
    """One end of a connection between processes of the agent, and what has come over it."""

    def __init__(self, line: JsonConnection) -> None:
        self.line = line
        self.box: list[dict[str, Any]] = []
        self.closed = False

    def send(self, op: str, **message: Any) -> None:
        self.line.sock.sendall(dump({"op": op, **message}))

    def receive(self, seconds: float) -> None:
        """Take in what comes within some seconds."""
        if select.select([self.line], [], [], seconds)[0]:
            messages = self.line.receive()
            self.closed = messages is None
            self.box += [message.to_wire() for message in messages or ()]

    def wait(self, op: str, seconds: float = HANG) -> dict[str, Any]:
        """Take the first message of a kind out of the box once it is there."""
        deadline = time.monotonic() + seconds
        while True:
            for message in self.box:
                if message["op"] == op:
                    self.box.remove(message)
                    return message
            assert not self.closed, f"the other side is gone; no {op}, but {self.box}"
            assert time.monotonic() < deadline, f"no {op} within {seconds} s, but {self.box}"
            self.receive(0.1)

    def wait_for_end(self, seconds: float = HANG) -> None:
        """Wait until the other side is gone."""
        deadline = time.monotonic() + seconds
        while not self.closed:
            assert time.monotonic() < deadline, f"the other side is still there after {seconds} s"
            self.receive(0.1)

    def close(self) -> None:
        self.line.close()
