"""Parts of the log of a job over several hosts; the time of a line is that at which its own host saw it."""

import datetime as dt
import time

import pytest

from taco_launch.core.model.jobs import Policy
from tests.conftest import eventually
from tests.e2e.cluster import NAMES, STATE, Cluster
from tests.support.patience import patience

pytestmark = pytest.mark.e2e

# Each rank tells its own host's time, until a file is there.
TELLS = """
import os, sys, time
while not os.path.exists(sys.argv[1]):
    print(time.time(), flush=True)
    time.sleep(0.1)
"""


def test_the_agent_log_has_what_every_guard_did(cluster: Cluster, name: str) -> None:
    policy = Policy(agent_log=True, grace=1.0, host_loss_timeout=30.0)
    job = cluster.run(cluster.spec(name, "sh", "-c", "exit 0", np=6, policy=policy), TOKEN="hunter2")
    assert job["state"] == "SUCCEEDED"
    found = cluster.log(name, agent=True)
    for who in ("supervisor", *(f"guard of {host}" for host in NAMES)):
        own = [line.partition(f" {who}: ")[2] for line in found if f" {who}: " in line]
        for text in ("register", "exit") if who != "supervisor" else ("placed: ", "running: ", "ended: "):
            assert any(text in line for line in own), (who, text, own)
    assert sum("received register" in line for line in found) == 6
    for rank in range(6):
        assert sum(f" supervisor: rank {rank} {what}" in line for line in found for what in ("started", "ended")) == 2
    for host in NAMES:
        assert any(f" supervisor: slots of {host}: slot-0 slot-1" in line for line in found)
    assert not any("is lost" in line for line in found)
    # The guards of other hosts have theirs there, too; the last one may not have reached the head.
    for on, host in enumerate(NAMES[1:], 1):
        (there,) = cluster.path(f"{STATE}/jobs/{name}/logs", on).glob("agent.*.log")
        assert there.stat().st_mode & 0o777 == 0o600
        own = there.read_text("utf-8").splitlines()
        assert [line for line in found if f" guard of {host}: " in line] in (own, own[:-1])
        assert own[-1].endswith(f" guard of {host}: received close: remove=False")
        found += own
    assert "hunter2" not in "\n".join(found)


def times(line: str) -> tuple[float, float]:
    """Return the time before a line, and the time that it tells."""
    stamp, *_label, told = line.split()
    at = dt.datetime.strptime(stamp, "%Y-%m-%dT%H:%M:%S.%fZ").replace(tzinfo=dt.timezone.utc)
    return at.timestamp(), float(told)


def test_times_of_a_host_that_was_cut_off_for_a_while(cluster: Cluster, name: str) -> None:
    go = cluster.made.folder / f"{name}.go"
    policy = Policy(host_loss_timeout=patience(30))
    cluster.submit(cluster.spec(name, "python3", "-c", TELLS, str(go), np=6, policy=policy))
    eventually(lambda: len(cluster.log(name, host="n2")) > 4)
    cluster.link(1, "down")
    cut = time.time()
    time.sleep(patience(1))
    early = time.time()
    time.sleep(patience(3))
    joined = time.time()
    cluster.link(1, "up")
    eventually(lambda: times(cluster.log(name, timestamps=True, host="n2")[-1])[1] > joined, what="lines after the cut")
    go.touch()
    assert cluster.ended(name, 60)["state"] == "SUCCEEDED"
    whole = cluster.log(name, timestamps=True)
    assert len({line.split()[1] for line in whole}) == 6
    for asked, count in (({"host": "n2"}, 2), ({"rank": 2}, 1)):
        found = [times(line) for line in cluster.log(name, timestamps=True, **asked)]
        assert len(found) == sum(line.split()[1] in ("n2/2", "n2/3")[:count] for line in whole)
        # Those that came seconds later over the net have the time at which their own host saw them.
        came_later = [stamp for stamp, told in found if cut < told < early]
        assert len(came_later) > count
        assert max(came_later) < joined
    assert min(stamp - told for stamp, told in map(times, whole)) > -0.025


def test_instances_and_hosts(cluster: Cluster, name: str) -> None:
    assert cluster.run(cluster.spec(name, "sh", "-c", "echo $(hostname) $RANK", np=5))["state"] == "SUCCEEDED"
    assert sorted(cluster.log(name, host="n2")) == ["n2/2 | n2 2", "n2/3 | n2 3"]
    assert sorted(cluster.log(name, instance=f"{name}-worker-1")) == ["n2/2 | n2 2", "n2/3 | n2 3"]
    assert cluster.log(name, instance=f"{name}-worker-2") == ["n3 4"]
    assert cluster.log(name, instance=f"{name}-launcher") == []
    assert [line.split()[-2] for host in NAMES for line in sorted(cluster.log(name, host=host))] == [
        "n1", "n1", "n2", "n2", "n3",
    ]  # fmt: skip
