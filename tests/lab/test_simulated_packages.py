"""The lab's apt repository: real packages, really signed, and what its simulated toolkit does with the real engine."""

import os
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from shutil import which

import pytest

from taco_launch.lab import packages
from taco_launch.lab.docker import hosts
from taco_launch.lab.images import repository
from tests.conftest import eventually
from tests.lab.rig import Lab, made

FOLDER = Path(packages.__file__).parent
PROGRAMS = sorted((FOLDER / "programs").iterdir())
TOOLS = ("apt-get", "apt-ftparchive", "dpkg-deb", "gpg", "gpgconf", "gpgv")


def test_what_there_is() -> None:
    found = packages.packages("5.10.0-8-amd64")
    names = {(package.folder, package.name) for package in found}
    assert {name for folder, name in names if folder == packages.TOOLKIT} == {
        *("libnvidia-container1", "libnvidia-container-tools"),
        *("nvidia-container-toolkit", "nvidia-container-toolkit-base"),
    }
    assert (packages.KERNEL, "linux-headers-5.10.0-8-amd64") in names
    assert [each.version for each in found if each.name == "nvidia-peer-memory-dkms"] == ["1.0-9", "1.1-0", "1.3-0"]
    assert all("simulated" in each.version for each in found if each.folder != packages.PEER_MEMORY)
    assert all("\n Simulated: " in each.control for each in found)
    assert len({(each.name, each.version) for each in found}) == len(found)
    assert all(each.folder != packages.KERNEL for each in packages.packages("5.10_Custom"))


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda path: path.name)
def test_each_program_says_that_it_is_simulated(program: Path) -> None:
    assert "imulated" in program.read_text("utf-8").splitlines()[1]


@pytest.mark.skipif(which("shellcheck") is None, reason="cannot: there is no shellcheck")
def test_shellcheck() -> None:
    scripts = [str(path) for path in PROGRAMS if path.read_bytes().startswith(b"#!/bin/sh")]
    argv = ["shellcheck", "-x", str(FOLDER / "build.sh"), *scripts]
    found = subprocess.run(argv, cwd=FOLDER / "programs", capture_output=True, text=True, check=False)
    assert (found.returncode, len(scripts) >= 4) == (0, True), found.stdout


def build(target: Path) -> str:
    trees = hosts.packed(packages.tree(packages.packages("5.10.0-8-amd64")))
    argv = ["/bin/sh", str(FOLDER / "build.sh"), str(target), f"file:{target}"]
    done = subprocess.run(argv, input=trees, capture_output=True, check=True)
    return done.stdout.decode()


def end_agent(home: Path) -> None:
    """End the gpg-agent that gpg has left running for this home."""
    argv = ["gpgconf", "--homedir", str(home), "--kill", "all"]
    subprocess.run(argv, check=True)


def apt(root: Path, *words: str) -> "subprocess.CompletedProcess[str]":
    """Run apt-get for a root of its own: its lists, its cache, its sources."""
    for name in ("lists/partial", "cache/archives/partial", "etc"):
        (root / name).mkdir(parents=True, exist_ok=True)
    (root / "status").touch()
    options = {
        "Dir::State": str(root),
        "Dir::State::Lists": str(root / "lists"),
        "Dir::State::Status": str(root / "status"),
        "Dir::Cache": str(root / "cache"),
        "Dir::Etc::SourceList": str(root / "sources.list"),
        "Dir::Etc::SourceParts": "/dev/null",
        "Debug::NoLocking": "1",
        "APT::Sandbox::User": "",
    }
    argv = ["apt-get", *(f"-o{key}={value}" for key, value in options.items()), *words]
    env = {**os.environ, "LC_ALL": "C", "APT_CONFIG": "/dev/null"}
    return subprocess.run(argv, cwd=root, env=env, capture_output=True, text=True, check=False)


