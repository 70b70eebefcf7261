"""Whom a signal reaches of a rank: the program that has a handler, and nobody that it would only end."""

import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from taco_launch.agent.rank.early_signal import deliver
from tests.conftest import eventually

CATCHES = """
import signal, subprocess, sys, time
child = subprocess.Popen(["sleep", "60"])
signal.signal(signal.SIGUSR1, lambda *_: print("caught", flush=True))
print("ready", flush=True)
while True:
    time.sleep(0.02)
"""


@pytest.fixture
def started(tmp_path: Path) -> Iterator["subprocess.Popen[bytes]"]:
    """A program with a handler and a child that has none, behind two shells."""
    (tmp_path / "catches.py").write_text(CATCHES)
    line = f"{sys.executable} {tmp_path}/catches.py; exit $?"
    argv = ["sh", "-c", f"sh -c '{line}'; exit $?"]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, start_new_session=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"ready\n"
        yield process
        subprocess.run(["pkill", "-KILL", "-s", str(process.pid)], check=False)


def test_the_program_behind_shells(started: "subprocess.Popen[bytes]") -> None:
    assert deliver(started.pid, signal.SIGUSR1) == 1
    assert started.stdout is not None
    assert started.stdout.readline() == b"caught\n"
    assert started.poll() is None


def test_what_nobody_catches(started: "subprocess.Popen[bytes]") -> None:
    assert deliver(started.pid, signal.SIGUSR2) == 0
    assert started.poll() is None


def test_a_process_that_is_gone() -> None:
    with subprocess.Popen(["true"]) as process:
        eventually(lambda: process.poll() is not None)
    assert deliver(process.pid, signal.SIGUSR1) == 0
