"""Real programs, of which half hang: the verdict on each, who waits for whom on which line, and how soon that is known."""

import os
import sys
import time
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.conftest import Taco, eventually
from tests.support.paths import TESTS
from tests.support.patience import patience

pytestmark = pytest.mark.e2e

PROGRAM = TESTS / "core/stalls/programs" / "situation.py"
WORKS, STALL = 5, 8  # seconds


class Row(NamedTuple):
    """A situation, the launcher, and a part of what is told of its hang; "" where it does not hang."""

    name: str
    launcher: str
    told: str


TABLE = (
    Row("horovod_one_sleeps", "mpirun", "rank 1 on localhost is in load_batch at situation.py:"),
    Row("gloo_one_sleeps", "torchrun", "rank 0 on localhost waits in torch.distributed.all_reduce at situation.py:"),
    Row("gloo_barrier", "env", "rank 0 on localhost waits in torch.distributed.barrier at situation.py:"),
    Row("gloo_both_receive", "env", "no rank sends"),
    Row("mpi_receives_nothing", "mpirun", "rank 1 on localhost waits in MPI_"),
    Row("mpi_one_is_stopped", "mpirun", "rank 1 on localhost: process "),
    Row("alone_loader_is_dead", "env", "is in wait_for_loader at situation.py:"),
    Row("horovod_trains", "mpirun", ""),
    Row("gloo_trains", "torchrun", ""),
    Row("horovod_one_computes", "mpirun", ""),
    Row("horovod_one_reads_slowly", "mpirun", ""),
    Row("gloo_one_saves", "torchrun", ""),
    Row("gloo_one_evaluates", "env", ""),
)


def started(taco: Taco, tmp_path: Path, row: Row, *options: str) -> None:
    np = "1" if row.name.startswith("alone") else "2"
    program = (sys.executable, str(PROGRAM), row.name, str(tmp_path), str(WORKS))
    path = f"PATH={Path(sys.executable).parent}:{os.environ['PATH']}"
    limits = ("--np", np, "--launcher", row.launcher, "--grace", "1", "-x", "OMP_NUM_THREADS=1", "-x", path)
    taco.ok("submit", "--name", "job", *limits, *options, "--", *program)


@pytest.mark.parametrize(
    "row",
    [pytest.param(row, marks=() if row is TABLE[0] else pytest.mark.nightly, id=row.name) for row in TABLE],
)
def test_a_program_that_hangs_is_ended_and_one_that_does_not_is_not(taco: Taco, tmp_path: Path, row: Row) -> None:
    stall = patience(STALL)
    begun = time.monotonic()
    # None of those that work takes as long; the end of their time is no hang.
    started(taco, tmp_path, row, "--stall-timeout", f"{stall:.0f}s", "--timeout", f"{3 * stall + 40:.0f}s")
    eventually(lambda: taco.job("job")["state"] in ("FAILED", "SUCCEEDED"), 4 * stall + 90)
    job = taco.job("job")
    if not row.told:
        assert not job["reason"].startswith("hung"), job["reason"]
        assert not any(event["kind"] == "stalled" for event in job["events"]), job["events"]
        return
    assert job["reason"].startswith(f"stalled for --stall-timeout ({stall:.0f} s): no rank has made progress"), job
    assert row.told in job["reason"]
    at = next(event["time"] for event in job["events"] if event["kind"] == "running")
    ended = next(event["time"] for event in job["events"] if event["kind"] == "stopping")
    # what it takes to start (torch is imported) is not the detector's
    found = ended - at - WORKS - stall
    print(f"{row.name}: found {found:.1f} s after the stall time, {time.monotonic() - begun:.0f} s in all")
    assert found < 30 + patience(10)


def test_stacks_are_shown_and_at_the_timeout_they_are_kept(taco: Taco, tmp_path: Path) -> None:
    """Of ranks of which one waits for the other: who waits for whom, on which line; each frame with --rank."""
    started(taco, tmp_path, TABLE[1], "--timeout", f"{patience(25):.0f}s")
    eventually(lambda: "waits in torch.distributed.all_reduce" in taco("stacks", "job").stdout, patience(25))
    shown = taco("stacks", "job").stdout
    first, second = shown.split("\n\n")
    assert first.startswith("rank 1 on localhost is in load_batch at situation.py:")
    assert "    load_batch  " in first
    assert second.startswith("rank 0 on localhost waits in torch.distributed.all_reduce at situation.py:")
    alone = taco("stacks", "job", "--rank", "1").stdout
    assert "rank 0" not in alone
    assert alone.count("\n    ") > first.count("\n    ")
    none = taco("stacks", "job", "--rank", "7")
    assert (none.returncode, none.stderr.splitlines()[0]) == (2, "error: job job: rank 7 is not running")
    eventually(lambda: taco.job("job")["state"] == "FAILED", patience(40))
    job = taco.job("job")
    assert job["reason"].startswith("reached its --timeout of ")
    assert "rank 1 on localhost is in load_batch at situation.py:" in job["reason"]
    assert "WHAT EACH RANK DID AT THE TIMEOUT, " in taco("get", "job").stdout
    gone = taco("stacks", "job")
    assert gone.returncode == 1
    assert "error: job job is FAILED: stacks are available only while its ranks run" in gone.stderr


def test_a_rank_without_python_is_listed_with_the_reason(taco: Taco) -> None:
    assert taco("submit", "--name", "job", "--np", "1", "--", "sleep", "1000").returncode == 0
    eventually(lambda: taco.job("job")["state"] == "RUNNING", patience(20))
    header, row = taco("stacks", "job").stdout.splitlines()
    assert header.split() == ["RANK", "NODE", "PID", "PROGRAM", "DOES", "WHY", "NO", "STACK"]
    assert "sleep" in row
    assert row.endswith("the rank runs no Python program")
