"""Simulated hardware that ails: verdicts, drivers that stop set-up before any stage, and facts that a reboot keeps."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import eventually
from tests.lab.rig import Cluster, Done, Lab, made

pytestmark = [pytest.mark.lab, pytest.mark.timeout(600)]

DRIVER = "470.82.01"


@pytest.fixture(scope="module")
def gpus(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    """Hosts with GPUs behind NVSwitches and an RDMA bond."""
    with made("health", tmp_path_factory.mktemp("state"), "--hosts", "2", "--slots", "1", "--gpus", "a100x8") as lab:
        yield lab


@pytest.fixture
def ops(gpus: Lab, tmp_path: Path) -> Cluster:
    """An inventory with a container, so that there is something to be set up."""
    container = {"image": "registry:5000/train:1"}
    return gpus.inventory(tmp_path / "cluster.yaml", "gpu1", "gpu2", cluster="health", container=container)


def check(ops: Cluster, *words: str) -> Done:
    return ops.setup("--check", "--only", "docker", *words)


def verdicts(lab: Lab, host: str) -> dict[str, tuple[str, str]]:
    done = lab.cluster("facts", host, "--json")
    assert done.returncode == 0, done.stderr
    (found,) = json.loads(done.stdout)["hosts"]
    return {each["name"]: (each["level"], each["text"]) for each in found["health"]}


def reboot(lab: Lab, host: str) -> None:
    lab.reboot(host)
    eventually(lambda: lab.sh(host, "nvidia-smi -L | wc -l").strip() == "8", 30, "its GPUs")


@pytest.mark.nightly
def test_facts_after_a_reboot_are_those_before(gpus: Lab, tmp_path: Path) -> None:
    def facts(*words: str) -> Done:
        return gpus.cluster("facts", *words)

    file = tmp_path / "before.json"
    file.write_text(facts("--json").stdout)
    for host in ("gpu1", "gpu2"):
        reboot(gpus, host)

    def same() -> bool:  # units of the boot may still be starting
        done = facts("--compare", str(file))
        return (done.returncode, done.stdout) == (0, "")

    eventually(same, 30, "what was before")
    gpus.sh("gpu2", "modprobe nvidia_peermem")  # by hand: a reboot takes it away
    done = facts("--compare", str(file))
    assert done.returncode == 3
    assert "gpu2: rdma.peer_memory.loaded: none -> nvidia_peermem" in done.stdout.splitlines()
    file.write_text(facts("--json").stdout)
    reboot(gpus, "gpu2")
    assert "gpu2: rdma.peer_memory.loaded: nvidia_peermem -> none" in facts("--compare", str(file)).stdout


def test_what_ails_is_told_and_nothing_is_changed(gpus: Lab, ops: Cluster) -> None:
    facts = {
        "gpu/0/persistence": "Disabled", "gpu/5/ecc-uncorrected": "3", "gpu/5/link-width": "8",
        "gpu/0/event-reasons": "0x0000000000000048",
    }  # fmt: skip
    before = verdicts(gpus, "gpu2")
    assert {name: before[name][0] for name in ("MIG", "ECC", "clocks", "PCIe width", "IOMMU", "OFED")} == dict.fromkeys(
        ("MIG", "ECC", "clocks", "PCIe width", "IOMMU", "OFED"), "ok"
    )
    was = {fact: gpus.sh("gpu2", f"simulated-hardware get {fact}").strip() for fact in facts}
    try:
        for fact, value in facts.items():
            gpus.sh("gpu2", f"simulated-hardware set {fact} {value}")
        told = verdicts(gpus, "gpu2")
        assert {name: told[name][0] for name in ("persistence", "ECC", "PCIe width", "clocks")} == {
            "persistence": "warning", "ECC": "fault", "PCIe width": "warning", "clocks": "fault",
        }  # fmt: skip
        done = check(ops)
        assert done.returncode == 3, done.stderr  # for docker, which is to be installed
        assert "  gpu2: warning: PCIe width: GPU 5 x8 of x16 (" in done.stdout
        assert "  gpu2: fault: clocks: throttled on GPU 0: HwSlowdown, HwThermalSlowdown (" in done.stdout
        assert "Hosts that differ:" in done.stdout
    finally:
        for fact, value in was.items():
            gpus.sh("gpu2", f"simulated-hardware set {fact} {value}")


@pytest.mark.parametrize(
    ("script", "words"),
    [
        (
            "simulated-hardware set driver 535.86.10",
            f"Driver/library version mismatch: the kernel runs NVIDIA driver {DRIVER}, and 535.86.10 is installed",
        ),
        pytest.param(
            "systemctl stop nvidia-fabricmanager nvidia-persistenced 2>/dev/null; modprobe -r nvidia_uvm nvidia_modeset",
            f"the NVIDIA driver {DRIVER} is installed but not loaded",
            marks=pytest.mark.nightly,
        ),
        pytest.param(
            "simulated-hardware set ofed MLNX_OFED_LINUX-5.8-2.0.3.0",
            "OFED is MLNX_OFED_LINUX-5.8-2.0.3.0, but the loaded mlx5_core is",
            marks=pytest.mark.nightly,
        ),
    ],
    ids=("driver changed", "driver not loaded", "OFED changed"),
)
def test_drivers_that_stop_set_up_before_any_stage(gpus: Lab, ops: Cluster, script: str, words: str) -> None:
    try:
        gpus.sh("gpu1", script)
        done = check(ops)
        assert done.returncode == 5
        assert f"error: gpu1: hardware: {words}" in done.stderr
        assert "\nhint: " in done.stderr
        assert done.stdout.startswith("gpu2: + docker: ")
        told: dict[str, Any] = json.loads(check(ops, "--json").stdout)
        assert [(each["host"], each["stage"]) for each in told["problems"]] == [("gpu1", "hardware")]
    finally:
        gpus.sh(
            "gpu1",
            f"simulated-hardware set driver {DRIVER}; simulated-hardware set ofed MLNX_OFED_LINUX-5.4-1.0.3.0; "
            "simulated-hardware boot",
        )


def faults(lab: Lab) -> dict[str, dict[str, Any]]:
    """Return the faults of each host by their names; before set-up the container is one, where Docker is there already."""
    done = lab.cluster("check", "--json")
    hosts = json.loads(done.stdout)["hosts"]
    named = {
        host["host"]: {each["name"]: each for each in host["checks"] if each["level"] == "fault"} for host in hosts
    }
    assert done.returncode == (3 if any(named.values()) else 0), done.stderr
    return named


def test_a_check_names_three_faults_and_what_to_do(gpus: Lab) -> None:
    before = faults(gpus)["gpu2"]
    grow = "for file in /sys/class/infiniband/*/ports/1/counters/symbol_error; do echo $n >$file; done"
    try:
        gpus.sh("gpu2", "simulated-hardware set gpu/3/nvlink-down 2")
        gpus.sh("gpu2", "simulated-hardware say 'NVRM: Xid (PCI:0000:4b:00): 79, pid=1, GPU has fallen off the bus.'")
        gpus.sh("gpu2", f"(n=1; while [ $n -lt 150 ]; do {grow}; n=$((n + 1)); sleep 0.2; done) >/dev/null 2>&1 &")
        found = faults(gpus)
        new = {name: each for name, each in found["gpu2"].items() if name not in before}
        assert set(new) == {"Xid", "NVLink links", "port errors"}
        assert not set(new) & set(found["gpu1"])
        assert all(each["hint"] and each["source"] for each in new.values())
        assert "(RESTART_BM): pid=1, GPU has fallen off the bus." in new["Xid"]["text"]
        assert "GPU 3: links 10-11 down" in new["NVLink links"]["text"]
        assert "symbol_error +" in new["port errors"]["text"]
    finally:
        gpus.sh("gpu2", "pkill -f '[s]ymbol_error' || :; simulated-hardware boot")
        gpus.sh("gpu2", "simulated-hardware set gpu/3/nvlink-down 0")
    assert set(faults(gpus)["gpu2"]) == set(before), "the boot has emptied the kernel log and the counters"
