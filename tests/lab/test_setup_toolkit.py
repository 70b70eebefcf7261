"""The toolkit stage on a simulated GPU host: from bare to equal GPUs in the container, after a reboot as well, and offline."""

import base64
import re
from collections.abc import Iterator

import pytest

from taco_launch.lab.images.repository import TOOLKIT_URL
from taco_launch.setup import scripts
from tests.conftest import eventually
from tests.lab.rig import Done, GpuHost, Image, made

pytestmark = [pytest.mark.lab, pytest.mark.timeout(600)]

PACKAGES = "nvidia-container-toolkit nvidia-container-toolkit-base libnvidia-container-tools libnvidia-container1"
LIST = "/etc/apt/sources.list.d/taco-launch-nvidia-container-toolkit.list"
BROKEN = """#!/bin/sh
echo 'Failed to initialize NVML: Unknown Error'
exit 255
"""


def by(host: GpuHost, **toolkit: str) -> Done:
    """Set docker and toolkit up as another inventory says."""
    return host.by(toolkit=toolkit).setup("--yes", "--only", "docker,toolkit")


@pytest.fixture(scope="module")
def host(tmp_path_factory: pytest.TempPathFactory) -> Iterator[GpuHost]:
    """A host with eight GPUs, bare at first; the tests of this file continue where the one before ended."""
    words = ("--hosts", "1", "--gpus", "v100x8", "--docker")
    with made("toolkit", tmp_path_factory.mktemp("state"), *words, image=Image.SMALL) as lab:
        yield GpuHost(lab.cluster, tmp_path_factory.mktemp("toolkit"))


def test_a_repository_that_another_key_signs_is_refused(host: GpuHost) -> None:
    key = host.folder / "gpgkey"
    key.write_text("-----BEGIN PGP PUBLIC KEY BLOCK-----\n\nnone\n-----END PGP PUBLIC KEY BLOCK-----\n")
    done = by(host, url=TOOLKIT_URL, key=str(key))
    assert done.returncode == 5
    said = next(
        (line for line in done.stderr.splitlines() if line.startswith("error: gpu1: install nvidia")), done.stderr
    )
    assert "nvidia-container-toolkit" in said
    assert re.search(rf"package source: The repository '{TOOLKIT_URL}\S* .*is not signed", said)
    assert not host.sh("command -v nvidia-ctk || :")
    key.write_text("nothing\n")
    done = by(host, url=TOOLKIT_URL, key=str(key))
    assert (done.returncode, f"toolkit.key: {key} is not an ASCII-armored PGP key" in done.stderr) == (2, True)


def test_packages_that_nvidia_did_not_sign_are_refused(host: GpuHost) -> None:
    """The lab's repository signs with a key of its own, which its inventory names in `toolkit.key`."""
    done = by(host, url=TOOLKIT_URL)
    assert done.returncode == 5
    assert re.search(rf"package source: The repository '{TOOLKIT_URL}\S* .*is not signed", done.stderr), done.stderr
    assert not host.sh("command -v nvidia-ctk || :")


def test_from_bare_to_equal_gpus_and_again_after_a_reboot(host: GpuHost) -> None:
    done = host.cluster.setup("--yes")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "its 8 GPUs by the runtime nvidia" in done.stdout
    assert "verify: checking that the container of gpu1 has the GPUs of its host" in done.stderr
    before = host.gpus()
    assert len(before) == 8
    host.lab.reboot("gpu1")
    eventually(host.has_gpus, 60, "its container")
    host.cluster.converged()
    assert host.gpus() == before


def test_a_container_that_lost_its_gpus_is_told(host: GpuHost) -> None:
    """As after `systemctl daemon-reload` under a container that has them by the hook."""
    program = "/usr/local/bin/nvidia-smi"
    host.sh(f"docker exec -i {host.box} sh -c 'cat >{program} && chmod 755 {program}'", input=BROKEN)
    done = host.cluster.setup("--only", "toolkit,container", "--yes")
    host.sh(f"docker exec {host.box} rm {program}")
    assert done.returncode == 5
    assert "gives its container no GPUs: Failed to initialize NVML: Unknown Error" in done.stderr + done.stdout
    assert f"systemctl restart {host.box}.service" in done.stderr + done.stdout


def test_the_engine_tells_who_would_lose_gpus(host: GpuHost) -> None:
    """This lab's engine keeps cgroups itself, so nobody would; what it says of its containers is what others say."""
    front = scripts.text("reload.sh")
    assert host.sh(f"{front}\ngpu_containers") == ""
    systemd = 'docker() { if [ "$1" = info ]; then echo systemd; else command docker "$@"; fi; }'
    assert host.sh(f"{front}\n{systemd}\ngpu_containers") == host.box
    assert host.sh(f"{front}\n{systemd}\nreload_needed {host.box}.service || echo known") == "known"


@pytest.mark.nightly
def test_half_of_it_and_packages_of_the_controller(host: GpuHost) -> None:
    host.sh("apt-get -y -q purge nvidia-container-toolkit >/dev/null")
    check = host.cluster.setup("--check")
    assert check.returncode == 3
    assert "lacks nvidia-container-runtime-hook" in check.stdout
    debs = host.folder / "debs"
    debs.mkdir()
    names = host.sh(f"mkdir -p /root/debs; cd /root/debs; apt-get -q download {PACKAGES} >/dev/null 2>&1; ls").split()
    assert len(names) == 4
    for name in names:
        (debs / name).write_bytes(base64.b64decode(host.sh(f"base64 /root/debs/{name}")))
    host.sh(
        f"apt-get -y -q purge {PACKAGES} >/dev/null; rm -r /root/debs {LIST}; apt-get clean; rm -rf /var/lib/apt/lists/registry*"
    )
    done = by(host, source="packages", packages=str(debs))
    assert done.returncode == 0, done.stdout + done.stderr
    assert "install nvidia-container-toolkit (4 package files from the controller): done" in done.stderr
    host.sh(f"systemctl restart {host.box}")
    eventually(host.has_gpus, 60, "its container")
    assert len(host.gpus()) == 8


def test_teardown_takes_back_what_docker_was_told_and_leaves_the_toolkit(host: GpuHost) -> None:
    config = "/etc/docker/daemon.json"
    assert "nvidia" in host.sh(f"cat {config}")
    done = host.cluster("teardown", "--yes")
    assert done.returncode == 0, done.stdout + done.stderr
    assert host.sh(f"cat {config} 2>/dev/null || echo gone") == "gone"
    assert host.sh("command -v nvidia-ctk") == "/usr/bin/nvidia-ctk"
    # the engine that runs has the runtime still: that is not enough
    assert "nvidia" in host.sh("docker info --format '{{json .Runtimes}}'")
    again = host.cluster.setup("--dry-run", "--only", "toolkit")
    assert "configured only until docker restarts" in again.stdout
