"""Faults: each does what it says to the host, shows in `lab status`, and is undone."""

import subprocess
import time

import pytest

from taco_launch.lab.faults import FAULTS
from tests.conftest import eventually
from tests.lab.rig import Lab, docker, seconds_of
from tests.support.patience import patience

pytestmark = [pytest.mark.lab, pytest.mark.timeout(600)]

DISK = "/var/lib/taco-launch"


def reaches(lab: Lab, host: str) -> bool:
    return lab.inside("gpu1", "ping", "-c", "1", "-W", "1", host).returncode == 0


def test_power(healthy: Lab) -> None:
    assert healthy.inside("gpu2", "sh", "-c", f"echo kept >{DISK}/file").returncode == 0
    assert "undo: taco-launch lab fault" in healthy.fault("gpu2", "power-off")
    assert healthy.host("gpu2")["state"] == "off"
    assert healthy.host("gpu2")["faults"] == ["power-off"]
    assert not reaches(healthy, "gpu2")
    for words in (("exec", "gpu2", "--", "true"), ("fault", "gpu2", "partition")):
        refused = healthy.verb(*words)
        assert refused.returncode == 2
        assert "gpu2 is off" in refused.stderr
        assert f"hint: taco-launch lab fault --name {healthy.name} gpu2 power-on" in refused.stderr
    up = healthy.up().stderr
    assert "gpu2 is off, and lab up does not change that" in up
    assert healthy.host("gpu2")["state"] == "off"
    healthy.fault("gpu2", "power-on")
    eventually(lambda: healthy.answers("gpu2"), 30, "gpu2 to boot")
    assert healthy.inside("gpu2", "cat", f"{DISK}/file").stdout == "kept\n"
    assert healthy.verb("fault", "gpu2", "power-on").returncode == 2  # it is on


def test_reboot(healthy: Lab) -> None:
    assert healthy.inside("gpu2", "sh", "-c", f"echo kept >{DISK}/file").returncode == 0
    healthy.fault("gpu2", "partition")
    healthy.reboot("gpu2")
    assert healthy.host("gpu2")["faults"] == []
    assert healthy.inside("gpu2", "cat", f"{DISK}/file").stdout == "kept\n"
    # sysctls of the machine are closed after every boot
    assert healthy.inside("gpu2", "sh", "-c", "echo 0 >/proc/sys/kernel/panic").returncode != 0


def test_pause(healthy: Lab) -> None:
    healthy.fault("gpu2", "pause")
    assert healthy.host("gpu2")["state"] == "paused"
    assert reaches(healthy, "gpu2")  # the kernel still answers, no process does
    assert not healthy.answers("gpu2")
    healthy.fault("gpu2", "resume")
    assert healthy.answers("gpu2")


def test_partition(healthy: Lab) -> None:
    healthy.fault("gpu2", "partition")
    assert healthy.host("gpu2")["faults"] == ["partition"]
    assert not reaches(healthy, "gpu2")
    assert "timed out" in healthy.ssh("gpu2", "true").stderr.lower()  # silence, not a refusal
    healthy.fault("gpu2", "heal")
    assert reaches(healthy, "gpu2")
    assert healthy.answers("gpu2")


@pytest.mark.nightly
def test_a_cut_heals_by_itself_even_when_the_command_is_gone(healthy: Lab) -> None:
    assert seconds_of(lambda: healthy.fault("gpu2", "cut", "500ms")) > 0.5
    assert reaches(healthy, "gpu2")
    process = subprocess.Popen(
        healthy.argv("lab", "fault", "--name", healthy.name, "gpu2", "cut", f"{patience(4):.0f}s"), env=healthy.env
    )
    eventually(lambda: healthy.host("gpu2")["faults"] == ["cut"], 4, "the cut")
    process.kill()
    process.wait()
    assert not reaches(healthy, "gpu2")
    eventually(lambda: healthy.host("gpu2")["faults"] == [], 20, "its end")
    assert healthy.answers("gpu2")


def test_a_connection_outlives_a_cut(healthy: Lab) -> None:
    argv = ("ssh", "-F", str(healthy.folder / "ssh_config"), "gpu2", "sleep 2; echo alive")
    with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True) as process:
        time.sleep(0.5)
        healthy.fault("gpu2", "cut", "1s")
        out, _ = process.communicate(timeout=patience(20))
    assert out == "alive\n"