@pytest.mark.skipif(any(which(tool) is None for tool in TOOLS), reason=f"cannot: one is missing of {', '.join(TOOLS)}")
def test_apt_takes_what_is_signed_and_refuses_what_was_altered(tmp_path: Path, request: pytest.FixtureRequest) -> None:
    target, root = tmp_path / "packages", tmp_path / "root"
    root.mkdir()
    request.addfinalizer(lambda: end_agent(tmp_path / "packages.key"))
    built, key = build(target).split("\n", 1)
    assert (built, build(target)) == ("built", f"\n{key}")  # the second time there is nothing to do
    (tmp_path / "key.asc").write_text(key, "utf-8")
    folder = target / packages.PEER_MEMORY
    (root / "sources.list").write_text(f"deb [signed-by={tmp_path}/key.asc] file:{folder}/ /\n", "utf-8")
    assert apt(root, "update").returncode == 0
    fetched = apt(root, "download", "nvidia-peer-memory-dkms")
    assert (fetched.returncode, "nvidia-peer-memory-dkms 1.3-0" in fetched.stdout) == (0, True), fetched.stderr

    package = folder / "nvidia-peer-memory-dkms_1.3-0_all.deb"
    content = package.read_bytes()
    package.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    (root / package.name).unlink()
    refused = apt(root, "download", "nvidia-peer-memory-dkms")
    assert (refused.returncode, "Hash Sum mismatch" in refused.stderr) == (100, True), refused.stderr

    release = folder / "InRelease"
    release.write_text(release.read_text("utf-8").replace("Origin: taco-launch-lab", "Origin: someone-else-"), "utf-8")
    refused = apt(root, "update")
    # not gpgv's BADSIG: apt of Debian 13 asks sqv, which has other words
    assert "An error occurred during the signature verification" in refused.stderr

    listed = (target / "libnvidia-container/stable/deb/nvidia-container-toolkit.list").read_text("utf-8")
    assert listed.splitlines()[0] == f"deb file:{target}/libnvidia-container/stable/deb/$(ARCH) /"
    assert (target / "libnvidia-container/gpgkey").read_text("utf-8") == key


# --- in a lab ---------------------------------------------------------------------------------------------------------

IMAGE = "plain"
# A root file system for containers, made of the host's own: what the hooks bring is not in it.
MAKE_IMAGE = f"""
set -e
cd /
tar --exclude='./usr/*bin/docker*' --exclude='./usr/*bin/nvidia*' --exclude=./usr/share --exclude='./usr/lib/*/perl*' \
  --exclude='./usr/bin/containerd*' --exclude=./usr/lib/simulated-hardware --exclude=./usr/local \
  --exclude=./usr/lib/modules -cf - ./usr ./bin ./sbin ./lib ./lib64 ./etc | docker import - {IMAGE}
"""
INSTALL = """
set -e
export DEBIAN_FRONTEND=noninteractive
list=/etc/apt/sources.list.d/nvidia-container-toolkit.list key=/usr/share/keyrings/toolkit.gpg
curl -fsS "$1/gpgkey" | gpg --batch --dearmor -o $key
curl -fsS "$1/stable/deb/nvidia-container-toolkit.list" | sed "s#^deb #deb [signed-by=$key] #" >$list
apt-get -qq update
apt-get -qq install --no-install-recommends docker.io nvidia-container-toolkit
"""
RUN = "docker run --rm --network=host"


