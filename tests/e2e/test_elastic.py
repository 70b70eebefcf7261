"""Jobs that gain and lose hosts while they run: real torchrun and real gloo on three hosts."""

import re
import sys
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest

from taco_launch.core.model.jobs import JobSpec, Policy
from tests.conftest import eventually
from tests.e2e.cluster import Cluster
from tests.support.patience import patience

pytestmark = [pytest.mark.e2e, pytest.mark.nightly]

PROGRAM = Path(__file__).parent / "elastic_training.py"


@pytest.fixture(scope="module")
def kept() -> tuple[Path, ...]:
    """What hosts see of what is hidden from them: the Python that has torch."""
    return (Path(__file__).parent, Path(sys.prefix), Path(sys.base_prefix))


def spec(cluster: Cluster, name: str, last: int, *, least: int = 1) -> JobSpec:
    checkpoint = cluster.made.folder / f"{name}.step"
    command = (sys.executable, str(PROGRAM), str(checkpoint), str(last))
    return cluster.spec(
        name,
        *command,
        launcher="torchrun",
        elastic=True,
        host_count=3,
        least_hosts=least,
        slots_per_host=1,
        env=(("PATH", None),),
        policy=Policy(grace=2.0, host_loss_timeout=patience(8)),
    )


def submit(cluster: Cluster, job: JobSpec) -> None:
    cluster.submit(job, PATH=f"{Path(sys.executable).parent}:{cluster.env['PATH']}")


def world(cluster: Cluster, name: str) -> int:
    """Return how many ranks the last step was of."""
    found = re.findall(r"step \d+/\d+ ranks (\d+)", "\n".join(cluster.log(name)))
    return int(found[-1]) if found else 0


def becomes(cluster: Cluster, name: str, ranks: int) -> None:
    eventually(lambda: world(cluster, name) == ranks, patience(60), f"{name} to train with {ranks} ranks")
    assert cluster.job(name)["np"] == ranks


def well(cluster: Cluster, name: str, last: int) -> list[str]:
    """Return the reasons of the changes of an elastic job that ended well, and lost at most one step at each."""
    job = cluster.ended(name, patience(60))
    assert (job["state"], job["attempt"]) == ("SUCCEEDED", 1), job
    steps = [int(step) for step in re.findall(r"step (\d+)/", "\n".join(cluster.log(name)))]
    assert steps[-1] == last
    assert all(after - before in (0, 1) for before, after in pairwise(steps)), steps
    events = cluster.events(name).read_text()
    return re.findall(r"ranks \d+ -> \d+: [^\"]*", events)


def test_a_host_is_lost_and_comes_back(cluster: Cluster, name: str) -> None:
    job = spec(cluster, name, 700)
    submit(cluster, job)
    becomes(cluster, name, 3)
    cluster.link(1, "down")
    becomes(cluster, name, 2)
    cluster.link(1, "up")
    becomes(cluster, name, 3)
    first, second = well(cluster, name, 700)
    assert first.startswith("ranks 3 -> 2: host n2 lost: no heartbeat for ")
    assert second == "ranks 2 -> 3: host n2 joined"


def test_hosts_become_free_and_are_given_up(cluster: Cluster, name: str) -> None:
    other = cluster.spec(f"{name}-other", "sleep", "600", launcher="env", host_count=2, slots_per_host=2)
    cluster.submit(replace(other, hosts=other.hosts[1:]))
    eventually(lambda: cluster.job(other.name)["state"] == "RUNNING", what="the other job to run")
    job = spec(cluster, name, 600)
    submit(cluster, job)
    becomes(cluster, name, 1)
    cluster.call("stop", names=[other.name], by="the test", signal=15, grace=None)
    becomes(cluster, name, 3)
    cluster.call("resize", names=[name], by="the test", hosts=2)
    becomes(cluster, name, 2)
    urgent = cluster.spec(f"{name}-urgent", "true", launcher="env", host_count=2, slots_per_host=2)
    cluster.submit(replace(urgent, hosts=urgent.hosts[1:], policy=replace(urgent.policy, priority=1)))
    assert cluster.ended(urgent.name, patience(60))["state"] == "SUCCEEDED"
    assert well(cluster, name, 600)[:3] == [
        "ranks 1 -> 3: hosts n2, n3 joined",
        "ranks 3 -> 2: host n3 leaves: resized to 2 hosts",
        f"ranks 2 -> 1: host n2 leaves: job {urgent.name}, of a higher priority, waits for slots",
    ]


def test_torchrun_fails_on_one_host(cluster: Cluster, name: str) -> None:
    submit(cluster, spec(cluster, name, 700))
    becomes(cluster, name, 3)
    cluster.kill(cluster.pid("bin/torchrun", on=1), 1)
    becomes(cluster, name, 2)
    becomes(cluster, name, 3)
    assert well(cluster, name, 700)[:2] == [
        "ranks 3 -> 2: host n2 leaves: its torchrun failed",
        "ranks 2 -> 3: host n2 joined",
    ]


def test_a_program_that_fails_again_and_again_ends_the_job(cluster: Cluster, name: str) -> None:
    job = replace(spec(cluster, name, 1), command=("sh", "-c", "exit 7"))
    submit(cluster, job)
    ended = cluster.ended(name, patience(90))
    assert (ended["state"], ended["exit_code"]) == ("FAILED", 7), ended
    assert cluster.alive("torchrun") == []
