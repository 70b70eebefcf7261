"""The program itself, its ranks as processes of this machine; and how its output is read."""

import json
import os
import re
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from taco_launch.bench.host_checks import plan
from taco_launch.bench.host_checks.program import network
from taco_launch.bench.host_checks.program.host import readings
from taco_launch.bench.host_checks.results import NETWORK, read
from taco_launch.core.errors import HostError
from tests.support.patience import patience

FOLDER = Path(plan.__file__).parent


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return int(listener.getsockname()[1])


def run(level: str, size: int, *, path: str = "", absent: int | None = None) -> tuple[int, str]:
    """Run all ranks but `absent`; return the exit code and the output of rank 0."""
    what = {**plan.plan(level, size), "seconds": 0.05, "hosts": ("core",) if level == plan.FULL else ()}
    env = {"PATH": f"{path}:{os.environ['PATH']}", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port()), "WORLD_SIZE": str(size)}  # fmt: skip
    argv = (sys.executable, "-m", "program", json.dumps(what))
    started = [
        subprocess.Popen(argv, cwd=FOLDER, env={**env, "RANK": str(rank)}, stdout=subprocess.PIPE, text=True)
        for rank in range(size)
        if rank != absent
    ]
    output, _ = started[0].communicate(timeout=patience(60))
    for each in started[1:]:
        each.communicate(timeout=patience(10))
    return started[0].returncode, output


@pytest.mark.enable_socket
def test_each_direction_of_each_pair_is_measured() -> None:
    code, output = run(plan.PAIRS, 3)
    assert code == 0
    found = read("".join(f"gpu1/0 | {line}\n" for line in output.splitlines()), ("a", "b", "c"))
    assert {each.hosts for each in found.values} == {(one, other) for one in "abc" for other in "abc" if one != other}
    assert all(each.name == NETWORK and len(each.values) >= plan.REPEATS and min(each.values) > 1e6 for each in found.values)  # fmt: skip
    assert set(found.round_trips) == {("a", "b"), ("a", "c"), ("b", "c")}
    assert all(0 < seconds < 1 for seconds in found.round_trips.values())
    for cut in (output[: output.rindex("@check")], "", re.sub(r"@check \{.key", "@check {.key", output, count=1)):
        with pytest.raises(HostError, match=r"not complete|cannot be read"):
            read(cut, ("a", "b", "c"))
    with pytest.raises(HostError, match="cannot be read"):
        read(output, ("a", "b"))


@pytest.mark.enable_socket
def test_hosts_are_measured_side_by_side() -> None:
    code, output = run(plan.FULL, 2)
    assert code == 0
    found = read(output, ("a", "b"))
    assert {(each.name, each.hosts) for each in found.values} == {("CPU rate, one core", (host,)) for host in "ab"}
    assert all(len(each.values) >= plan.REPEATS and min(each.values) > 1e6 for each in found.values)


def test_readings_of_gpu_programs() -> None:
    text = "SUM host_to_device_memcpy_ce 208.20\n# Avg bus bandwidth    : 230.5\nSUM broken\n"
    assert readings(text) == {"nvbandwidth host_to_device_memcpy_ce": 208.2e9, "all_reduce_perf": 230.5e9}
    assert readings("") == {}


SIMULATED_PERFTEST = """#!/bin/sh
echo "$@" >"$ARGUMENTS"
echo ' #bytes     #iterations    BW peak[Gb/sec]    BW average[Gb/sec]   MsgRate[Mpps]'
echo ' 65536      185000           0.00               193.41             0.368900'
"""


def test_rdma_is_measured_by_ib_write_bw(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A simulated ib_write_bw: no machine of the tests has RDMA."""
    program, arguments = tmp_path / "ib_write_bw", tmp_path / "arguments"
    program.write_text(SIMULATED_PERFTEST)
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.setenv("ARGUMENTS", str(arguments))
    monkeypatch.setenv("NCCL_IB_HCA", "=mlx5_2:1,mlx5_3:1")
    monkeypatch.setenv("NCCL_IB_GID_INDEX", "3")
    monkeypatch.setattr(os, "listdir", lambda _path: ["mlx5_0", "mlx5_2", "mlx5_3"])
    assert network.write_bw(18515, "10.0.0.2") == {"rate": 193.41e9 / 8, "resent": 0.0}
    assert arguments.read_text().split() == [
        "-d",
        "mlx5_2",
        "-p",
        "18515",
        "-F",
        "-D",
        "1",
        "-q",
        "4",
        "--report_gbits",
        "-x",
        "3",
        "10.0.0.2",
    ]
    assert network.write_bw(18515) == {}
    program.write_text("#!/bin/sh\necho 'Unable to init the socket connection' >&2; exit 1\n")
    with pytest.raises(OSError, match="Unable to init the socket connection"):
        network.write_bw(18515, "10.0.0.2")
    monkeypatch.setenv("NCCL_IB_DISABLE", "1")
    assert network.rdma_device() == ""
