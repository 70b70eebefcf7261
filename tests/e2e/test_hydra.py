"""Jobs under mpiexec.hydra, of MPICH and of Intel MPI: on this machine, over several hosts, their ends, and nothing left."""

import os
import re
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.conftest import Taco
from tests.e2e.cluster import Cluster
from tests.e2e.ends import Kill, kill_leaves_nothing, kills, nothing_left, stop_leaves_nothing
from tests.e2e.shapes import WORST, shapes

pytestmark = pytest.mark.e2e

SUM = Path(__file__).with_name("mpi_sum.py")
MPIS = ("TACO_LAUNCH_MPICH", "TACO_LAUNCH_IMPI")


@pytest.fixture(scope="module")
def kept() -> tuple[Path, ...]:
    return (Path(__file__).parent, *(Path(os.environ[each]).parents[1] for each in MPIS if each in os.environ))


@pytest.fixture(params=MPIS)
def mpiexec(request: pytest.FixtureRequest) -> Path:
    """Return the program of one of the two."""
    if request.param not in os.environ:
        pytest.skip(f"cannot: {request.param} is not set")
    return Path(os.environ[request.param])


def library(mpiexec: Path) -> str:
    return str(next((mpiexec.parents[1] / "lib").rglob("libmpi.so.12")))


def run(taco: Taco, mpiexec: Path, folder: Path, *words: str) -> "subprocess.CompletedProcess[str]":
    """Run the sum on two ranks of this machine."""
    inventory = folder / "hosts.yaml"
    inventory.write_text(f"cluster: mpi\nmpirun: {mpiexec}\nhosts: {{localhost: {{slots: 2, connection: local}}}}\n")
    argv = ("run", "--name", "sum", "--launcher", "hydra", "--np", "2", "--", "python3", str(SUM), library(mpiexec))
    return taco("-i", str(inventory), *argv, *words)


def test_ranks_meet_by_mpi(taco: Taco, mpiexec: Path, tmp_path: Path) -> None:
    done = run(taco, mpiexec, tmp_path)
    assert done.returncode == 0, done.stderr
    assert sorted(re.findall(r"rank \d.*", done.stdout)) == [f"rank {rank} of 2: 3, {rank} of 2" for rank in range(2)]


def test_the_code_of_the_rank_that_failed_first(taco: Taco, mpiexec: Path, tmp_path: Path) -> None:
    done = run(taco, mpiexec, tmp_path, "7")
    assert done.returncode == 7, done.stderr
    assert taco.job("sum")["first_failure"]["rank"] == 1


@pytest.mark.parametrize("np", [6, 5])
def test_over_several_hosts(cluster: Cluster, name: str, mpiexec: Path, np: int) -> None:
    argv = (cluster.python, str(SUM), library(mpiexec))
    job = cluster.run(cluster.spec(name, *argv, np=np, launcher="hydra", mpirun=str(mpiexec)))
    log = cluster.log(name)
    assert job["state"] == "SUCCEEDED", (job, log)
    assert sorted(line for line in log if "| rank" in line) == [
        f"n{rank // 2 + 1}/{rank} | rank {rank} of {np}: {np * (np + 1) // 2}, {rank} of {np}" for rank in range(np)
    ]
    nothing_left(cluster)


@pytest.mark.parametrize("shape", shapes(gate=[(), WORST], nightly=[]))
def test_stop_leaves_nothing_anywhere(cluster: Cluster, name: str, mpiexec: Path, shape: Sequence[str]) -> None:
    stop_leaves_nothing(cluster, name, *shape, launcher="hydra", mpirun=str(mpiexec))


@pytest.mark.parametrize("kill", kills("hydra"))
def test_kill_9_leaves_nothing_anywhere(cluster: Cluster, name: str, mpiexec: Path, kill: Kill) -> None:
    kill_leaves_nothing(cluster, name, kill, *WORST, mpirun=str(mpiexec))
