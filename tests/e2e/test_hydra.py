"""Jobs under mpiexec.hydra, of MPICH and of Intel MPI: on this machine, over several hosts, their ends, and nothing left."""

import os
import re
from pathlib import Path

import pytest

from tests.conftest import Taco
from tests.e2e.cluster import Cluster
from tests.e2e.test_hosts import nothing_left, running

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


def test_ranks_meet_by_mpi(taco: Taco, mpiexec: Path, tmp_path: Path) -> None:
    inventory = tmp_path / "hosts.yaml"
    inventory.write_text(f"cluster: mpi\nmpirun: {mpiexec}\nhosts: {{localhost: {{slots: 2, connection: local}}}}\n")
    run = taco(
        "-i", str(inventory), "run", "--launcher", "hydra", "--np", "2", "--", "python3", str(SUM), library(mpiexec)
    )
    assert run.returncode == 0, run.stderr
    assert sorted(re.findall(r"rank \d.*", run.stdout)) == [f"rank {rank} of 2: 3, {rank} of 2" for rank in range(2)]


def test_the_code_of_the_rank_that_failed_first(taco: Taco, mpiexec: Path, tmp_path: Path) -> None:
    inventory = tmp_path / "hosts.yaml"
    inventory.write_text(f"cluster: mpi\nmpirun: {mpiexec}\nhosts: {{localhost: {{slots: 2, connection: local}}}}\n")
    argv = (
        "run",
        "--name",
        "fails",
        "--launcher",
        "hydra",
        "--np",
        "2",
        "--",
        "python3",
        str(SUM),
        library(mpiexec),
        "7",
    )
    run = taco("-i", str(inventory), *argv)
    assert run.returncode == 7, run.stderr
    assert "rank 1 on localhost exited with code 7" in run.stderr


@pytest.mark.parametrize("np", [6, 5])
def test_over_several_hosts(cluster: Cluster, name: str, mpiexec: Path, np: int) -> None:
    argv = (cluster.python, str(SUM), library(mpiexec))
    job = cluster.run(cluster.spec(name, *argv, np=np, launcher="hydra", mpirun=str(mpiexec)))
    log = cluster.log(name)
    assert job["state"] == "SUCCEEDED", (job, log)
    assert sorted(line for line in log if "| rank" in line) == [
        f"n{rank // 2 + 1}/{rank} | rank {rank} of {np}: {np * (np + 1) // 2}, {rank} of {np}" for rank in range(np)
    ]
    nothing_left(cluster, 3)
    assert not cluster.alive("hydra")


@pytest.mark.parametrize("shape", [(), ("wipe", "daemon", "deaf")])
def test_stop_leaves_nothing_anywhere(cluster: Cluster, name: str, mpiexec: Path, shape: tuple[str, ...]) -> None:
    running(cluster, name, *shape, launcher="hydra", mpirun=str(mpiexec))
    cluster.call("stop", name=name, by="the test", signal=15, grace=None)
    job = cluster.ended(name)
    assert (job["state"], job["exit_code"]) == ("CANCELLED", 143)
    nothing_left(cluster, 3)
    assert not cluster.alive("hydra")


@pytest.mark.parametrize(("role", "on"), [("pyz run", 0), ("mpiexec.hydra", 0), (r"^\S*/hydra_(pmi|bstrap)_proxy", 1)])
def test_kill_9_leaves_nothing_anywhere(cluster: Cluster, name: str, mpiexec: Path, role: str, on: int) -> None:
    running(cluster, name, "wipe", "daemon", "deaf", launcher="hydra", mpirun=str(mpiexec))
    cluster.kill(cluster.pid(role, on), on)
    assert cluster.ended(name)["state"] in ("FAILED", "LOST")
    nothing_left(cluster)
    assert not cluster.alive("hydra")
