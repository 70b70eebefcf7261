"""The simulated hardware in a lab host: below the real /sys and /proc, over a reboot, and nowhere outside."""

import os
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

pytestmark = [pytest.mark.lab, pytest.mark.timeout(300)]
LAB = f"hardware-{os.environ.get('PYTEST_XDIST_WORKER', 'test')}"  # each process of pytest has its own


def outside(argv: Sequence[str], seconds: float = 250) -> str:
    done = subprocess.run(argv, capture_output=True, text=True, check=False, timeout=seconds)
    assert done.returncode == 0, (argv, done.stdout, done.stderr)
    return done.stdout


def lab(*arguments: str) -> str:
    return outside([sys.executable, "-m", "taco_launch", "lab", *arguments])


def inside(command: str) -> str:
    return outside(["docker", "exec", f"taco-lab-{LAB}-gpu1", "sh", "-c", command])


@pytest.fixture(scope="module", autouse=True)
def _up() -> Iterator[None]:
    lab("up", "--name", LAB, "--hosts", "1", "--gpus", "a100x8")
    yield
    lab("down", "--name", LAB)


def seen() -> dict[str, str]:
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


def test_it_is_there_and_is_there_again_after_a_reboot() -> None:
    before = seen()
    assert before["systemctl is-system-running --wait"] == "running\n"
    assert before["nvidia-smi -L"].count("GPU ") == 8
    address = inside("ip -o -4 address show dev bond0").split("inet ")[1].split("/")[0]
    assert f"\t{address}  \tv2\tbond0" in inside("show_gids")
    assert "default via" in before["ip -4 route"]
    assert before["stat -c %F /dev/nvidia0"] == "character special file\n"
    subprocess.run(["docker", "exec", f"taco-lab-{LAB}-gpu1", "systemctl", "reboot"], check=False, timeout=60)
    booted = inside("cat /proc/1/stat") if _back() else ""
    assert booted
    assert seen() == before


def _back() -> bool:
    """Wait for the host that reboots: first it ends, then systemd is up again."""
    time.sleep(2)
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        argv = ["docker", "exec", f"taco-lab-{LAB}-gpu1", "systemctl", "is-system-running", "--wait"]
        if subprocess.run(argv, capture_output=True, text=True, check=False, timeout=60).stdout == "running\n":
            return True
        time.sleep(0.2)
    return False


def test_an_unused_slot_cannot_be_read() -> None:
    text = inside("cat /sys/class/infiniband/mlx5_bond_0/ports/1/gid_attrs/types/9 2>&1 || true")
    assert text.endswith("/gid_attrs/types/9: Invalid argument\n")


def test_interfaces_that_come_and_go_are_seen() -> None:
    assert inside("test -e /sys/class/net/late0 || echo no") == "no\n"
    inside("ip link add late0 type veth peer name late1")
    assert inside("cat /sys/class/net/late0/operstate; grep -c late0 /proc/net/dev") == "down\n1\n"
    inside("ip link delete late0")
    assert "late0" not in inside("ls /sys/class/net")


def test_the_machine_itself_has_none_of_it() -> None:
    assert "simulated-hardware" not in Path("/proc/self/mountinfo").read_text("utf-8")
    assert not os.path.lexists("/var/lib/simulated-hardware")
    assert not Path("/proc/net/bonding").exists() or "simulated" not in Path("/proc/net/bonding/bond0").read_text(
        "utf-8"
    )


def test_a_module_that_is_unloaded_is_so_for_every_reader() -> None:
    try:
        inside("modprobe -r mlx5_ib")
        assert inside("ls /sys/class | grep -c infiniband || true") == "0\n"
        assert "mlx5_ib" not in inside("lsmod; ls /sys/module")
    finally:
        inside("modprobe mlx5_ib")
    assert inside("ls /sys/class/infiniband") == "mlx5_bond_0\n"
