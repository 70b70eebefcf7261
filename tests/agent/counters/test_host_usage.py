"""What the kernel counts of real programs, and what a nvidia-smi says: a busy thread, one that waits for a disk, an idle one."""

import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from taco_launch.agent.counters import gpu_usage, host_usage, nics
from taco_launch.agent.host import processes
from taco_launch.core.model.job_view import Usage, check_usage
from tests.conftest import eventually
from tests.support.smi import GPUS

# Stands for a data loader that one thread does all of.
BUSY = "while True: sum(range(1000))"
# Each write has to be on the disk before the next one.
DISK = """import os, sys
file = os.open(sys.argv[1], os.O_WRONLY | os.O_CREAT | os.O_SYNC)
while True: os.pwrite(file, b"x" * 65536, 0)"""
IDLE = "import time; time.sleep(1000)"
SECONDS = 1.5

Start = Callable[..., tuple[int, int]]


@pytest.fixture
def start() -> Iterator[Start]:
    """Starts Python with a script; gives its process."""
    started: list[subprocess.Popen[bytes]] = []

    def begin(script: str, *words: str) -> tuple[int, int]:
        process = subprocess.Popen([sys.executable, "-S", "-c", script, *words])
        started.append(process)
        found = eventually(lambda: processes.identify(process.pid))
        return found.pid, found.start

    yield begin
    for process in started:
        process.kill()
        process.wait()


def used(*members: tuple[int, int]) -> Usage:
    """Measure for some time; the numbers are those that a supervisor accepts."""
    before = host_usage.read(members)
    time.sleep(SECONDS)
    found = host_usage.between(before, host_usage.read(members))
    check_usage(found)
    return found


def test_a_busy_thread(start: Start) -> None:
    found = used(start(BUSY))
    assert found.job_cpus is not None
    assert found.thread is not None
    assert found.job_cpus > 0.05, "an idle one has less; other tests may have most of the CPU"
    assert found.thread == pytest.approx(min(1.0, found.job_cpus))
    assert found.cpu is not None
    assert found.cpu * found.cpus >= 0.9 * found.job_cpus


def test_an_idle_program(start: Start) -> None:
    process = start(IDLE)
    time.sleep(0.3)  # Python itself has to start
    found = used(process)
    assert found.job_cpus is not None
    assert found.job_cpus < 0.05
    assert found.seconds == pytest.approx(SECONDS, rel=0.5)


def test_a_program_that_waits_for_its_disk(start: Start, tmp_path: Path) -> None:
    """Its CPU time is small; waiting shows as I/O wait where a CPU has nothing else to do meanwhile."""
    found = used(start(DISK, str(tmp_path / "file")))
    assert found.iowait is not None
    assert found.thread is not None
    assert found.thread < 0.9
    if found.cpu is not None and found.cpu < 0.5:
        assert found.iowait > 0


def test_a_process_that_ends_meanwhile_counts_no_more(start: Start) -> None:
    gone = start(IDLE)
    before = host_usage.read([gone, (1 << 22, 1)])
    after = host_usage.read([gone])._replace(time=before.time + 10, job={})
    assert host_usage.between(before, after).job_cpus == 0


def test_the_cpus_of_proc_stat() -> None:
    then = "cpu  9 9 9 9 9 9 9 9\ncpu0 100 0 50 800 50 0 0 0 0 0\ncpu1 0 0 0 0 0 0 0 0 0 0\nintr 5\n"
    now = "cpu  9 9 9 9 9 9 9 9\ncpu0 198 0 50 801 51 0 0 0 0 0\ncpu1 10 0 0 60 30 0 0 0 0 0\nintr 5\n"
    first = host_usage.Reading(0.0, host_usage.cpu_ticks(then), 4096, {"eth0": (0, 9), "eth1": (5, None)}, None)
    last = host_usage.Reading(10.0, host_usage.cpu_ticks(now), 14096, {"eth0": (1000, 4), "eth1": (25, 9)}, None)
    found = host_usage.between(first, last)
    assert (found.cpus, found.full_cpus) == (2, 1)
    assert found.cpu == pytest.approx((0.98 + 0.1) / 2)
    assert found.iowait == pytest.approx((0.01 + 0.3) / 2)
    assert (found.swap, found.received, found.sent) == (1000, 102, 0), "a counter that fell was set to 0"
    assert (found.rdma_received, found.rdma_sent) == (None, None)
    assert (found.job_cpus, found.thread, found.gpu) == (None, None, None)
    assert host_usage.cpu_ticks("cpu0 1 2\nwrong") == {}
    assert host_usage.swapped_bytes("nr_free 1\n") is None


