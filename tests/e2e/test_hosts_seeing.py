"""What is seen of other hosts than the head: their slots."""

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
