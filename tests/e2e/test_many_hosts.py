"""One job over 64 hosts: every rank runs, is told apart in the log, and nothing of it is left."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from taco_launch.core.model.host.hosts import Host
from tests.e2e.cluster import Cluster, on_plain_hosts

pytestmark = pytest.mark.e2e

NAMES = tuple(f"n{number}" for number in range(1, 65))


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory, agent: Path) -> Iterator[Cluster]:
    with on_plain_hosts(NAMES, tmp_path_factory.mktemp("hosts"), agent) as made:
        yield made


@pytest.mark.timeout(300)
def test_a_job_over_64_hosts(cluster: Cluster, name: str) -> None:
    hosts = tuple(Host(host, f"10.77.0.{number}", slots=1) for number, host in enumerate(NAMES, 1))
    spec = cluster.spec(name, "sh", "-c", "echo rank $OMPI_COMM_WORLD_RANK of $OMPI_COMM_WORLD_SIZE", hosts=hosts)
    job = cluster.run(spec)
    assert (job["state"], job["np"], job["reason"]) == ("SUCCEEDED", 64, "every rank exited with 0")
    lines = sorted(re.sub(r" +", " ", line) for line in cluster.log(name))
    assert lines == sorted(f"{host}/{rank} | rank {rank} of 64" for rank, host in enumerate(NAMES))
