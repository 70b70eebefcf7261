"""Jobs that taco-launch has not started: their ranks are found, and which of them hang is told, on which line."""

import json
import os
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tests.conftest import Taco, eventually
from tests.support.paths import TESTS
from tests.support.patience import patience

pytestmark = pytest.mark.e2e

PROGRAM = TESTS / "core/stalls/programs" / "situation.py"
WORKS = 4  # seconds
# `{torch}` sets the variables of torch, which no launcher of MPI sets, and which then name the job.
LAUNCHERS = {
    "Open MPI": "mpirun --allow-run-as-root --oversubscribe -np 2 {python} {program}",
    "Open MPI 5": "{TACO_LAUNCH_OPENMPI5} --allow-run-as-root --map-by :oversubscribe -np 2 {torch} {program}",
    "MPICH": "{TACO_LAUNCH_MPICH} -np 2 {torch} {program}",
    "Intel MPI": "{TACO_LAUNCH_IMPI} -np 2 {torch} {program}",
    "Hydra": "{TACO_LAUNCH_MPICH} -np 2 {python} {program}",
    "torchrun": "{python} -m torch.distributed.run --standalone --nproc_per_node 2 {program}",
    "spawn": "{python} {spawn} {program}",
    "alone": "{python} {program}",
}
TITLES = {"Open MPI": "Open MPI", "Hydra": "MPICH or Intel MPI", "spawn": "", "alone": ""}
# A script as people write it to start torch under mpirun: what it sets are variables of its shell's child.
TORCH = """\
#!/bin/sh
export RANK=${OMPI_COMM_WORLD_RANK:-$PMI_RANK} WORLD_SIZE=2 MASTER_ADDR=127.0.0.1 MASTER_PORT=$PORT
exec PYTHON "$@"
"""
# The ranks of torch.multiprocessing set their variables themselves, where no other process sees them.
SPAWN = """\
import os, runpy, sys
import torch.multiprocessing as mp

def work(rank, words):
    os.environ.update(RANK=str(rank), WORLD_SIZE="2", MASTER_ADDR="127.0.0.1", MASTER_PORT=os.environ["PORT"])
    sys.argv = words
    runpy.run_path(words[0], run_name="__main__")

if __name__ == "__main__":
    mp.spawn(work, args=(sys.argv[1:],), nprocs=2)
"""


class Row(NamedTuple):
    """A launcher, a situation, and a part of the verdict on it; "" where it works."""

    launcher: str
    situation: str
    told: str = ""


HANGING = (
    Row("torchrun", "gloo_one_sleeps", "rank 1 on localhost is in load_batch at situation.py:"),
    Row("torchrun", "gloo_both_receive", "no rank sends"),
    Row("torchrun", "gloo_barrier", "rank 0 on localhost waits in torch.distributed.barrier at situation.py:"),
    Row("Open MPI", "horovod_one_sleeps", "rank 0 on localhost waits in hvd.allreduce at situation.py:"),
    Row("Open MPI", "mpi_receives_nothing", "rank 1 on localhost waits in MPI_"),
    Row("Open MPI", "mpi_one_is_stopped", "rank 1 on localhost: process "),
    Row("Open MPI 5", "gloo_one_sleeps", "rank 1 on localhost is in load_batch at situation.py:"),
    Row("MPICH", "gloo_barrier", "rank 1 on localhost is in load_batch at situation.py:"),
    Row("Intel MPI", "gloo_both_receive", "no rank sends"),
    Row("Hydra", "alone_loader_is_dead", "are in wait_for_loader at situation.py:"),
    Row("spawn", "gloo_barrier", "waits in torch.distributed.barrier at situation.py:"),
    Row("alone", "alone_loader_is_dead", "is in wait_for_loader at situation.py:"),
)
BUSY = (
    Row("torchrun", "gloo_trains"),
    Row("torchrun", "gloo_one_saves"),
    Row("torchrun", "gloo_one_evaluates"),
    Row("Open MPI", "horovod_trains"),
    Row("Open MPI", "horovod_one_computes"),
    Row("Open MPI", "horovod_one_reads_slowly"),
    Row("Open MPI", "mpi_network_is_stuck"),  # it trains as long as its network works
    Row("Open MPI 5", "gloo_one_saves"),
    Row("MPICH", "gloo_trains"),
    Row("Intel MPI", "gloo_one_evaluates"),
    Row("spawn", "gloo_one_saves"),
    Row("spawn", "gloo_trains"),
)


