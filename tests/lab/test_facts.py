"""Facts of lab hosts, by the command line: they agree with what the host says itself, and the odd host out is named."""

import json
import re
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from taco_launch.hosts.inventory.load import parse
from tests.lab.rig import Lab, made
from tests.support.patience import patience

pytestmark = [pytest.mark.lab, pytest.mark.timeout(600)]

HOSTS = ("gpu1", "gpu2")
# In a host with an engine of its own: an image of one program, and a container of it that runs.
_ENGINE = """export DEBIAN_FRONTEND=noninteractive
apt-get --quiet --quiet update
apt-get --quiet --quiet install --yes --no-install-recommends docker.io >/dev/null
timeout 30 sh -c 'until docker info; do sleep 0.2; done' >/dev/null 2>&1
files=$(ldd /bin/sleep | grep -o '/[^ ]*')
tar --create --dereference /bin/sleep $files 2>/dev/null | docker import - registry.example:5000/rest:1.0
docker run --detach --network none --name busy --label job=night,1 registry.example:5000/rest:1.0 /bin/sleep 1000
docker create --network none --name idle registry.example:5000/rest:1.0 /bin/sleep 1
"""


@pytest.fixture(scope="module")
def gpus(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    """Hosts with simulated GPUs."""
    with made("facts", tmp_path_factory.mktemp("state"), "--hosts", "2", "--gpus", "h100x8") as lab:
        yield lab


@pytest.fixture(scope="module")
def engine(gpus: Lab) -> "Iterator[subprocess.Popen[str]]":
    """A Docker Engine on gpu2, on its way in while other tests look at gpu1."""
    argv = gpus.exec_argv("gpu2", "sh", "-euc", _ENGINE)
    with subprocess.Popen(
        argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        yield process


def facts(lab: Lab, *args: str) -> dict[str, Any]:
    """Return the document of `facts --json`."""
    done = lab.cluster("facts", "--json", *args)
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    document: dict[str, Any] = json.loads(done.stdout)
    return document


def shown(lab: Lab, *args: str) -> str:
    """Return the table of `facts`."""
    done = lab.cluster("facts", *args)
    assert done.returncode == 0, done.stderr
    return done.stdout


def one(lab: Lab, host: str, subject: str) -> Any:
    return facts(lab, host, "--only", subject)["hosts"][0][subject]


def differing(lab: Lab, *args: str) -> dict[str, dict[str, list[str]]]:
    """Return what the hosts differ in: for each `subject name` the hosts of each value."""
    return {
        f"{row['subject']} {row['name']}": {each["value"]: each["hosts"] for each in row["values"]}
        for row in facts(lab, *args)["differences"]
    }


@contextmanager
def hardware(lab: Lab, host: str, fact: str, value: str, *, boot: bool = False) -> Iterator[None]:
    """Change a host's simulated hardware for a while."""
    before = lab.sh(host, f"simulated-hardware get {fact}").strip()
    again = "; simulated-hardware boot" if boot else ""
    lab.sh(host, f"simulated-hardware set {fact} '{value}'{again}")
    try:
        yield
    finally:
        lab.sh(host, f"simulated-hardware set {fact} '{before}'{again}")


def test_values_agree_with_the_host(gpus: Lab) -> None:
    document = facts(gpus)
    assert [host["host"] for host in document["hosts"]] == list(HOSTS)
    assert document["failed"] == []
    for found in document["hosts"]:
        host, system, network = found["host"], found["system"], found["network"]

        def says(command: str, host: str = host) -> str:
            return gpus.sh(host, command).strip()

        assert system["hostname"] == says("hostname") == host
        assert system["kernel"] == says("uname -r")
        assert system["architecture"] == says("uname -m")
        assert system["cpu"]["threads"] == int(says("nproc"))
        assert system["memory"]["total"] == int(says("awk '/MemTotal/ {print $2}' /proc/meminfo")) * 1024
        assert system["os"]["id"] == says(". /etc/os-release; echo $ID")
        assert abs(system["booted"] - int(says("awk '/^btime/ {print $2}' /proc/stat"))) < 5
        assert (system["access"], system["init"], system["package_manager"]) == ("root", "systemd", "apt-get")
        disks = {disk["path"]: disk for disk in system["disks"]}
        assert disks["/"]["size"] == int(says("df -Pk / | awk 'END {print $2}'")) * 1024
        assert disks["/var/lib/taco-launch"]["type"] == "tmpfs"
        told = says("ip -o addr show scope global | awk '{print $2, $4}'").splitlines()
        assert [
            f"{interface['name']} {address['address']}"
            for interface in network["interfaces"]
            for address in interface["addresses"]
            if address["scope"] == "global"
        ] == told
        assert network["default_interface"] == network["reached_by"] == says("ip route show default").split()[4]
        assert network["port_range"] == [
            int(port) for port in says("cat /proc/sys/net/ipv4/ip_local_port_range").split()
        ]
        assert {"address": "0.0.0.0", "port": 22, "process": "sshd"} in network["listeners"]
        assert found["docker"] is None
        assert not [each for each in found["unknown"] if each["where"].startswith("docker")]  # absent, not unknown
        listed = says("nvidia-smi -L").splitlines()
        assert [f"GPU {gpu['index']}: {gpu['name']} (UUID: {gpu['uuid']})" for gpu in found["gpu"]["gpus"]] == listed
        assert len(listed) == 8
        assert found["gpu"]["driver"]["loaded"] == says("simulated-hardware get driver")
        assert [hca["name"] for hca in found["rdma"]["hcas"]] == says("ls /sys/class/infiniband").split()
        assert found["rdma"]["ofed"] == says("ofed_info -s").strip(":")
        assert found["topology"]["gpus"] == [f"GPU{number}" for number in range(8)]


def test_what_is_simulated_is_called_so(gpus: Lab, lab: Lab) -> None:
    text = shown(gpus)
    for subject in ("gpu", "topology", "rdma"):
        assert f"\n{subject} (simulated) " in text
    assert "\nsystem " in f"\n{text}"
    assert {"gpu", "topology", "rdma"} <= set(facts(gpus, "gpu1", "--only", "gpu")["hosts"][0]["simulated"])
    assert "\nHosts that differ:" not in text
    real = facts(lab, "gpu1")["hosts"][0]
    assert not real["simulated"]
    assert "simulated" not in shown(lab, "gpu1")
    assert not (real["gpu"] and real["gpu"]["gpus"])


@pytest.mark.nightly
def test_the_host_with_another_driver_is_named(gpus: Lab) -> None:
    other = gpus.sh("gpu1", "simulated-hardware get driver").strip()
    with hardware(gpus, "gpu2", "driver", "535.86.10", boot=True):
        assert differing(gpus, "--only", "gpu")["gpu driver"] == {other: ["gpu1"], "535.86.10": ["gpu2"]}
        text = shown(gpus, "--only", "gpu,system")
        assert f"  gpu1: driver {other}, gpu2: 535.86.10\n" in text
        assert "Hosts that differ:" in text
    # on the disk, but the kernel still has the old one: no boot in between
    with hardware(gpus, "gpu2", "driver", "535.86.10"):
        driver = one(gpus, "gpu2", "gpu")["driver"]
        assert (driver["loaded"], driver["installed"]) == (other, "535.86.10")
    assert differing(gpus, "--only", "gpu") == {}


def test_a_port_that_is_down(gpus: Lab) -> None:
    with hardware(gpus, "gpu2", "hca/mlx5_3/state", "DOWN"):
        document = facts(gpus, "--only", "rdma,network")
        states = {
            host["host"]: {hca["name"]: hca["ports"][0]["state"] for hca in host["rdma"]["hcas"]}
            for host in document["hosts"]
        }
        assert set(states["gpu1"].values()) == {"ACTIVE"}
        assert {name for name, state in states["gpu2"].items() if state != "ACTIVE"} == {"mlx5_3"}
        assert states["gpu2"]["mlx5_3"] == "DOWN"
        assert [row["name"] for row in document["differences"]] == ["ports"]
        assert "gpu2: mlx5_3" in shown(gpus, "--only", "rdma,network")


def test_a_gpu_that_is_gone_or_lost(gpus: Lab) -> None:
    uuids = [gpu["uuid"] for gpu in one(gpus, "gpu2", "gpu")["gpus"]]
    with hardware(gpus, "gpu2", "gpu/3/state", "gone"):
        assert [gpu["uuid"] for gpu in one(gpus, "gpu2", "gpu")["gpus"]] == uuids[:3] + uuids[4:]
        values = differing(gpus, "--only", "gpu,topology")["gpu gpus"]
        assert [(text.split()[0], hosts) for text, hosts in values.items()] == [("8x", ["gpu1"]), ("7x", ["gpu2"])]
    with hardware(gpus, "gpu2", "gpu/3/state", "lost"):
        found = facts(gpus, "gpu2", "--only", "gpu")["hosts"][0]
        assert any("GPU is lost" in each["reason"] for each in found["unknown"])
        assert "GPU is lost" in shown(gpus, "gpu2", "--only", "gpu")


def test_a_clock_that_is_off(gpus: Lab) -> None:
    right = one(gpus, "gpu2", "system")
    assert abs(right["clock_offset"]) <= right["clock_error"] + 0.1
    gpus.fault("gpu2", "clock-skew", "-90s")
    try:
        wrong = one(gpus, "gpu2", "system")
        assert abs(wrong["clock_offset"] + 90) <= wrong["clock_error"] + 0.1
        told = differing(gpus, "--only", "system")["system clock"]
        assert [hosts for text, hosts in told.items() if re.search(r"\b90 s\b|\b89\.|\b90\.", text)] == [["gpu2"]], told
    finally:
        gpus.fault("gpu2", "clock-right")


def test_a_disk_that_is_full(gpus: Lab) -> None:
    def free() -> int:
        disks = one(gpus, "gpu2", "system")["disks"]
        return next(int(disk["free"]) for disk in disks if disk["path"] == "/var/lib/taco-launch")

    assert free() > 100 << 20
    gpus.fault("gpu2", "disk-full")
    try:
        assert free() == 0
        full = re.compile(r"disk /var/lib/taco-launch +[1-9].* gpu1\n +0 B free .* gpu2\n")
        assert full.search(shown(gpus, "--only", "system"))
    finally:
        gpus.fault("gpu2", "disk-free")
    assert "disk /var/lib/taco-launch" not in shown(gpus, "--only", "system")  # in -o wide


def test_an_ordinary_user_sees_what_he_may(gpus: Lab, tmp_path: Any) -> None:
    gpus.sh(
        "gpu1",
        "useradd --create-home user && cp -r ~root/.ssh /home/user/ && chown -R user: /home/user && "
        "nft add table inet test_rules",
    )
    try:
        user = gpus.inventory(tmp_path / "cluster.yaml", "gpu1", ssh={"user": "user"})
        done = user("facts", "--json")
        assert (done.returncode, done.stderr) == (0, "")
        found = json.loads(done.stdout)["hosts"][0]
        text = user("facts").stdout
    finally:
        gpus.sh("gpu1", "nft delete table inet test_rules; userdel --force --remove user 2>/dev/null")
    assert found["system"]["access"] == "user"
    reasons = {each["where"]: each["reason"] for each in found["unknown"]}
    assert found["network"]["firewalls"] is None
    assert "the rules cannot be read: " in reasons["network.firewalls"]
    assert {"address": "0.0.0.0", "port": 22, "process": None} in found["network"]["listeners"]
    assert len(found["gpu"]["gpus"]) == 8  # what takes no root is there
    assert re.search(r"firewall +unknown: the rules cannot be read: ", text)


@pytest.mark.nightly
def test_an_engine_and_its_containers(gpus: Lab, engine: "subprocess.Popen[str]") -> None:
    out, err = engine.communicate(timeout=patience(150))
    assert engine.returncode == 0, err
    image = out.splitlines()[0]
    found = one(gpus, "gpu2", "docker")
    assert found["version"] == gpus.sh("gpu2", "docker version --format '{{.Server.Version}}'").strip()
    assert found["flavour"] == "docker"
    assert found["storage"] == gpus.sh("gpu2", "docker info --format '{{.Driver}}'").strip()
    assert {entry["name"]: (entry["state"], entry["image"]) for entry in found["containers"]} == {
        "busy": ("running", "registry.example:5000/rest:1.0"),
        "idle": ("created", "registry.example:5000/rest:1.0"),
    }
    labels = {entry["name"]: entry["labels"] for entry in found["containers"]}
    assert labels == {"busy": [["job", "night,1"]], "idle": []}
    assert [(entry["reference"], entry["id"]) for entry in found["images"]] == [
        ("registry.example:5000/rest:1.0", image)
    ]
    text = shown(gpus, "--only", "docker")
    assert "busy (running), idle (created)" in text
    assert "none (docker: not found)" in text  # gpu1
    assert "\n  gpu1: docker none (docker: not found), gpu2: present\n" in text


def test_a_first_inventory_says_what_the_hosts_have(gpus: Lab, tmp_path: Path) -> None:
    home = tmp_path / "home"
    (home / ".ssh").mkdir(parents=True, mode=0o700)
    (home / ".ssh" / "config").write_text((gpus.folder / "ssh_config").read_text())
    target = tmp_path / "hosts.yaml"
    partly = gpus.taco("init", "gpu[1-2]", "nosuch.invalid", "--to", str(target), env={"HOME": str(home)})
    assert (partly.returncode, target.exists()) == (5, False), partly.stderr
    assert "--no-facts" in partly.stderr
    made = gpus.taco("init", "gpu[1-2]", "--to", str(target), "--user", "root", env={"HOME": str(home)})
    assert made.returncode == 0, made.stderr
    inventory = parse(target.read_bytes(), "x")
    assert [(host.name, host.slots) for host in inventory.hosts] == [("gpu1", 8), ("gpu2", 8)]
    assert inventory.network.interface == "bond0"
    lines = gpus.taco("-i", str(target), "facts", "--only", "system", "--json", env={"HOME": str(home)})
    assert len(json.loads(lines.stdout)["hosts"]) == 2
