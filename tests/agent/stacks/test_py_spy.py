"""What is made of what py-spy prints: of a program of the test's own in its place, and of the real one."""

import json
import platform
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from taco_launch.agent.stacks import py_spy
from taco_launch.agent.stacks.py_spy import PySpy, installed
from taco_launch.hosts.remote.py_spy import program

FRAME = {"name": "load", "filename": "/train/data.py", "line": 19}
DUMP = json.dumps([{"pid": 5, "os_thread_id": 5, "thread_name": "MainThread", "active": False, "frames": [FRAME]}])


def spy(folder: Path, script: str) -> PySpy:
    path = folder / f"py-spy-0.4.0-{platform.machine()}"
    path.write_text(f"#!/bin/sh\n{script}\n", encoding="ascii")
    return PySpy(installed(str(folder / "agent.pyz")))


def test_a_stack(tmp_path: Path) -> None:
    found = spy(tmp_path, f"echo '{DUMP}'").read(5)
    assert found.stack is not None
    assert (found.stack.frames[0].function, found.why) == ("load", "")


@pytest.mark.parametrize(
    ("script", "why"),
    [
        ("echo 'Error: no python'; echo; echo '  10: main'; exit 1", "py-spy failed"),
        ("{ echo 'Error: no python'; echo; echo '  10: main'; } >&2; exit 1", "Error: no python"),
        ("echo 'Permission Denied: Try running again' >&2; exit 1", "tracing is not permitted: "),
        ("echo '[]'", "py-spy found no thread of Python"),
        ("yes", "py-spy found no thread of Python"),
    ],
)
def test_no_stack(tmp_path: Path, script: str, why: str) -> None:
    """One that prints without end is ended; of a backtrace the first line tells what is wrong."""
    found = spy(tmp_path, script).read(5)
    assert found.stack is None
    assert found.why.startswith(why) or script == "yes"


def test_one_that_hangs(tmp_path: Path) -> None:
    """It is waited for once, and with others that hang no longer than there is time."""
    spy(tmp_path, "exec sleep 100")
    program = installed(str(tmp_path / "agent.pyz"))
    reader = PySpy(program, seconds=0.2)
    assert [reader.read(5).why for _ in range(2)] == ["py-spy gave no stack within 0.2 s"] * 2
    assert reader.read(6).late
    late = PySpy(program, until=0.0).read(5)
    assert (late.why, late.late) == ("not read: the stacks of other ranks took too long", False)


def test_it_is_on_no_host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    monkeypatch.setattr(py_spy, "_SET_UP", tmp_path / "none")
    assert PySpy(installed(str(tmp_path / "agent.pyz"))).read(5).why.startswith("py-spy is not on this host: ")


@pytest.fixture
def rank() -> Iterator[int]:
    script = "import time\ndef load_batch(): print(flush=True); time.sleep(1000)\nload_batch()"
    with subprocess.Popen([sys.executable, "-S", "-c", script], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        yield process.pid
        process.kill()


def test_the_real_one(tmp_path: Path, rank: int) -> None:
    there = program()
    assert there is not None
    (tmp_path / there[0]).write_bytes(there[1])
    found = PySpy(installed(str(tmp_path / "agent.pyz"))).read(rank)
    assert found.stack is not None, found.why
    assert "load_batch" in {frame.function for frame in found.stack.frames}
