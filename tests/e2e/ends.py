"""How jobs over several hosts end under each launcher: a stop, kill -9 of any part, a lost host, and nothing left of them."""

import re
from collections.abc import Mapping
from functools import partial
from types import MappingProxyType
from typing import Any, NamedTuple

import pytest

from taco_launch.core.model.jobs import Policy
from tests.conftest import eventually
from tests.e2e.cluster import NAMES, VICTIM, Cluster
from tests.e2e.shapes import processes
from tests.support.patience import patience

NOTHING: Mapping[str, str] = MappingProxyType({})
NO_WAIT = Policy(grace=1.0, host_loss_timeout=30.0, queue_timeout=0.0)


class Kill(NamedTuple):
    """A process of a job that is killed, and how the job ends then."""

    launcher: str
    role: str
    on: int
    states: str
    code: int | None  # None: whatever the launcher makes of it
    reason: str  # as far as it matters


# What mpirun and the launcher env have in common.
AGENT = (
    ("pyz run", 0, "LOST", 125, "its supervisor was killed"),
    ("pyz guard /", 0, "FAILED", 1, "its guard was killed"),
    ("pyz guard /", 1, "FAILED", 1, "its guard on n2 was killed"),
    ("pyz rank", 2, "FAILED", 137, "rank [45] on n3 was killed together with its wrapper process"),
)
KILLS = (
    *(Kill(launcher, *ends) for launcher in ("mpirun", "env") for ends in AGENT),
    Kill("mpirun", "mpirun", 0, "FAILED", 137, "the launcher"),
    Kill("mpirun", "^orted", 1, "FAILED", None, ""),
    Kill("env", "pyz start", 0, "FAILED", 137, "env on n1 "),
    Kill("env", "pyz start", 2, "FAILED", 137, "env on n3 "),
    Kill("torchrun", "torch.distributed.run", 1, "FAILED", 137, "torchrun on n2 "),
    Kill("hydra", "pyz run", 0, "FAILED LOST", None, ""),
    Kill("hydra", "mpiexec.hydra", 0, "FAILED LOST", None, ""),
    Kill("hydra", r"^\S*/hydra_(pmi|bstrap)_proxy", 1, "FAILED LOST", None, ""),
)


def kills(*launchers: str) -> list[object]:
    """Return the parameters of a test: what is killed under these launchers."""
    found = [kill for kill in KILLS if kill.launcher in launchers]
    names = [f"{kill.role}-{kill.on}" for kill in found]
    if len(launchers) > 1:
        names = [f"{kill.launcher}-{name}" for kill, name in zip(found, names, strict=True)]
    return [pytest.param(kill, id=name) for kill, name in zip(found, names, strict=True)]


def losing() -> Policy:
    """Return the policy of a job that is to lose a host: soon, but not while the machine is only busy."""
    return Policy(grace=1.0, host_loss_timeout=patience(8))


def running(cluster: Cluster, name: str, *shape: str, environment: Mapping[str, str] = NOTHING, **more: Any) -> None:
    """Have two victims a host run."""
    folder = "/run/victims"
    for on in range(len(NAMES)):
        cluster.sh(f"rm -rf {folder} {folder}.ready; mkdir {folder} {folder}.ready", on=on)
    cluster.submit(cluster.spec(name, cluster.python, str(VICTIM), folder, *shape, **more), 0, **environment)
    eventually(lambda: cluster.job(name)["state"] == "RUNNING", 20, f"{name} to run: {cluster.job(name)}")

    def are_ready(on: int, ranks: int) -> bool:
        return len(list(cluster.path(f"{folder}.ready", on).iterdir())) == ranks * processes(shape)

    for share in cluster.job(name)["shares"]:
        on = NAMES.index(share["host"])
        eventually(partial(are_ready, on, share["ranks"]), what=f"the ranks on {share['host']} to be {shape}")
    assert len(cluster.victims()) >= cluster.job(name)["np"]


def nothing_left(cluster: Cluster) -> None:
    """Wait until nothing of any job runs on any host."""
    eventually(lambda: not cluster.victims(), 10, f"all victims to end: {cluster.victims()}")
    eventually(lambda: not cluster.alive(r"guard /run/taco|orted|mpiexec\.hydra|hydra_"), 10)


def stop_leaves_nothing(cluster: Cluster, name: str, *shape: str, **more: Any) -> None:
    """Stop a job whose ranks are of this shape."""
    running(cluster, name, *shape, **more)
    cluster.call("stop", names=[name], by="the test", signal=15, grace=None)
    job = cluster.ended(name)
    assert (job["state"], job["exit_code"]) == ("CANCELLED", 143)
    assert job["reason"].startswith("stopped by the test")
    assert ("had to be killed" in job["reason"]) == ("deaf" in shape), job["reason"]
    assert not cluster.victims()
    nothing_left(cluster)


def kill_leaves_nothing(cluster: Cluster, name: str, kill: Kill, *shape: str, **more: Any) -> None:
    """Kill a part of a job whose ranks are of this shape."""
    running(cluster, name, *shape, launcher=kill.launcher, **more)
    cluster.kill(cluster.pid(kill.role, kill.on), kill.on)
    job = cluster.ended(name)
    assert job["state"] in kill.states.split(), job
    assert kill.code in (None, job["exit_code"]), job
    assert re.match(kill.reason, job["reason"]), job
    nothing_left(cluster)


def loss_leaves_nothing(cluster: Cluster, name: str, *shape: str, **more: Any) -> None:
    """Cut the second host off for so long that it is lost."""
    policy = losing()
    running(cluster, name, *shape, policy=policy, **more)
    cluster.link(1, "down")
    job = cluster.ended(name, policy.host_loss_timeout + 60)
    assert (job["state"], job["exit_code"]) == ("LOST", 125)
    assert job["reason"].startswith("host n2 lost: no heartbeat"), job
    assert "; its processes on n2 may still be running: " in job["reason"]
    nothing_left(cluster)
    shared = "^ssh: .*/jobs/"  # how ssh names the process that has a shared connection
    eventually(lambda: not cluster.alive(shared), policy.host_loss_timeout, "the connection to the lost host to end")
