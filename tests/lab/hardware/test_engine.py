"""The simulated hardware in a lab host: below the real /sys and /proc, over a reboot, and nowhere outside."""

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.lab.rig import Lab, made

pytestmark = [pytest.mark.lab, pytest.mark.timeout(600)]
Inside = Callable[[str], str]


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    with made("hardware", tmp_path_factory.mktemp("state"), "--hosts", "1", "--gpus", "a100x8") as up:
        yield up


@pytest.fixture
def inside(lab: Lab) -> Callable[[str], str]:
    """Return what runs a script in the host and gives what it prints."""
    return lambda script: lab.sh("gpu1", script)


def seen(inside: Inside) -> dict[str, str]:
    """What a host shows of its hardware, read in every way there is."""
    return {
        command: inside(command)
        for command in (
            "systemctl is-system-running --wait",
            "nvidia-smi -L",
            "nvidia-smi topo -m",
            "lsmod",
            "ls /sys/class/net /sys/class/infiniband /sys/bus/pci/devices /dev/infiniband",
            "ip -o -4 address show dev bond0 | cut -d: -f2-",  # without its index
            "ip -4 route",
            "cat /proc/net/bonding/bond0 /sys/class/net/bond0/speed /sys/class/net/bond0/bonding/mode",
            "cat /proc/driver/nvidia/version /proc/driver/nvidia/gpus/*/information",
            "show_gids | grep -v fe80",  # newer engines give another MAC at each start
            "lscpu | grep NUMA",
            "grep bond0 /proc/net/route",
            "stat -c %F /dev/nvidia0",
        )
    }


def test_it_is_there_and_is_there_again_after_a_reboot(lab: Lab, inside: Inside) -> None:
    before = seen(inside)
    assert before["systemctl is-system-running --wait"] == "running"
    assert before["nvidia-smi -L"].count("GPU ") == 8
    address = inside("ip -o -4 address show dev bond0").split("inet ")[1].split("/")[0]
    assert f"\t{address}  \tv2\tbond0" in inside("show_gids")
    assert "default via" in before["ip -4 route"]
    assert before["stat -c %F /dev/nvidia0"] == "character special file"
    lab.reboot("gpu1")
    assert seen(inside) == before


def test_an_unused_slot_cannot_be_read(inside: Inside) -> None:
    text = inside("cat /sys/class/infiniband/mlx5_bond_0/ports/1/gid_attrs/types/9 2>&1 || true")
    assert text.endswith("/gid_attrs/types/9: Invalid argument")


def test_interfaces_that_come_and_go_are_seen(inside: Inside) -> None:
    assert inside("test -e /sys/class/net/late0 || echo no") == "no"
    inside("ip link add late0 type veth peer name late1")
    assert inside("cat /sys/class/net/late0/operstate; grep -c late0 /proc/net/dev") == "down\n1"
    inside("ip link delete late0")
    assert "late0" not in inside("ls /sys/class/net")


@pytest.mark.usefixtures("lab")
def test_the_machine_itself_has_none_of_it() -> None:
    assert "simulated-hardware" not in Path("/proc/self/mountinfo").read_text("utf-8")
    assert not os.path.lexists("/var/lib/simulated-hardware")
    assert not Path("/proc/net/bonding").exists() or "simulated" not in Path("/proc/net/bonding/bond0").read_text(
        "utf-8"
    )


def test_a_module_that_is_unloaded_is_so_for_every_reader(inside: Inside) -> None:
    try:
        inside("modprobe -r mlx5_ib")
        assert inside("ls /sys/class | grep -c infiniband || true") == "0"
        assert "mlx5_ib" not in inside("lsmod; ls /sys/module")
    finally:
        inside("modprobe mlx5_ib")
    assert inside("ls /sys/class/infiniband") == "mlx5_bond_0"
