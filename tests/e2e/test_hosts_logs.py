"""Parts of the log of a job over several hosts; the time of a line is that at which its own host saw it."""

import datetime as dt
import time
from typing import Any

import pytest

from taco_launch.model.jobs import Policy
from tests.conftest import eventually
from tests.e2e.cluster import NAMES, Cluster

pytestmark = pytest.mark.e2e

# Each rank tells its own host's time.
TELLS = "import time\nfor _ in range(80): print(time.time(), flush=True); time.sleep(0.1)"


def logs(cluster: Cluster, name: str, **asked: Any) -> list[str]:
    frames = cluster.call("logs", name=name, follow=False, **asked)
    text = "".join(frame for frame in frames if isinstance(frame, str))
    return [line for line in text.splitlines() if "setpgid" not in line]  # a race in mpirun's own start of ssh


def late(line: str) -> float:
    """Give by how much the time before a line is behind the time that it tells."""
    stamp, *_label, told = line.split()
    at = dt.datetime.strptime(stamp, "%Y-%m-%dT%H:%M:%S.%fZ").replace(tzinfo=dt.timezone.utc)
    return at.timestamp() - float(told)


def test_times_of_a_host_that_was_cut_off_for_a_while(cluster: Cluster, name: str) -> None:
    policy = Policy(host_loss_timeout=30)
    cluster.submit(cluster.spec(name, "python3", "-c", TELLS, np=6, policy=policy))
    eventually(lambda: len(logs(cluster, name, host="n2")) > 4)
    cluster.link(1, "down")
    time.sleep(3)
    cluster.link(1, "up")
    assert cluster.ended(name, 60)["state"] == "SUCCEEDED"
    for asked in ({}, {"host": "n2"}, {"rank": 2}):
        lines = logs(cluster, name, timestamps=True, **asked)
        assert len(lines) == {"": 480, "host": 160, "rank": 80}["".join(asked)]
        # Those that came three seconds later over the net are no exception.
        assert max(map(late, lines)) < 0.5
        assert min(map(late, lines)) > -0.025


def test_instances_and_hosts(cluster: Cluster, name: str) -> None:
    assert cluster.run(cluster.spec(name, "sh", "-c", "echo $(hostname) $RANK", np=5))["state"] == "SUCCEEDED"
    assert sorted(logs(cluster, name, host="n2")) == ["n2/2 | n2 2", "n2/3 | n2 3"]
    assert sorted(logs(cluster, name, instance=f"{name}-worker-1")) == ["n2/2 | n2 2", "n2/3 | n2 3"]
    assert logs(cluster, name, instance=f"{name}-worker-2") == ["n3 4"]
    assert logs(cluster, name, instance=f"{name}-launcher") == []
    assert [line.split()[-2] for host in NAMES for line in sorted(logs(cluster, name, host=host))] == [
        "n1", "n1", "n2", "n2", "n3",
    ]  # fmt: skip
