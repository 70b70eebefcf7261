"""What is put into a host: the same twice, another for another host, and called simulated throughout."""

import subprocess
from collections.abc import Callable
from importlib import resources
from itertools import combinations
from pathlib import Path
from shutil import which

import pytest

from taco_launch.lab import hardware
from tests.lab.hardware.hosts import Host

PROGRAMS = sorted(Path(str(resources.files(hardware).joinpath("programs"))).iterdir())


def contents(machine: str, host: int) -> dict[str, bytes]:
    return {path: content for path, _, content in hardware.files(machine, host)}


@pytest.mark.parametrize("machine", hardware.MACHINES)
def test_the_same_twice_and_another_for_another_host(machine: str) -> None:
    first, again, second = contents(machine, 1), contents(machine, 1), contents(machine, 2)
    assert first == again
    assert first.keys() == second.keys()
    different = {path for path in first if first[path] != second[path]}
    for path in first:
        if path.endswith(("/uuid", "/guid")):
            assert path in different
    own = [first[path] for path in first if path.endswith(("/uuid", "/guid"))]
    assert len(set(own)) == len(own)


def test_what_cannot_be_is_refused() -> None:
    with pytest.raises(KeyError):
        hardware.files("dgx9", 1)
    with pytest.raises(ValueError, match="from 1"):
        hardware.files("pcie4", 0)


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda path: path.name)
def test_each_program_says_that_it_is_simulated(program: Path) -> None:
    head = program.read_text("utf-8").splitlines()[:2]
    assert any("simulated" in line.lower() for line in head)


def test_the_host_says_what_is_simulated() -> None:
    named = {
        machine: contents(machine, 1)["/etc/taco-launch/simulated"].decode().split() for machine in hardware.MACHINES
    }
    assert named["pcie4"] == ["gpu", "topology", "modules", "numa"]
    assert named["v100x8"] == ["gpu", "topology", "modules", "numa", "rdma"]
    assert named["a100x8"] == named["h100x8"] == ["gpu", "topology", "modules", "numa", "rdma", "bond"]


@pytest.mark.skipif(which("shellcheck") is None, reason="cannot: there is no shellcheck")
def test_shellcheck() -> None:
    scripts = [path.name for path in PROGRAMS if path.read_bytes().startswith(b"#!/bin/sh")]
    assert len(scripts) >= 8
    found = subprocess.run(
        ["shellcheck", "-x", "-a", *scripts], cwd=PROGRAMS[0].parent, capture_output=True, text=True, check=False
    )
    assert found.returncode == 0, found.stdout


@pytest.mark.parametrize("machine", hardware.MACHINES)
def test_the_paths_of_sysfs_give_the_distances_that_topo_prints(machine: str, untouched: Callable[[str], Host]) -> None:
    """By the rule that NCCL 2.4 reads paths with: how many parts are the same, of how many."""
    host = untouched(machine)
    buses = host.ok("nvidia-smi --query-gpu=pci.bus_id --format=csv,noheader").lower().split()
    devices = [host.root / "sys/bus/pci/devices" / bus.removeprefix("0000") for bus in buses]
    devices += [each / "device" for each in sorted((host.root / "sys/class/infiniband").glob("*"))]
    rows = [line.split("\t")[1:] for line in host.ok("nvidia-smi topo -m").splitlines()[1 : len(devices) + 1]]
    seen = set()
    for (i, one), (j, other) in combinations(enumerate(devices), 2):
        assert rows[i][j] == rows[j][i]
        if rows[i][j].startswith("NV"):
            continue
        paths = [each.resolve().relative_to(host.root / "sys/devices").parts for each in (one, other)]
        common = 0
        while paths[0][common] == paths[1][common]:
            common += 1
        nodes = {(each / "numa_node").read_text("utf-8") for each in (one, other)}
        if common < 2:
            found = "PHB" if common else "NODE" if len(nodes) == 1 else "SYS"
        else:
            found = "PIX" if common == max(map(len, paths)) - 2 else "PXB"
        assert rows[i][j] == found
        seen.add(found)
    assert (
        seen
        == {
            "v100x8": {"PIX", "PHB", "SYS"},
            "a100x8": {"PXB", "NODE", "SYS"},
            "h100x8": {"PIX", "NODE", "SYS"},
            "pcie4": {"PHB", "NODE", "SYS"},
        }[machine]
    )
