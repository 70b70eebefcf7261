"""Jobs of real elastic Horovod that gain and lose hosts while they run, on three hosts."""

import os
import re
import sys
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest

from taco_launch.core.model.jobs import JobSpec, Policy
from tests.conftest import eventually
from tests.e2e.cluster import Cluster
from tests.support import gloo_horovod
from tests.support.patience import patience

pytestmark = [pytest.mark.e2e, pytest.mark.nightly, pytest.mark.timeout(1200)]

PROGRAM = Path(__file__).parent / "horovod_training.py"


@pytest.fixture(scope="module")
def kept() -> tuple[Path, ...]:
    """What hosts see of what is hidden from them: the Python that has torch, and Horovod."""
    return (Path(__file__).parent, Path(sys.prefix), Path(sys.base_prefix), gloo_horovod.site())


def spec(cluster: Cluster, name: str, *words: str, least: int = 1) -> JobSpec:
    return cluster.spec(
        name,
        *(sys.executable, str(PROGRAM), *words),
        launcher="horovod",
        elastic=True,
        host_count=3,
        least_hosts=least,
        slots_per_host=1,
        env=(("PATH", None), ("PYTHONPATH", None), ("HOROVOD_GLOO_TIMEOUT_SECONDS", "15")),
        policy=Policy(grace=2.0, host_loss_timeout=patience(8)),
    )


def submit(cluster: Cluster, job: JobSpec) -> None:
    path = f"{Path(sys.executable).parent}:{cluster.env['PATH']}"
    cluster.submit(job, PATH=path, PYTHONPATH=str(gloo_horovod.site()))


def world(cluster: Cluster, name: str) -> int:
    """Return how many ranks the last step was of."""
    worlds = re.findall(r"step \d+/\d+ ranks (\d+)", "\n".join(cluster.log(name)))
    return int(worlds[-1]) if worlds else 0


def becomes(cluster: Cluster, name: str, ranks: int) -> None:
    eventually(lambda: world(cluster, name) == ranks, patience(120), f"{name} to train with {ranks} ranks")


def well(cluster: Cluster, name: str, last: int) -> list[str]:
    """Return the reasons of the changes of a job that ended well, lost at most one step at each, and never its state."""
    job = cluster.ended(name, patience(120))
    log = "\n".join(cluster.log(name))
    assert (job["state"], job["attempt"]) == ("SUCCEEDED", 1), (job, log[-3000:])
    steps = [int(step) for step in re.findall(r"step (\d+)/", log)]
    assert steps[-1] == last
    assert all(after - before in (0, 1) for before, after in pairwise(steps)), steps
    # A host that is cut off may notice before its ranks are ended; when it is back, its log is read.
    told = re.findall(r"/horovod \| taco-launch: (.*)", log)
    assert set(told) <= {"the connection to Horovod's driver on the first host broke"}, log
    assert len(set(re.findall(r"weight (-?\d\S+)", log))) == 1, "a rank has begun with weights of its own"
    return re.findall(r"ranks \d+ -> \d+: [^\"]*", cluster.events(name).read_text())


@pytest.mark.parametrize("is_short", [False, True])
def test_a_host_is_lost_and_comes_back(cluster: Cluster, name: str, is_short: bool) -> None:
    submit(cluster, spec(cluster, name, "1200"))
    becomes(cluster, name, 3)
    cluster.link(1, "down")
    becomes(cluster, name, 2)
    if not is_short:  # only Horovod has given the host up until now
        eventually(lambda: cluster.job(name)["np"] == 2, patience(60), f"{name} to lose a host")
    cluster.link(1, "up")
    becomes(cluster, name, 3)
    first, second = well(cluster, name, 1200)
    why = "leaves: its horovod failed" if is_short else "lost: no heartbeat for "
    assert first.startswith(f"ranks 3 -> 2: host n2 {why}")
    assert second == "ranks 2 -> 3: host n2 joined"
    assert cluster.log(name, rank=0).count("begins with 3 ranks") == 1  # its process has never started again


def test_a_rank_that_dies_starts_again_and_the_others_continue(cluster: Cluster, name: str) -> None:
    submit(cluster, spec(cluster, name, "200", "40"))
    changes = well(cluster, name, 200)
    assert changes == [], "\n".join(line for line in cluster.log(name) if "/horovod |" in line)
    assert "step 40/200 ranks 3" in " ".join(cluster.log(name))
    assert cluster.alive("horovod_training") == []


def test_hosts_are_given_up_and_taken_again(cluster: Cluster, name: str) -> None:
    submit(cluster, spec(cluster, name, "700"))
    becomes(cluster, name, 3)
    cluster.call("resize", names=[name], by="the test", hosts=2)
    becomes(cluster, name, 2)
    cluster.call("resize", names=[name], by="the test", hosts=3)
    becomes(cluster, name, 3)
    assert well(cluster, name, 700) == [
        "ranks 3 -> 2: host n3 leaves: resized to 2 hosts",
        "ranks 2 -> 3: host n3 joined",
    ]


def test_a_program_that_fails_everywhere_ends_the_job(cluster: Cluster, name: str) -> None:
    job = replace(spec(cluster, name, "1"), command=("sh", "-c", "exit 7"))
    submit(cluster, job)
    ended = cluster.ended(name, patience(90))
    assert (ended["state"], ended["exit_code"]) == ("FAILED", 7), ended
    assert cluster.alive("agent.* horovod") == []


def test_it_is_stopped(cluster: Cluster, name: str) -> None:
    submit(cluster, spec(cluster, name, "10000"))
    becomes(cluster, name, 3)
    cluster.call("stop", names=[name], by="the test", signal=15, grace=None)
    assert cluster.ended(name, patience(40))["state"] == "CANCELLED"
    assert cluster.alive("horovod") == []


def test_a_python_without_horovod(cluster: Cluster, name: str) -> None:
    job = spec(cluster, name, "1")
    job = replace(job, command=("/usr/bin/python3", *job.command[1:]), env=(("PATH", os.environ["PATH"]),))
    submit(cluster, job)
    ended = cluster.ended(name, patience(60))
    assert ended["state"] == "FAILED"
    assert "/usr/bin/python3 does not import Horovod" in "\n".join(cluster.log(name))
