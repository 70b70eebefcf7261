"""The toolkit stage on a simulated GPU host: from bare to equal GPUs in the container, after a reboot as well, and offline."""

import json
import re
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from taco_launch.lab.repository import TOOLKIT_URL
from taco_launch.setup import scripts
from tests.conftest import eventually
from tests.lab.conftest import LabUser, lab_with_image

pytestmark = [pytest.mark.lab, pytest.mark.timeout(300)]

PACKAGES = "nvidia-container-toolkit nvidia-container-toolkit-base libnvidia-container-tools libnvidia-container1"
LIST = "/etc/apt/sources.list.d/taco-launch-nvidia-container-toolkit.list"
BROKEN = """#!/bin/sh
echo 'Failed to initialize NVML: Unknown Error'
exit 255
"""


@dataclass(frozen=True)
class GpuHost:
    """A host of a lab with eight GPUs, bare at first; the tests of this file go on where the one before ended."""

    lab: LabUser
    folder: Path

    @property
    def box(self) -> str:
        return f"taco-launch-{self.lab.name}"

    def sh(self, script: str, **more: Any) -> str:
        done = self.lab.inside("gpu1", "/bin/sh", "-c", script, **more)
        assert done.returncode == 0, (script, done.stdout, done.stderr)
        return done.stdout.strip()

    def setup(self, *words: str) -> "subprocess.CompletedProcess[str]":
        return self.lab.taco("-i", f"lab:{self.lab.name}", "setup", *words, seconds=280)

    def by(self, **toolkit: str) -> "subprocess.CompletedProcess[str]":
        """Set docker and toolkit up as another inventory says."""
        ours = {
            "user": "root",
            "identity_file": f"{self.lab.folder}/id_ed25519",
            "known_hosts": f"{self.lab.folder}/known_hosts",
        }
        of = {
            "cluster": "c",
            "ssh": ours,
            "container": {"image": "registry:5000/train:1"},
            "toolkit": toolkit,
            "hosts": {"gpu1": {"address": self.lab.host("gpu1")["address"]}},
        }
        file = self.folder / "cluster.yaml"
        file.write_text(json.dumps(of))
        return self.lab.taco("-i", str(file), "setup", "--yes", "--only", "docker,toolkit", seconds=200)

    def gpus(self) -> tuple[list[str], list[str]]:
        """List the GPUs of the host, and those of the training container."""
        inside = self.sh(f"docker exec {self.box} nvidia-smi -L").splitlines()
        return self.sh("nvidia-smi -L").splitlines(), inside


@pytest.fixture(scope="module")
def host(tmp_path_factory: pytest.TempPathFactory) -> Iterator[GpuHost]:
    with lab_with_image(tmp_path_factory, "toolkit", "--hosts", "1", "--gpus", "v100x8") as lab:
        yield GpuHost(lab, tmp_path_factory.mktemp("toolkit"))


def test_a_repository_that_another_key_signs_is_refused(host: GpuHost) -> None:
    key = host.folder / "gpgkey"
    key.write_text("-----BEGIN PGP PUBLIC KEY BLOCK-----\n\nnone\n-----END PGP PUBLIC KEY BLOCK-----\n")
    done = host.by(url=TOOLKIT_URL, key=str(key))
    assert done.returncode == 5
    said = next(
        (line for line in done.stderr.splitlines() if line.startswith("error: gpu1: install nvidia")), done.stderr
    )
    assert "nvidia-container-toolkit" in said
    assert re.search(rf"package source: The repository '{TOOLKIT_URL}\S* .*is not signed", said)
    assert not host.sh("command -v nvidia-ctk || :")
    key.write_text("nothing\n")
    done = host.by(url=TOOLKIT_URL, key=str(key))
    assert (done.returncode, f"toolkit.key: {key} is no PGP key in text form" in done.stderr) == (2, True)


def test_from_bare_to_equal_gpus_and_again_after_a_reboot(host: GpuHost) -> None:
    done = host.setup("--yes")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "its 8 GPUs by the runtime nvidia" in done.stdout
    assert "proof: does the container of gpu1 have the GPUs of its host" in done.stderr
    outside, inside = host.gpus()
    assert outside == inside
    assert len(outside) == 8
    host.lab.reboot("gpu1")
    eventually(
        lambda: host.sh(f"docker exec {host.box} nvidia-smi -L 2>&1 || :").count("UUID") == 8, 60, "its container"
    )
    check = host.setup("--check")
    assert (check.returncode, check.stdout) == (0, ""), check.stderr
    assert host.gpus() == (outside, outside)


def test_a_container_that_lost_its_gpus_is_told(host: GpuHost) -> None:
    """As after `systemctl daemon-reload` under a container that has them by the hook."""
    program = "/usr/local/bin/nvidia-smi"
    host.sh(f"docker exec -i {host.box} sh -c 'cat >{program} && chmod 755 {program}'", input=BROKEN)
    done = host.setup("--only", "toolkit,container", "--yes")
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


def test_half_of_it_and_packages_of_the_controller(host: GpuHost) -> None:
    host.sh("apt-get -y -q purge nvidia-container-toolkit >/dev/null")
    check = host.setup("--check")
    assert check.returncode == 3
    assert "there is no nvidia-container-runtime-hook" in check.stdout
    debs = host.folder / "debs"
    debs.mkdir()
    names = host.sh(f"mkdir -p /root/debs; cd /root/debs; apt-get -q download {PACKAGES} >/dev/null 2>&1; ls").split()
    assert len(names) == 4
    for name in names:
        argv = host.lab.argv("lab", "exec", "--name", host.lab.name, "gpu1", "--", "cat", f"/root/debs/{name}")
        data = subprocess.run(argv, env=host.lab.env, capture_output=True, timeout=60, check=True).stdout
        (debs / name).write_bytes(data)
    host.sh(
        f"apt-get -y -q purge {PACKAGES} >/dev/null; rm -r /root/debs {LIST}; apt-get clean; rm -rf /var/lib/apt/lists/registry*"
    )
    done = host.by(source="packages", packages=str(debs))
    assert done.returncode == 0, done.stdout + done.stderr
    assert "install nvidia-container-toolkit (4 packages of the controller): done" in done.stderr
    host.sh(f"systemctl restart {host.box}")
    eventually(
        lambda: host.sh(f"docker exec {host.box} nvidia-smi -L 2>&1 || :").count("UUID") == 8, 60, "its container"
    )
    outside, inside = host.gpus()
    assert outside == inside


def test_teardown_takes_back_what_docker_was_told_and_leaves_the_toolkit(host: GpuHost) -> None:
    config = "/etc/docker/daemon.json"
    assert "nvidia" in host.sh(f"cat {config}")
    done = host.lab.taco("-i", f"lab:{host.lab.name}", "teardown", "--yes")
    assert done.returncode == 0, done.stdout + done.stderr
    assert host.sh(f"cat {config} 2>/dev/null || echo gone") == "gone"
    assert host.sh("command -v nvidia-ctk") == "/usr/bin/nvidia-ctk"
    # the engine that runs has the runtime still: that is not enough
    assert "nvidia" in host.sh("docker info --format '{{json .Runtimes}}'")
    again = host.setup("--dry-run", "--only", "toolkit")
    assert "which it has only until it starts anew" in again.stdout