@pytest.fixture(scope="module")
def host(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    """A lab of one host with an engine and the toolkit, installed as NVIDIA's own guide says."""
    with made("packages", tmp_path_factory.mktemp("state"), "--hosts", "1", "--gpus", "a100x8") as lab:
        ok(lab, f"set -- {repository.TOOLKIT_URL}\n{INSTALL}", seconds=240)
        ok(lab, MAKE_IMAGE)
        yield lab


def ok(user: Lab, command: str, seconds: float = 110) -> str:
    done = user.inside("gpu1", "sh", "-c", command, seconds=seconds)
    assert done.returncode == 0, (command, done.stdout, done.stderr)
    return done.stdout


@pytest.mark.lab
@pytest.mark.nightly
@pytest.mark.timeout(400)
def test_the_engine_shows_a_container_the_gpus_of_the_host(host: Lab) -> None:
    listed = ok(host, "nvidia-smi -L")
    assert listed.count("GPU ") == 8
    assert ok(host, f"{RUN} --gpus all {IMAGE} nvidia-smi -L") == listed
    ok(host, "simulated-hardware set gpu/3/state gone")
    less = ok(host, "nvidia-smi -L")
    assert less.count("GPU ") == 7
    assert ok(host, f"{RUN} --gpus all {IMAGE} nvidia-smi -L") == less
    ok(host, "simulated-hardware set gpu/3/state present")
    chosen = [line.partition("(")[2] for line in (listed.splitlines()[1], listed.splitlines()[3])]
    two = ok(host, f"""{RUN} --gpus '"device=1,3"' {IMAGE} sh -c 'nvidia-smi -L; ls /dev/nvidia[0-9]*'""").splitlines()
    assert [line.partition("(")[2] for line in two[:2]] == chosen
    assert two[2:] == ["/dev/nvidia1", "/dev/nvidia3"]
    assert ok(host, f"{RUN} {IMAGE} sh -c 'ls /dev/nvidia0 2>/dev/null || echo none'") == "none\n"

    ok(host, "nvidia-ctk runtime configure --runtime=docker && systemctl kill --signal HUP docker")
    by_runtime = f"{RUN} --runtime nvidia --env NVIDIA_VISIBLE_DEVICES=all {IMAGE} nvidia-smi -L"
    eventually(lambda: host.inside("gpu1", "sh", "-c", by_runtime).stdout == listed, 10, "the runtime to be known")

    ok(host, "simulated-hardware set driver 470.57.02")
    refused = host.inside("gpu1", "sh", "-c", f"{RUN} --gpus all {IMAGE} true")
    ok(host, "simulated-hardware set driver 470.82.01")
    assert "nvidia-container-cli: initialization error: nvml error: driver/library version mismatch" in refused.stderr


@pytest.mark.lab
@pytest.mark.nightly
@pytest.mark.timeout(400)
def test_containers_see_the_simulated_kernel_before_and_after_a_reboot(host: Lab) -> None:
    port = "/sys/class/infiniband/mlx5_bond_0/ports/1"
    seen = f"cat {port}/state /sys/kernel/mm/memory_peers/nv_mem/version; ls /dev/infiniband"
    said = "4: ACTIVE\n470.82.01\nrdma_cm\numad0\nuverbs0\n"
    ok(host, "modprobe nvidia-peermem && echo nvidia-peermem >/etc/modules-load.d/ours.conf")
    ok(
        host,
        f"docker run -d --name kept --restart unless-stopped --network=host --gpus all "
        f"--device=/dev/infiniband {IMAGE} sleep inf",
    )
    assert ok(host, f"docker exec kept sh -c '{seen}'") == said
    ok(host, "rmmod nvidia_peermem")
    assert ok(host, "docker exec kept ls /sys/kernel/mm").split().count("memory_peers") == 1
    assert ok(host, "docker exec kept sh -c 'ls /sys/kernel/mm/memory_peers'") == ""
    assert ok(host, f"docker run --rm {IMAGE} ls /sys/class/net").split() == ["eth0", "lo"]  # its own interfaces
    written = host.inside("gpu1", "sh", "-c", f"docker run --rm {IMAGE} touch /sys/class/infiniband/mlx5_0")
    assert "Read-only file system" in written.stderr

    host.reboot("gpu1")
    eventually(lambda: host.inside("gpu1", "systemctl", "is-system-running").stdout == "running\n", 60, "the reboot")
    assert ok(host, f"docker exec kept sh -c '{seen}'") == said
    listed = ok(host, "nvidia-smi -L")
    assert ok(host, "docker exec kept nvidia-smi -L") == listed

    ok(host, "systemctl daemon-reload")
    assert ok(host, "docker exec kept nvidia-smi -L") == listed
    ok(host, "simulated-hardware set reload-loses-gpus yes")
    lost = "Failed to initialize NVML: Unknown Error\n"
    for driver, code, told in (("cgroupfs", 0, listed), ("systemd", 255, lost)):  # systemd knows but its own cgroups
        ok(host, f"""echo '{{"exec-opts": ["native.cgroupdriver={driver}"]}}' >/etc/docker/daemon.json""")
        ok(host, "systemctl restart docker; systemctl daemon-reload")
        done = host.inside("gpu1", "docker", "exec", "kept", "nvidia-smi", "-L")
        assert (done.returncode, done.stdout) == (code, told)
    ok(host, "docker restart --time 0 kept")
    assert ok(host, "docker exec kept nvidia-smi -L") == ok(host, "nvidia-smi -L") == listed


@pytest.mark.lab
@pytest.mark.nightly
@pytest.mark.timeout(400)
def test_dkms_builds_what_apt_brings(host: Lab) -> None:
    without = ok(host, "apt-get install -y nvidia-peer-memory-dkms=1.1-0 nvidia-peer-memory=1.1-0")
    assert "kernel headers for this kernel do not seem to be installed" in without
    assert "not found in directory" in host.inside("gpu1", "modprobe", "nv_peer_mem").stderr
    ok(host, 'apt-get install -y "linux-headers-$(uname -r)" && dkms autoinstall')
    ok(host, "rmmod nvidia_peermem; systemctl start nv_peer_mem")
    assert (
        ok(host, "cat /sys/kernel/mm/memory_peers/nv_mem/version; systemctl is-enabled nv_peer_mem")
        == "1.1-0\nenabled\n"
    )
    ok(host, "apt-get purge -y nvidia-peer-memory-dkms nvidia-peer-memory")
    assert re.findall(r"nvidia-peer-memory.*", ok(host, "dkms status")) == []
