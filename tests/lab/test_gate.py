"""What keeps a host from a job before it starts, on hosts with simulated GPUs and HCAs: lost GPUs, and RDMA ports that are down."""

from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from tests.conftest import eventually
from tests.lab.rig import Cluster, Image, Lab, made

pytestmark = [pytest.mark.lab, pytest.mark.nightly, pytest.mark.timeout(900)]
BOTH = ("--np", "2", "-H", "gpu1:1,gpu2:1", "--no-wait", "--", "true")


@pytest.fixture(scope="module")
def gated(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Hosts with eight GPUs and a policy."""
    words = ("--hosts", "2", "--gpus", "v100x8")
    with made("gate", tmp_path_factory.mktemp("state"), *words, image=Image.SMALL) as lab:
        cluster = by(lab, tmp_path_factory.mktemp("inventory"))
        done = cluster.setup("--yes")
        assert done.returncode == 0, done.stderr
        yield cluster


def by(lab: Lab, folder: Path) -> Cluster:
    toolkit = yaml.safe_load(lab.cluster.ok("inventory", "-o", "yaml"))["toolkit"]
    sections = {"container": lab.training(), "health": {"drain": ["Xid"]}, "toolkit": toolkit}
    return lab.inventory(folder / "c.yaml", "gpu1", "gpu2", cluster="gate", **sections)


def change(cluster: Cluster, fact: str, value: str) -> None:
    cluster.lab.sh("gpu2", f"simulated-hardware set {fact} {value}")


def test_a_port_that_is_down_keeps_its_host_from_jobs_of_several_hosts(gated: Cluster) -> None:
    (port, *_more) = gated.lab.sh("gpu2", "ls /sys/class/infiniband").split()
    assert gated("run", *BOTH, seconds=120).returncode == 0
    change(gated, f"hca/{port}/state", "DOWN")
    try:
        done = gated("run", *BOTH, seconds=120)
        assert done.returncode == 125, done.stderr
        assert (
            f"gpu2 cannot be used: kept back by a check: RDMA ports: {port}:1 is DOWN, and ACTIVE on other hosts"
            in done.stderr
        )
        gated.ok("run", "--np", "1", "-H", "gpu2:1", "--no-wait", "--", "true", seconds=120)
    finally:
        change(gated, f"hca/{port}/state", "ACTIVE")
    gated.ok("run", *BOTH, seconds=120)


def test_a_host_with_a_lost_gpu_gets_no_job_until_it_is_back(gated: Cluster) -> None:
    change(gated, "gpu/3/state", "gone")
    try:
        done = gated("run", *BOTH, seconds=120)
        assert done.returncode == 125, done.stderr
        assert (
            "kept back by a check: lost GPUs: nvidia-smi lists 7 of the 8 GPUs that have a device file" in done.stderr
        )
        gated.ok("submit", "--name", "waits", "--np", "1", "-H", "gpu2:1", "--", "true")
        words = "lost GPUs: nvidia-smi lists 7 of the 8"
        eventually(lambda: words in gated("get", "waits").stdout, 60, "why it waits")
    finally:
        change(gated, "gpu/3/state", "present")
    eventually(lambda: gated.job("waits")["state"] == "SUCCEEDED", 180, "the host to give slots again")
