"""What only a health check reads: the answers of tools, and what is made of one that is cut, refused or not understood."""

import json
import os
from pathlib import Path
from typing import Any

from taco_launch.core.facts.health import parse_health
from taco_launch.core.facts.parse import parse
from taco_launch.core.facts.text.sections import Sections
from taco_launch.core.model.codec import to_json
from taco_launch.core.model.host.fact_value import Absent, Unknown
from taco_launch.core.model.host.health import (
    ErrorCounter,
    GpuMemory,
    HealthFacts,
    MemoryErrors,
    Mount,
    NvLinks,
    Xid,
)
from taco_launch.core.model.host.paths import DRAIN
from taco_launch.core.model.slots import Drain
from tests.support.host_facts import known
from tests.support.probe_answers import answer
from tests.support.shells import SCRIPT, each_shell, run, tool

GONE = ("", 127, "it: not found")
LOG = """[    1.500000] NVRM: loading NVIDIA UNIX x86_64 Kernel Module
[  100.250000] NVRM: Xid (PCI:0000:1b:00): 79, pid='<unknown>', GPU has fallen off the bus.
[  100.250000] gpu1 kernel: NVRM: Xid (PCI:0000:1b:00): 79, pid='<unknown>', GPU has fallen off the bus.
[  101.000000] NVRM: Xid (PCI:0000:1c:00): 31, pid=7, name=python, Ch 00000008
"""


def look(uptime: str, symbol: int, carrier: int = 2) -> tuple[str, int, str]:
    path = "/sys/class/infiniband/mlx5_0/ports/1"
    text = f"/proc/uptime:{uptime} 10.00\n{path}/counters/symbol_error:{symbol}\n{path}/hw_counters/out_of_sequence:0\n"
    return f"{text}/sys/class/net/eth0/carrier_changes:{carrier}\n/sys/class/net/eth0/statistics/rx_errors:N/A", 2, ""


def read(**told: Any) -> HealthFacts:
    sections: Sections = answer(**{"health_before": GONE, **told})
    return known(parse_health(sections))


def test_xids_that_journal_and_buffer_both_have_are_one() -> None:
    found = read(health_xids=LOG).xids
    assert isinstance(found, tuple)
    assert [(one.number, one.device, one.seconds) for one in found] == [
        (79, "0000:1b:00", 100.25),
        (31, "0000:1c:00", 101.0),
    ]
    assert found[0] == Xid(79, "0000:1b:00", 100.25, "pid='<unknown>', GPU has fallen off the bus.")
    assert read(health_xids="").xids == ()
    of_mig = read(health_xids="kernel: NVRM: Xid (PCI:0000:1b:00 GPU-I:05): 95, pid=1, contained").xids
    assert of_mig == (Xid(95, "0000:1b:00", 0.0, "pid=1, contained"),)
    for odd in ("[ 1.0] NVRM: Xid of a new form", "log starts at 1036800"):
        assert isinstance(read(health_xids=odd).xids, Unknown), "it is not known that there was none"
    refused = read(health_xids=("", 1, "dmesg: read kernel buffer failed: Operation not permitted")).xids
    assert isinstance(refused, Unknown), "no log is not a log without errors"


def test_counters_are_what_came_between_two_looks() -> None:
    told = known(read(health_before=look("100.00", 5), health_after=look("103.50", 8)).counters)
    assert (told.seconds, told.uptime) == (3.5, 103.5)
    assert told.each == (
        ErrorCounter("mlx5_0 port 1", "symbol_error", 8, 3),
        ErrorCounter("mlx5_0 port 1", "out_of_sequence", 0, 0),
        ErrorCounter("eth0", "carrier_changes", 2, 0),
    )
    set_back = known(read(health_before=look("100.00", 5), health_after=look("103.50", 1)).counters)
    assert set_back.each[0].gained == 1
    assert isinstance(read(health_before=look("100.00", 5)).counters, Unknown)


def test_a_drain_is_read_as_the_agent_reads_it() -> None:
    assert f"root cat {DRAIN}\n".encode() in SCRIPT
    record = Drain("ann@ctl", 5.0, "dust")
    assert read(health_drain=json.dumps(to_json(record))).drain == record
    assert isinstance(read(health_drain=("", 1, f"cat: {DRAIN}: No such file or directory")).drain, Absent)
    assert isinstance(read(health_drain=("", 1, f"cat: {DRAIN}: Permission denied")).drain, Unknown)
    long = known(read(health_drain=json.dumps(to_json(Drain("ann@ctl", 5.0, "x" * 5000)))).drain)
    assert f"{DRAIN} cannot be read" in long.reason
    torn = known(read(health_drain="{").drain)
    assert torn.reason.startswith(f"{DRAIN} cannot be read (")