def test_slow_link(healthy: Lab) -> None:
    send = "head -c 1500000 /dev/zero"  # 12 Mbit
    healthy.fault("gpu2", "slow-link", "8mbit")
    assert healthy.host("gpu2")["faults"] == ["slow-link 8Mbit"]
    slow = seconds_of(lambda: healthy.ssh("gpu2", send))
    healthy.fault("gpu2", "heal")
    assert slow > 1.2  # less the bucket's 1 Mbit
    assert healthy.host("gpu2")["faults"] == []


def test_disk_full(healthy: Lab) -> None:
    assert healthy.inside("gpu2", "sh", "-c", f"head -c 100000 /dev/zero >{DISK}/data").returncode == 0
    healthy.fault("gpu2", "disk-full")
    assert healthy.host("gpu2")["faults"] == ["disk-full"]
    full = healthy.inside("gpu2", "dd", "if=/dev/zero", f"of={DISK}/more", "bs=4096", "count=1")
    assert "No space left on device" in full.stderr
    healthy.fault("gpu2", "disk-full")  # twice does no harm
    healthy.fault("gpu2", "disk-free")
    assert healthy.inside("gpu2", "dd", "if=/dev/zero", f"of={DISK}/more", "bs=4096", "count=1000").returncode == 0
    assert healthy.inside("gpu2", "stat", "-c", "%s", f"{DISK}/data").stdout == "100000\n"
    assert healthy.inside("gpu2", "ls", "-A", DISK).stdout.split() == sorted(
        name for name in healthy.inside("gpu2", "ls", DISK).stdout.split()
    )
    refused = healthy.verb("fault", "registry", "disk-full")
    assert (refused.returncode, "no disk of its own" in refused.stderr) == (2, True)


def test_sshd(healthy: Lab) -> None:
    healthy.fault("registry", "stop-sshd")
    assert healthy.host("registry")["faults"] == ["stop-sshd"]
    assert "Connection refused" in healthy.ssh("registry", "true").stderr
    healthy.fault("registry", "start-sshd")
    assert healthy.answers("registry")


def test_firewall(healthy: Lab) -> None:
    catalog = ("curl", "--silent", "--max-time", "3", "https://registry:5000/v2/")
    assert healthy.inside("gpu1", *catalog).returncode == 0
    healthy.fault("registry", "firewall")
    assert healthy.inside("gpu1", *catalog).returncode == 7  # curl(1): could not connect
    assert healthy.answers("registry")
    assert reaches(healthy, "registry")
    healthy.fault("registry", "no-firewall")
    assert healthy.inside("gpu1", *catalog).returncode == 0


def test_clock_skew(healthy: Lab) -> None:
    def off() -> float:
        return float(healthy.ssh("gpu2", "date +%s").stdout) - time.time()

    assert abs(off()) < patience(5)
    healthy.fault("gpu2", "clock-skew", "-2h")
    assert healthy.host("gpu2")["faults"] == ["clock-skew -7200"]
    assert abs(off() + 7200) < patience(5)
    took = float(healthy.ssh("gpu2", "date +%s.%N; sleep 1; date +%s.%N").stdout.split()[-1]) - time.time()
    assert abs(took + 7200) < patience(5)  # it continues, from there
    healthy.fault("gpu2", "clock-right")
    assert abs(off()) < patience(5)


@pytest.mark.parametrize("fault", [fault.name for fault in FAULTS if fault.seen and fault.name != "cut"])
def test_every_fault_shows_and_is_undone(healthy: Lab, fault: str) -> None:
    chosen = next(each for each in FAULTS if each.name == fault)
    healthy.fault("gpu2", fault, *{"RATE": ["100mbit"], "PERCENT": ["20"]}.get(chosen.argument, []))
    assert [words.split()[0] for words in healthy.host("gpu2")["faults"]] == [fault]
    healthy.fault("gpu2", chosen.undo)
    healthy.fault("gpu2", chosen.undo)  # twice does no harm
    assert healthy.host("gpu2")["faults"] == []


def test_faults_touch_labelled_containers_only(healthy: Lab) -> None:
    image = docker("inspect", "--format", "{{.Image}}", healthy.container("gpu1"))
    stranger = docker("run", "--detach", "--name", healthy.container("gpu3"), image, "sleep", "60")
    try:
        refused = healthy.verb("fault", "gpu3", "power-off")
        assert refused.returncode == 2
        assert "has no host 'gpu3'" in refused.stderr
        assert docker("inspect", "--format", "{{.State.Status}}", stranger) == "running"
    finally:
        docker("rm", "--force", stranger)