def line(launcher: str, folder: Path) -> list[str]:
    """Return how a launcher starts the program, without the program's arguments."""
    text = LAUNCHERS[launcher]
    program = next((name for name in os.environ if f"{{{name}}}" in text), "")
    if "{TACO_LAUNCH" in text and not program:
        pytest.skip(f"cannot: no variable names the mpirun of {launcher}")
    (folder / "torch.sh").write_text(TORCH.replace("PYTHON", shlex.quote(sys.executable)))
    (folder / "torch.sh").chmod(0o755)
    (folder / "spawn.py").write_text(SPAWN)
    # A link, so that the command line has this test's folder: other tests run the same program.
    (folder / "situation.py").symlink_to(PROGRAM)
    words = {"python": sys.executable, "torch": folder / "torch.sh", "spawn": folder / "spawn.py"}
    paths = {program: os.environ[program]} if program else {}
    return shlex.split(text.format(program=folder / "situation.py", **words, **paths))


@contextmanager
def started(folder: Path, row: Row) -> Iterator[None]:
    """Have a launcher run a situation, until it does what its name says."""
    folder.mkdir()
    argv = [*line(row.launcher, folder), row.situation, str(folder), str(WORKS)]
    environ = {**os.environ, "OMP_NUM_THREADS": "1", "PORT": str(29000 + os.getpid() % 1000)}
    with subprocess.Popen(
        argv, env=environ, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, start_new_session=True
    ) as job:
        try:
            files = 1 if row.situation.startswith("alone") else 2
            eventually(lambda: len(list(folder.glob("*.pid"))) == files, 30, "the ranks to start")
            time.sleep(WORKS + 2)
            yield
        finally:
            for file in folder.glob("*.pid"):
                os.kill(int(file.read_text()), signal.SIGKILL)
            os.killpg(job.pid, signal.SIGTERM)
            job.communicate(timeout=patience(20))


def report(taco: Taco, *options: str) -> list[dict[str, Any]]:
    jobs: list[dict[str, Any]] = json.loads(taco.ok("stacks", "--json", *options).stdout)["jobs"]
    return jobs


def check(row: Row, job: dict[str, Any]) -> None:
    assert job["launcher"] == TITLES.get(row.launcher, "torch.distributed")
    assert len(job["ranks"]) == (1 if row.launcher == "alone" else 2)
    assert job["verdict"]["life"] == ("hung" if row.told else "working"), job["verdict"]
    assert row.told in job["verdict"]["why"]


def test_a_job_that_hangs_and_one_that_works_are_told_apart(taco: Taco, tmp_path: Path) -> None:
    """Without --match all jobs are shown, each with its verdict; what was started with other launchers is not ended."""
    hangs, works = HANGING[0], BUSY[3]
    with started(tmp_path / "hangs", hangs), started(tmp_path / "works", works):
        (job,) = report(taco, "--match", str(tmp_path / "hangs"))
        check(hangs, job)
        (other,) = report(taco, "--match", str(tmp_path / "works"), "--hosts", "localhost")
        check(works, other)
        assert {job["command"], other["command"]} <= {each["command"] for each in report(taco)}
        shown = taco.ok("stacks", "--match", str(tmp_path / "hangs"), "--rank", "1").stdout
        title, verdict = shown.splitlines()[:2]
        assert title.startswith("torch.distributed, 2 ranks on localhost: ")
        assert verdict.startswith("HANGS: no rank has made progress for ")
        assert "    load_batch  " in shown
    none = taco("stacks", "--match", str(tmp_path / "hangs"), "--watch", "1s")
    assert (none.returncode, none.stdout) == (1, "")
    assert none.stderr.startswith("error: no rank or Python program with ")


@pytest.mark.nightly
@pytest.mark.parametrize("row", [pytest.param(row, id=f"{row.launcher} {row.situation}") for row in (*HANGING, *BUSY)])
def test_verdict(taco: Taco, tmp_path: Path, row: Row) -> None:
    with started(tmp_path / "job", row):
        (job,) = report(taco, "--match", str(tmp_path / "job"))
        check(row, job)


def test_a_job_of_taco_launch_is_shown_as_it_was_typed(taco: Taco) -> None:
    """What starts its ranks has their variables, and is a program of Python as well."""
    taco.ok(
        "submit", "--name", "j", "--np", "2", "--", "python3", "-c", "import time; time.sleep(90)", "--mode", "here"
    )
    eventually(lambda: taco.job("j")["state"] == "RUNNING", 30, "the job to run")
    (job,) = report(taco, "--match", "--mode here", "--watch", "5s")
    assert job["command"] == "python3 -c import time; time.sleep(90) --mode here"
    assert len(job["ranks"]) == 2
    assert all("<module>" in json.dumps(rank) and "_serve" not in json.dumps(rank) for rank in job["ranks"])