def test_memory_errors_and_file_systems() -> None:
    folder = "/sys/devices/system/edac/mc/mc0"
    assert read(health_memory=(f"{folder}/ce_count:3\n{folder}/ue_count:1", 0, "")).memory == (
        MemoryErrors("mc0", 3, 1),
    )
    assert isinstance(read(health_memory=("", 2, "")).memory, Absent)
    mounts = "/dev/sda1 / ext4 ro,relatime 0 0\n/dev/sdb /data\\040x xfs rw 0 0\n/dev/sda1 /again ext4 ro 0 0"
    inodes = "Filesystem Type Inodes IUsed IFree IUse% Mounted on\n/dev/sda1  ext4   1000   950    50   95% /\n/dev/sdb   xfs       0     0     0     - /data x"
    assert read(health_mounts=mounts, health_inodes=inodes).mounts == (
        Mount("/", True, 95),
        Mount("/data x", False, Absent("it has no limit of inodes")),
    )
    late = read(health_mounts=mounts, health_inodes=("", 124, "")).mounts
    assert isinstance(known(late)[0].inodes, Unknown)


def test_nvlinks() -> None:
    status = "GPU 0: A100 (UUID: GPU-1)\n\t Link 0: 25 GB/s\n\t Link 1: <inactive>\nGPU 1: A100 (UUID: GPU-2)\n\t Link 0: 25 GB/s\n"
    errors = "GPU 0: A100 (UUID: GPU-1)\n\t Link 0: Replay Errors: 0\n\t Link 0: CRC Errors: 7\n"
    assert read(health_nvlink=status, health_nvlink_errors=errors).nvlinks == (
        NvLinks(0, (1,), ((0, "CRC Errors", 7),)),
        NvLinks(1, (), ()),
    )
    failed = read(health_nvlink="NVIDIA-SMI has failed because of it.", health_nvlink_errors="").nvlinks
    assert failed == Unknown("NVIDIA-SMI has failed because of it.")
    assert isinstance(read(health_nvlink=status, health_nvlink_errors="GPU 0: A\n\t Link 0: what").nvlinks, Unknown)


def test_retired_pages_and_the_generation_of_gpus_that_work() -> None:
    header = (
        "index, retired_pages.double_bit.count, retired_pages.pending, pcie.link.gen.current, pcie.link.gen.max, pstate"
    )
    assert read(health_gpus=f"{header}\n0, 2, Yes, 3, 4, P0\n1, [N/A], [N/A], 1, 4, P8\n").gpus == (
        GpuMemory(0, 2, True, 3, 4),
        GpuMemory(1, Absent("[N/A]"), Absent("[N/A]"), Absent("the GPU is idle"), 4),
    )


@each_shell
def test_the_probe_looks_twice(shell: tuple[str, ...], tmp_path: Path) -> None:
    counters = tmp_path / "infiniband/mlx5_0/ports/1/counters"
    counters.mkdir(parents=True)
    (counters / "symbol_error").write_text("5\n")
    script = SCRIPT.replace(b"/sys/class/infiniband", f"{tmp_path}/infiniband".encode())
    tool(tmp_path, "sleep", f"echo 9 >{counters}/symbol_error")
    tool(tmp_path, "dmesg", "echo '[ 5.000000] NVRM: Xid (PCI:0000:1b:00): 48, pid=1, DBE'; echo '[ 6.0] noise'")
    done = run(shell, "health", script=script, path=f"{tmp_path}:{os.environ['PATH']}")
    output = done.stdout.replace(str(tmp_path).encode() + b"/infiniband", b"/sys/class/infiniband")
    found = known(parse("gpu1", output, 0.0, 1.0).health)
    ports = [each for each in known(found.counters).each if each.device == "mlx5_0 port 1"]
    assert ports == [ErrorCounter("mlx5_0 port 1", "symbol_error", 9, 4)]
    assert Xid(48, "0000:1b:00", 5.0, "pid=1, DBE") in known(found.xids)
