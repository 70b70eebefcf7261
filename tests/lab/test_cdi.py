"""GPUs by CDI on a real engine that has it, Debian 13's: from bare to equal GPUs, under a daemon-reload, with another driver."""

import json
from collections.abc import Iterator

import pytest

from taco_launch.lab.images import root
from tests.conftest import eventually
from tests.lab.rig import GpuHost, Image, made

pytestmark = [pytest.mark.lab, pytest.mark.nightly, pytest.mark.timeout(600)]

SPECIFICATION = "/var/run/cdi/nvidia.yaml"
LOST = "Failed to initialize NVML: Unknown Error"
# With them a daemon-reload takes the GPUs of the hook, as systemd keeps the devices of containers.
CGROUPS = {"exec-opts": ["native.cgroupdriver=systemd"]}
# Any that is not the machine's own.
OTHER_DRIVER = "535.129.03"


@pytest.fixture(scope="module")
def host(tmp_path_factory: pytest.TempPathFactory) -> Iterator[GpuHost]:
    """A host of Debian 13, bare at first; its image is made once on a machine. Each test continues where the one before ended."""
    if root.own_release() not in ("bookworm", "trixie"):
        pytest.skip("cannot: Debian 13 comes from the archives of Debian")
    words = ("--hosts", "1", "--gpus", "v100x8", "--release", "trixie")
    with made("cdi", tmp_path_factory.mktemp("state"), *words, image=Image.SMALL) as lab:
        yield GpuHost(lab.cluster, tmp_path_factory.mktemp("cdi"))


def test_its_hosts_are_of_another_release_and_stay_so(host: GpuHost) -> None:
    assert host.sh(". /etc/os-release; echo $VERSION_CODENAME") == "trixie"
    assert host.lab.host("gpu1")["release"] == "trixie"
    assert f"the lab '{host.lab.name}' was up already" in host.lab.up().stderr
    other = host.lab.verb("up", "--release", "bookworm")
    assert (other.returncode, "--release bookworm (it has trixie)" in other.stderr) == (2, True)
    none = host.lab.taco("lab", "up", "--yes", "--name", f"{host.lab.name}-none", "--no-image", "--release", "nosuch")
    assert none.returncode == 1
    assert "has no suite nosuch" in none.stderr
    assert "/dists/" in none.stderr


def test_from_bare_to_equal_gpus_by_cdi(host: GpuHost) -> None:
    host.sh(f"mkdir -p /etc/docker; echo '{json.dumps(CGROUPS)}' >/etc/docker/daemon.json")
    done = host.cluster.setup("--yes")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "by the runtime nvidia, or by CDI if docker turns out to be version 25 or newer" in done.stdout
    assert "toolkit: daemon.json: add features (restart): done" in done.stderr
    assert f"toolkit: describe the GPUs for CDI in {SPECIFICATION}: done" in done.stderr
    assert json.loads(host.sh("cat /etc/docker/daemon.json")) == {**CGROUPS, "features": {"cdi": True}}
    asked = "{{.HostConfig.Runtime}} {{range .HostConfig.DeviceRequests}}{{.Driver}} {{.DeviceIDs}}{{end}}"
    assert host.sh(f"docker inspect --format '{asked}' {host.box}") == "runc cdi [nvidia.com/gpu=all]"
    assert len(host.gpus()) == 8
    assert host.sh(f"systemctl show --property NeedDaemonReload --value {host.box} docker | sort -u").split() == ["no"]
    facts = host.cluster("facts", "--only", "docker", "--json")
    (docker,) = (each["docker"] for each in json.loads(facts.stdout)["hosts"])
    assert int(docker["version"].partition(".")[0]) >= 25
    assert "nvidia.com/gpu=all" in docker["cdi"]
    assert "/var/run/cdi" in docker["cdi_folders"]
    host.cluster.converged()


def test_a_daemon_reload_takes_them_from_others_only(host: GpuHost) -> None:
    image = host.sh(f"docker inspect --format '{{{{.Image}}}}' {host.box}")
    host.sh(f"docker run --detach --rm --name by-hook --gpus all --entrypoint sleep {image} 600")
    assert host.sh("docker exec by-hook nvidia-smi -L").count("UUID") == 8
    host.sh("simulated-hardware set reload-loses-gpus yes; systemctl daemon-reload")
    assert host.sh("docker exec by-hook nvidia-smi -L || :") == LOST
    host.sh("docker kill by-hook; simulated-hardware set reload-loses-gpus no")
    host.gpus()
    host.cluster.converged()


def test_after_a_reboot_with_another_driver_they_are_described_anew(host: GpuHost) -> None:
    host.sh(f"simulated-hardware set driver {OTHER_DRIVER}")
    host.lab.reboot("gpu1")
    eventually(host.has_gpus, 60, "its container")
    assert "Generated CDI spec" in host.sh(f"journalctl --boot --unit {host.box} --output cat")
    assert host.sh(f"grep -c nvidia.com/gpu {SPECIFICATION}") == "1"
    assert OTHER_DRIVER in host.sh(f"docker exec {host.box} nvidia-smi")
    host.gpus()
    host.cluster.converged()
