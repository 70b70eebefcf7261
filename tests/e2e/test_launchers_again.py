"""Jobs of MIN:MAX hosts that lose one: the next try continues with those that are left, a later one with it again."""

import signal
from typing import Any

import pytest

from taco_launch.core.model.jobs import Policy, Restart
from tests.conftest import eventually
from tests.e2e.cluster import Cluster
from tests.e2e.ends import nothing_left
from tests.support.torch_hosts import kept, path

__all__ = ["kept", "path"]  # fixtures

pytestmark = pytest.mark.e2e
TRIED = (
    "echo try $TACO_LAUNCH_ATTEMPT again $TORCHELASTIC_RESTART_COUNT; [ $TACO_LAUNCH_ATTEMPT = 3 ] || exec sleep 600; "
)


def test_a_host_that_is_lost_and_comes_back(cluster: Cluster, name: str, path: dict[str, str]) -> None:
    """Under torchrun, the slowest to start: mpirun and env take the same way through the supervisor."""
    # It is longer than torchrun takes on a busy machine to start on three hosts at once.
    policy = Policy(grace=1.0, host_loss_timeout=30.0, restart=Restart.ON_FAILURE, backoff_limit=2, backoff=0.1)
    asked: dict[str, Any] = {"host_count": 3, "least_hosts": 2, "slots_per_host": 2, "policy": policy}
    # torchrun itself listens at the port, and starts ranks once all have met
    script = TRIED + "echo met as rank $RANK of $WORLD_SIZE"
    cluster.submit(cluster.spec(name, "sh", "-c", script, launcher="torchrun", **asked), 0, **path)

    def runs(attempt: int, *hosts: str) -> None:
        eventually(lambda: (cluster.job(name)["state"], cluster.job(name)["attempt"]) == ("RUNNING", attempt), 90)
        assert cluster.job(name)["hosts"] == list(hosts)

    runs(1, "n1", "n2", "n3")
    cluster.link(1, "down")
    runs(2, "n1", "n3")
    cluster.link(1, "up")
    cluster.kill(cluster.pid("torch.distributed.run"), 0, signal.SIGKILL)
    job = cluster.ended(name, 60)
    log = cluster.log(name)
    assert (job["state"], job["attempt"], job["hosts"]) == ("SUCCEEDED", 3, ["n1", "n2", "n3"]), (job, log)
    tries = [line.partition("| ")[2] for line in log if line.startswith("n1/0 ") and "| try" in line]
    assert tries == ["try 1 again 0", "try 2 again 1", "try 3 again 2"]
    assert sorted(line for line in log if "| met" in line) == [
        f"n{rank // 2 + 1}/{rank} | met as rank {rank} of 6" for rank in range(6)
    ]
    nothing_left(cluster)
