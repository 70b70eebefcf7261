"""What is seen and done on other hosts than the head: slots, and a command beside a rank."""

import json
from typing import Any

import pytest

from tests.conftest import eventually
from tests.e2e.cluster import NAMES, STATE, Cluster

pytestmark = pytest.mark.e2e


def top(cluster: Cluster, *more: str) -> dict[str, Any]:
    """Ask the head for the slots of all hosts."""
    asked = [{"name": host, "slots": 2, "gpus": "auto"} for host in (*NAMES, *more)]
    frames = cluster.call("top", hosts=asked, here="n1")
    return {frame["host"]: frame for frame in frames if "host" in frame}


def allocated(found: dict[str, Any]) -> dict[str, list[str | None]]:
    """Return which job has each slot."""
    return {
        name: [slot["holder"] and slot["holder"]["job"] for slot in frame["occupancy"]["slots"]]
        for name, frame in found.items()
    }


def test_the_slots_of_every_host(cluster: Cluster, name: str) -> None:
    # n2 has no agent yet, n3 a part of one.
    cluster.sh(f"mkdir -p {STATE}/agent && head -c 9999 {cluster.made.folder}/agent*.pyz >{cluster.agent}", on=2)
    assert allocated(top(cluster)) == {host: [None, None] for host in NAMES}
    cluster.submit(cluster.spec(name, "sleep", "600", np=3))
    eventually(lambda: cluster.job(name)["state"] == "RUNNING")
    assert allocated(top(cluster)) == {"n1": [name, name], "n2": [name, None], "n3": [None, None]}
    assert "nosuch" in top(cluster, "nosuch")["nosuch"]["problem"]


def test_a_command_beside_a_rank_of_another_host(cluster: Cluster, name: str) -> None:
    cluster.submit(cluster.spec(name, "sleep", "600"))
    eventually(lambda: cluster.job(name)["state"] == "RUNNING")
    script = 'echo "$(hostname) $RANK $LOCAL_RANK $TACO_LAUNCH_JOB"; exit 5'
    said = cluster.call("exec", name=name, rank=3, command=["sh", "-c", script], token="a")
    assert said[1:3] == [f"n2 3 1 {name}\n", {"op": "exited", "code": 5}]


def test_it_ends_with_the_job(cluster: Cluster, name: str) -> None:
    cluster.submit(cluster.spec(name, "sleep", "600"))
    eventually(lambda: cluster.job(name)["state"] == "RUNNING")
    cluster.sh(
        f"""printf '%s\\n' '{{"protocol": 1}}' "$1" | {cluster.python} -I -S {cluster.agent} exec >/dev/null 2>&1 &""",
        json.dumps({"name": name, "rank": 5, "command": ["sleep", "4321.5"], "token": "a"}),
    )
    eventually(lambda: any(on == 2 for on, _pid in cluster.alive("sleep 4321.5")))
    cluster.call("stop", name=name, by="the test", signal=15, grace=0)
    cluster.ended(name)
    assert cluster.alive("sleep 4321.5") == []
