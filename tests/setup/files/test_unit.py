"""The systemd unit of the training container, and the files beside it."""

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from taco_launch.core.model.host import paths
from taco_launch.setup.files import unit
from taco_launch.setup.files.container_definition import Definition


def definition(cluster: str = "hcc", devices: tuple[str, ...] = ()) -> Definition:
    return Definition(cluster, "train:1", "sha256:1", (), devices, ())


def test_it_waits_for_the_devices_and_then_starts_the_container() -> None:
    text = unit.unit(definition(devices=("/dev/infiniband/uverbs0", "/dev/nvidia0")))
    lines = text.splitlines()
    wait = "/bin/sh /etc/taco-launch/hcc/wait.sh 300 /var/lib/taco-launch/containers/hcc /dev/infiniband/uverbs0 /dev/nvidia0"
    assert f"ExecStartPre={wait}" in lines
    assert "ExecStart=/bin/sh -c 'exec docker start --attach taco-launch-hcc'" in lines
    assert "Restart=always" in lines
    after = next(line for line in lines if line.startswith("After="))
    needed = {
        "docker.service",
        "openibd.service",
        "nvidia-persistenced.service",
        "nv_peer_mem.service",
        "rc-local.service",
    }
    assert needed <= set(after[6:].split())
    # systemd ends a start that takes longer than this: the wait has to fit in
    limit = re.search(r"^TimeoutStartSec=(\d+)$", text, re.MULTILINE)
    assert limit is not None
    assert int(limit[1]) > unit.DEVICE_SECONDS


def test_nothing_but_its_devices_differs_from_host_to_host() -> None:
    assert unit.unit(definition()) == unit.unit(definition())
    assert unit.unit(definition()) != unit.unit(definition(devices=("/dev/nvidia0",)))
    assert unit.unit(definition()) != unit.unit(definition("other"))


@pytest.mark.parametrize("cluster", ["hcc", "A.b-c_9"])
def test_names_stand_in_it_as_they_are(cluster: str) -> None:
    """No `%`, `$`, quote or blank of ours, each of which would mean something to systemd."""
    text = unit.unit(definition(cluster, ("/dev/infiniband/uverbs0",)))
    assert not re.search(r"[%$\"\\]", text)
    assert f"--attach {paths.container(cluster)}'" in text
    assert text.endswith("\n")


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd-analyze: not found")
def test_systemd_understands_it(tmp_path: Path) -> None:
    file = tmp_path / "taco-launch-hcc.service"
    file.write_text(unit.unit(definition(devices=("/dev/nvidia0",))))
    done = subprocess.run(("systemd-analyze", "verify", str(file)), capture_output=True, text=True, check=False)
    assert not [line for line in done.stderr.splitlines() if file.name in line and "not found" not in line.lower()]


def test_its_files_lie_where_the_unit_looks() -> None:
    found = {file.path: file for file in unit.files(definition())}
    assert set(found) == {paths.main_script("hcc"), unit.wait_script("hcc"), paths.unit_file("hcc")}
    assert not [file for file in found.values() if file.mode != 0o644 or file.secret]
