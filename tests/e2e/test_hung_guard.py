"""A guard that hangs: nothing burns a CPU meanwhile, and the job ends and says why, soon where it is stopped."""

import os
import shutil
import signal
import time
from pathlib import Path

import pytest

from tests.conftest import Taco, eventually
from tests.e2e.process_table import command_lines

pytestmark = pytest.mark.e2e
# It tells that it runs, and starts the real one once it may.
MPIRUN = """#!/bin/sh
case "$*" in *--version*) exec {real} "$@";; esac
touch {folder}/runs
while [ ! -e {folder}/go ]; do sleep 0.05; done
exec {real} "$@"
"""
TICK = os.sysconf("SC_CLK_TCK")


def of_agent(taco: Taco, op: str) -> list[int]:
    """Return the agent's processes of this test that do `op`."""
    own = str(taco.state)
    return [pid for pid, words in command_lines() if op in words[:6] and any(w.startswith(own) for w in words)]


def cpu(pid: int) -> float:
    """Return the seconds of CPU time that a process has used."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICK


@pytest.fixture
def held_mpirun(tmp_path: Path, taco: Taco) -> Path:
    """The folder of an mpirun that waits until it may start the ranks."""
    real = shutil.which("mpirun")
    if real is None:
        pytest.skip("cannot: there is no mpirun")
    folder = tmp_path / "bin"
    folder.mkdir()
    (folder / "mpirun").write_text(MPIRUN.format(real=real, folder=folder))
    (folder / "mpirun").chmod(0o755)
    taco.env["PATH"] = f"{folder}:{taco.env['PATH']}"
    return folder


def test_a_guard_that_hangs_as_the_ranks_start(taco: Taco, held_mpirun: Path) -> None:
    run = taco.start("run", "--name", "hung", "--np", "1", "--host-loss-timeout", "20s", "--", "sleep", "600")
    try:
        eventually((held_mpirun / "runs").exists, 30, "mpirun to start")
        (guard,) = of_agent(taco, "guard")
        os.kill(guard, signal.SIGSTOP)
        (held_mpirun / "go").touch()
        (wrapper,) = eventually(lambda: of_agent(taco, "rank"), 30, "the rank's wrapper")
        time.sleep(1)
        before = cpu(wrapper)
        time.sleep(3)
        assert cpu(wrapper) - before < 0.3
        job = taco.ended("hung", 60)
    finally:
        run.kill()
        run.communicate()
    assert job["state"] == "LOST"
    assert job["reason"].startswith("lost the guard of localhost: no heartbeat for 20 s")
    assert not of_agent(taco, "rank")


def test_a_stop_while_a_guard_hangs(taco: Taco) -> None:
    taco.ok(
        "submit",
        "--name",
        "hung",
        "--np",
        "1",
        "--grace",
        "1s",
        "--",
        "sh",
        "-c",
        "trap : TERM; sleep 600 & wait; wait",
    )
    eventually(lambda: taco.job("hung")["state"] == "RUNNING", what="the rank to run")
    (guard,) = of_agent(taco, "guard")
    os.kill(guard, signal.SIGSTOP)
    begin = time.monotonic()
    taco.ok("stop", "hung")
    job = taco.ended("hung", 60)
    took = time.monotonic() - begin
    assert (job["state"], job["exit_code"]) == ("CANCELLED", 143)
    assert 15 <= took < 40, job
    assert not of_agent(taco, "rank")
    taco.ok("run", "--name", "next", "--np", "1", "--queue-timeout", "0s", "--", "true")