def test_the_ports_of_hcas_are_told_apart() -> None:
    first = host_usage.Reading(0.0, {}, None, {"eth0": (0, 0), "mlx5_0:1": (0, 0), "mlx5_1:1": (0, None)}, None)
    links = {"eth0": (100, 20), "mlx5_0:1": (1000, 50), "mlx5_1:1": (3000, None)}
    found = host_usage.between(first, host_usage.Reading(10.0, {}, None, links, None))
    assert (found.received, found.sent) == (410, 7)
    assert (found.rdma_received, found.rdma_sent) == (400, 5)


def test_a_link_near_its_speed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, speed, device in (("eth0", "1000\n", True), ("docker0", "10000\n", False), ("bond0", "-1\n", False)):
        folder = tmp_path / "net" / name
        (folder / "statistics").mkdir(parents=True)
        (folder / "speed").write_text(speed, "ascii")
        if device:
            (folder / "device").mkdir()
    port = tmp_path / "infiniband" / "mlx5_0" / "ports" / "1"
    port.mkdir(parents=True)
    (port / "rate").write_text("100 Gb/sec (4X EDR)\n", "ascii")
    assert [one.name for one in nics.carriers(tmp_path)] == ["eth0", "mlx5_0:1"]
    speeds = [nics.link_speed(name, tmp_path) for name in ("eth0", "bond0", "gone", "mlx5_0:1")]
    assert speeds == [125e6, None, None, 12.5e9]
    monkeypatch.setattr(nics, "link_speed", lambda _name: 125e6)
    first = host_usage.Reading(0.0, {}, None, {"eth0": (0, 0)}, None)
    last = first._replace(time=10.0, links={"eth0": (100, 1_200_000_000)})
    assert host_usage.between(first, last).link == pytest.approx(0.96)


ROWS = """\
GPU-a, 38, 20000, 80000, 311.50, 66, 0x0000000000000000
GPU-b, 100, 60000, 80000, [N/A], 71, 0x0000000000000040
GPU-c, [N/A], [N/A], [N/A], [Unknown Error], ERR!, [N/A]
Field "x" is not a valid field to query.
GPU-d, -5, nan, 80000, 1e99, 71, 1
"""


def test_what_nvidia_smi_says() -> None:
    found = gpu_usage.parse(ROWS)
    assert found == {
        "GPU-a": (0.38, 0.25, 311.5, 66, 0),
        "GPU-b": (1, 0.75, None, 71, 1),
        "GPU-c": (None, None, None, None, None),
        "GPU-d": (None, None, None, 71, 0),
    }
    host = gpu_usage.added(Usage(1, 10), list(found.values())[:3])
    assert (host.gpus, host.gpu, host.gpu_memory, host.power, host.temperature) == (3, 0.69, 0.5, 311.5, 71)
    assert host.throttled == 0.5


def test_one_nvidia_smi_answers_again_and_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Simulated: a program that answers as the tool does."""
    smi = tmp_path / "nvidia-smi"
    rows = "".join(f"{uuid}, $use, 1, 10, 50, 40, 0x0\\n" for uuid in GPUS[:2])
    smi.write_text(f'#!/bin/sh\nfor use in 10 20; do printf "{rows}"; sleep 0.2; done\nexec sleep 1000\n', "ascii")
    smi.chmod(0o700)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    sampler = gpu_usage.GpuSampler([GPUS[1]], 10)
    (first,) = eventually(sampler.read)
    (last,) = eventually(sampler.read)
    assert (first.gpu, last.gpu) == (0.1, 0.2)
    assert sampler.read() == []
    sampler.close()
    assert sampler.read() == []


@pytest.mark.parametrize("uuids", [(), GPUS])
def test_without_nvidia_smi(uuids: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    sampler = gpu_usage.GpuSampler(uuids, 10)
    assert sampler.read() == []
    sampler.close()
