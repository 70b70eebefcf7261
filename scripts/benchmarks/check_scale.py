#!/usr/bin/env python3
"""Measures `setup --check`, and `check` beside it, on a thousand hosts: time, peak memory, and how much there is to be read.

Addresses 127.x.y.z of one sshd on loopback play the hosts. What they answer is simulated: a forced command prints the
answer of a host with eight GPUs and eight HCAs, and of a few hosts another one, each of which is to be named.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import one_sshd
import pairing
import verdicts

_CASES = Path(__file__).resolve().parents[2] / "tests/core/facts/cases/probe"
_MARK = "taco-5eed"  # of the cases
_BEGAN = "1790000000"
_DRIFT = 3
# A minute is what a person waits for; what is to be read has to fit two screens.
_SECONDS, _MEBIBYTES, _LINES, _COLUMNS = 60.0, 512.0, 60.0, 400.0
# What `check` may take of what `setup --check` takes.
_HEALTH = 1.0
# How many of what `--check` prints is shown.
_SHOWN, _WIDTH = 40, 160
# What sshd runs: the command itself, but that the shell which is fed the probe is one that knows the answer.
_FORCED = """#!/bin/sh
sed -u 's#/bin/sh -s#FOLDER/answer -s#' | exec /bin/sh -c "$SSH_ORIGINAL_COMMAND"
"""
# Where a host has an answer of its own, that one.
_ANSWER = """#!/bin/sh
cat >/dev/null
mark=$3
set -- $SSH_CONNECTION
file=FOLDER/answers/$3
[ -e "$file" ] || file=FOLDER/answers/default
exec sed "s/MARK/$mark/;s/BEGAN/$(date +%s.%N)/;s/HOSTNAME/host-$3/;s/GPU-HOST/GPU-$(printf %08x "${3##*.}")/" "$file"
"""
_CLUSTER = "container: {image: 'registry.example/train:1'}\ndocker: {source: docker}\n"
_UUID = "GPU-HOST-0c11-4f5e-8a77-{:012d}"


def main(arguments: list[str]) -> int:
    """Measure, print, give the exit code."""
    asked = _parsed(arguments)
    if arguments[:1] != ["--measure"]:
        if shutil.which("sshd", path=f"{os.environ['PATH']}:/usr/sbin") is None or os.geteuid() != 0:
            verdicts.tell("it starts an sshd of its own: that takes root, and openssh-server")
            return 2
        with tempfile.TemporaryDirectory(prefix="taco-launch-", ignore_cleanup_errors=True) as scratch:
            folder = Path(scratch)
            with one_sshd.start(folder, f"ForceCommand {folder}/forced\n"):
                # Whoever measures waits for all its children to end: the sshd must be none of them.
                argv = (sys.executable, str(Path(__file__).resolve()), "--measure", scratch, *arguments)
                return subprocess.run(argv, check=False).returncode
    return _measure(Path(asked.measure), asked)


def _parsed(arguments: list[str]) -> argparse.Namespace:
    parser = verdicts.parser(
        "setup --check over addresses of one sshd with simulated answers: time, peak memory, lines to be read.",
        "example:\n  .venv/bin/python scripts/benchmarks/check_scale.py --runs 3",
        timeout=300.0,
    )
    parser.add_argument("--hosts", type=verdicts.count, default=1000, metavar="N", help="how many (default: 1000)")
    parser.add_argument("--measure", help=argparse.SUPPRESS)
    parser.set_defaults(runs=3)
    return parser.parse_args(arguments)


def _measure(folder: Path, asked: argparse.Namespace) -> int:
    odd = _answers(folder, asked.hosts)
    one_sshd.inventory(folder, asked.hosts, _CLUSTER)
    environ = pairing.environment(TACO_LAUNCH_STATE=f"{folder}/state", HOME=str(folder))
    environ.pop("SSH_AUTH_SOCK", None)
    typed = (sys.executable, "-m", "taco_launch", "-i", str(folder / f"cluster-{asked.hosts}.yaml"))
    seconds: list[float] = []
    peaks: list[float] = []
    health: list[tuple[float, float]] = []
    text = ""
    for number in range(asked.runs + 1):
        verdicts.tell(f"round {number} of {asked.runs}" if number else "warming up")
        wall, peak, text = _once((*typed, "setup", "--check"), environ, (_DRIFT,))
        checked = _once((*typed, "check"), environ, (0, _DRIFT))[:2]
        seconds += [wall] if number else []
        peaks += [peak] if number else []
        health += [checked] if number else []
    lines = text.splitlines()
    for line in lines[:_SHOWN]:
        verdicts.tell(line if len(line) <= _WIDTH else f"{line[:_WIDTH]}...")
    unnamed = [host for host in odd if not any(line.lstrip().startswith(f"{host}:") for line in lines)]
    if unnamed:
        verdicts.tell(f"not named: {', '.join(unnamed)}")
        return 1
    name = f"setup --check, {asked.hosts} hosts"
    longest = float(max(map(len, lines), default=0))
    bars = (
        verdicts.Verdict(f"{name}: time", pairing.spread(seconds), _SECONDS, "s"),
        verdicts.Verdict(f"{name}: peak memory", pairing.spread(peaks), _MEBIBYTES, "MiB"),
        verdicts.Verdict(f"{name}: to be read", pairing.spread([float(len(lines))]), _LINES, "lines"),
        verdicts.Verdict(f"{name}: the longest of them", pairing.spread([longest]), _COLUMNS, "characters"),
        verdicts.Verdict("check: its time", _ratios([wall for wall, _peak in health], seconds), _HEALTH, "of that"),
        verdicts.Verdict("check: its memory", _ratios([peak for _wall, peak in health], peaks), _HEALTH, "of that"),
    )
    raw = {"seconds": seconds, "mebibytes": peaks, "check_seconds": [wall for wall, _peak in health]}
    report = verdicts.Report("check_scale", asked.runs, (), bars, raw)
    return verdicts.finish(report, as_json=asked.json, strict=asked.strict)


def _ratios(ours: list[float], theirs: list[float]) -> pairing.Spread:
    return pairing.spread([one / other for one, other in zip(ours, theirs, strict=True)])


def _once(argv: tuple[str, ...], environ: dict[str, str], codes: tuple[int, ...]) -> tuple[float, float, str]:
    """Run it once; give seconds, the peak memory in MiB, and what it printed.

    Raises:
        SystemExit: it ended with another exit code than `codes`.
    """
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as complaints:
        begin = time.perf_counter()
        process = subprocess.Popen(argv, env=environ, stdin=subprocess.DEVNULL, stdout=out, stderr=complaints)
        _pid, status, usage = os.wait4(process.pid, 0)
        wall = time.perf_counter() - begin
        process.returncode = os.waitstatus_to_exitcode(status)
        out.seek(0)
        complaints.seek(0)
        if process.returncode not in codes:
            raise SystemExit(f"exit code {process.returncode}: {complaints.read()[-2000:].decode(errors='replace')}")
        return wall, usage.ru_maxrss / 1024, out.read().decode()


# --- what the hosts answer --------------------------------------------------------------------------------------------


def _answers(folder: Path, count: int) -> tuple[str, ...]:
    """Write the answers: that of most hosts, and those of a few that differ; give the names of these."""
    (folder / "answers").mkdir()
    for name, text in (("forced", _FORCED), ("answer", _ANSWER)):
        program = folder / name
        program.write_text(text.replace("FOLDER", str(folder)))
        program.chmod(0o755)
    whole = _whole()
    (folder / "answers/default").write_text(whole)
    odd = {
        2: whole.replace("535.104.05", "535.86.10"),
        3: whole.replace("3.10.0-957.el7", "3.10.0-1160.el7"),
        5: whole.replace("Enabled, Enabled, 41", "Disabled, Enabled, 41", 1),
        7: whole.replace("20.31.1014", "20.28.1002", 1),
        11: whole.replace("loaded nvidia_peermem\n", "").replace("nvidia_peermem 16384", "nvidia_uvm 16384"),
        17: whole.replace("/etc/modules-load.d/nvidia-peermem.conf:nvidia-peermem\n", ""),
        13: "".join(line for line in whole.splitlines(keepends=True) if not line.startswith(("GPU 7: ", "7, "))),
    }
    addresses = one_sshd.addresses(count)
    for number, text in odd.items():
        if number <= count:
            (folder / "answers" / addresses[number - 1]).write_text(text)
    return tuple(f"h{number}" for number in odd if number <= count)


def _whole() -> str:
    """Return the answer of a host that is all right, but not set up yet."""
    system = _case("centos76_guide").partition(f"{_MARK} done")[0]
    made = _case("centos76_other_cluster")
    made = made[made.index(f"{_MARK} begin made.files") :]
    made = "".join(line for line in made.splitlines(keepends=True) if "docker/restart" not in line)
    made = made.replace("ActiveState=failed", "ActiveState=active").replace("=disabled", "=enabled")
    text = "".join((system, *_gpu(), *_rdma(), *_health(), made)).replace(_MARK, "MARK")
    text = re.sub(rf"{_BEGAN}\.[0-9]{{9}}", "BEGAN", text)
    return text.replace("gpu1 3.10", "HOSTNAME 3.10")


def _case(name: str) -> str:
    return (_CASES / f"{name}.txt").read_text("utf-8")


def _section(name: str, text: str) -> str:
    return f"{_MARK} begin {name}\n{text}\n{_MARK} end {name} 0\n"


def _gpu() -> Iterator[str]:
    buses = [f"{16 + index:02x}" for index in range(8)]
    yield _section("gpu.board", "".join(f"gpu 0000:{bus}:00.0 none\n" for bus in buses))
    yield _section("gpu.driver_loaded", "NVRM version: NVIDIA UNIX x86_64 Kernel Module  535.104.05  simulated\n")
    yield _section("gpu.driver_installed", "535.104.05\n")
    yield _section("gpu.license", "NVIDIA\n")
    yield _section("gpu.fabric_manager", "LoadState=not-found\nActiveState=inactive\n")
    name = "NVIDIA A100-SXM4-40GB"
    yield _section("gpu.list", "".join(f"GPU {index}: {name} (UUID: {_UUID.format(index)})\n" for index in range(8)))
    head = (
        "index, uuid, name, pci.bus_id, memory.total [MiB], memory.used [MiB], ecc.errors.uncorrected.volatile.total, "
        "driver_version, mig.mode.current, clocks_event_reasons.active, persistence_mode, ecc.mode.current, "
        "temperature.gpu, pcie.link.width.current, pcie.link.width.max\n"
    )
    cells = "40536 MiB, 0 MiB, 0, 535.104.05, Disabled, 0x0000000000000001, Enabled, Enabled, 41, 16, 16"
    rows = (
        f"{index}, {_UUID.format(index)}, {name}, 00000000:{bus}:00.0, {cells}\n" for index, bus in enumerate(buses)
    )
    yield _section("gpu.query", head + "".join(rows))
    head = "gpu_uuid, remapped_rows.pending, remapped_rows.failure\n"
    yield _section("gpu.remapped", head + "".join(f"{_UUID.format(index)}, No, No\n" for index in range(8)))
    yield _section("gpu.processes", "gpu_uuid, pid, process_name, used_gpu_memory [MiB]\n")
    yield _section("gpu.smi", "| NVIDIA-SMI 535.104.05   Driver Version: 535.104.05   CUDA Version: 12.2     |\n")


def _health() -> Iterator[str]:
    """Yield what only `check` asks for; the hosts answer at once, so the 3 seconds between two looks are not in its time."""
    counters = ("symbol_error", "link_downed", "port_rcv_errors", "local_link_integrity_errors")
    ports = [f"/sys/class/infiniband/mlx5_{index}/ports/1/counters" for index in range(8)]
    for name, uptime in (("before", "1000.00"), ("after", "1003.00")):
        lines = "".join(f"{port}/{counter}:0\n" for port in ports for counter in counters)
        yield _section(f"health.{name}", f"/proc/uptime:{uptime} 10.00\n{lines}/sys/class/net/eth0/carrier_changes:2\n")
    yield _section("health.xids", "")
    yield _section(
        "health.memory", "/sys/devices/system/edac/mc/mc0/ce_count:0\n/sys/devices/system/edac/mc/mc0/ue_count:0\n"
    )
    yield _section("health.mounts", "/dev/sda1 / ext4 rw,relatime 0 0\n")
    yield _section(
        "health.inodes", "Filesystem Type Inodes IUsed IFree IUse% Mounted on\n/dev/sda1 ext4 1000 50 950 5% /\n"
    )
    yield _section("health.drain", "")


def _rdma() -> Iterator[str]:
    files: list[str] = []
    for index in range(8):
        hca = f"/sys/class/infiniband/mlx5_{index}"
        own = {"node_guid": f"0c42:a103:0000:000{index}", "hca_type": "MT4123", "fw_ver": "20.31.1014"}
        port = {
            "state": "4: ACTIVE",
            "phys_state": "5: LinkUp",
            "rate": "200 Gb/sec (4X HDR)",
            "link_layer": "Ethernet",
        }
        files += [f"{hca}/{name}:{value}" for name, value in own.items()]
        files += [f"{hca}/ports/1/{name}:{value}" for name, value in port.items()]
        gids = [f"fe80:0000:0000:0000:0e42:a1ff:fe00:000{index}", f"0000:0000:0000:0000:0000:ffff:0a00:0{index}01"]
        for slot, gid in enumerate(gid for gid in gids for _kind in range(2)):
            files.append(f"{hca}/ports/1/gids/{slot}:{gid}")
            files.append(f"{hca}/ports/1/gid_attrs/types/{slot}:{'RoCE v2' if slot % 2 else 'IB/RoCE v1'}")
            files.append(f"{hca}/ports/1/gid_attrs/ndevs/{slot}:eth{index}")
    yield _section("rdma.sysfs", "".join(f"{line}\n" for line in files))
    yield _section("rdma.netdevs", "".join(f"mlx5_{index} eth{index}\n" for index in range(8)))
    yield _section("rdma.ofed", "MLNX_OFED_LINUX-5.4-1.0.3.0:\n")
    addresses = "".join(f"adapter 0000:{32 + index:02x}:00.0\n" for index in range(8))
    yield _section("rdma.adapters", f"{addresses}loaded 5.4-1.0.3\n")
    yield _section("rdma.mlx5_core", "5.4-1.0.3\n")
    yield _section("rdma.pci", "")
    modules = ("nvidia_peermem", "nvidia", "mlx5_ib", "mlx5_core", "ib_core")
    yield _section("rdma.modules", "".join(f"{name} 16384 0 - Live 0x0000000000000000\n" for name in modules))
    peer = "kernel 3.10.0-957.el7.x86_64\ndriver NVRM version: 535.104.05\nclient nv_mem\nloaded nvidia_peermem\n"
    yield _section(
        "rdma.peermem",
        f"{peer}exists nvidia_peermem\nmissing nv_peer_mem modinfo: ERROR: Module nv_peer_mem not found.\n",
    )
    yield _section("rdma.comes_back", "/etc/modules-load.d/nvidia-peermem.conf:nvidia-peermem\n")
    yield _section("rdma.devices", "uverbs0\nrdma_cm\n")


if __name__ == "__main__":
    verdicts.start(main)
