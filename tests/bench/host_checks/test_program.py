"""The program itself, its ranks as processes of this machine; and how its output is read."""

import contextlib
import json
import os
import re
import socket
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from taco_launch.bench.host_checks import plan
from taco_launch.bench.host_checks.program import __main__ as program
from taco_launch.bench.host_checks.program import host, network
from taco_launch.bench.host_checks.program.gpu_programs import readings
from taco_launch.bench.host_checks.results import NETWORK, read
from taco_launch.core.errors import HostError
from tests.support.patience import patience

FOLDER = Path(plan.__file__).parent


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return int(listener.getsockname()[1])


def run(level: str, size: int, *, ports: tuple[int, int] | None = None, path: str = "") -> tuple[int, str]:
    """Run all ranks; return the exit code and the output of rank 0."""
    what = {**plan.plan(level, size, ports=ports), "seconds": 0.05, "hosts": ("core",) if level == plan.FULL else ()}
    env = {"PATH": f"{path}:{os.environ['PATH']}", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port()), "WORLD_SIZE": str(size), "TACO_CHECK_TOKEN": "secret"}  # fmt: skip
    argv = (sys.executable, "-m", "program", json.dumps(what))
    started = [
        subprocess.Popen(argv, cwd=FOLDER, env={**env, "RANK": str(rank)}, stdout=subprocess.PIPE, text=True)
        for rank in range(size)
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
    assert found.cores == dict.fromkeys("abc", len(os.sched_getaffinity(0)))
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


@pytest.mark.enable_socket
def test_data_ports_are_of_the_range_and_one_that_is_taken_is_left() -> None:
    # An address of this test alone and ports that no connection is given: other tests listen meanwhile.
    address, first = f"127.1.{os.getpid() // 250 % 250}.{os.getpid() % 250 + 1}", 20480
    with socket.create_server((address, first)), network.listen(address, (first, first + 1)) as one:
        assert one.getsockname()[1] == first + 1
        with pytest.raises(OSError, match=f"no port of {address} is free in network.port_range, 20480-20481"):
            network.DataPort(address, "secret", (first, first + 1))
        with network.listen(address, None) as free:
            assert free.getsockname()[1] > 0


@pytest.mark.enable_socket
def test_stray_connections_neither_end_nor_delay_the_start(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(program, "PATIENCE", patience(5))
    monkeypatch.setattr(program, "ANSWER_SECONDS", patience(30))
    with socket.create_server(("127.0.0.1", 0)) as listener, contextlib.ExitStack() as stack:
        port = listener.getsockname()[1]
        greetings = (b"[]\n", b"1\n", b"{}\n", b"\xff\n", b"", b"x" * 9999, b'{"token": "secret", "rank": 0}\n')
        for greeting in greetings:
            stack.enter_context(socket.create_connection(("127.0.0.1", port))).sendall(greeting)
        assert set(program.Ranks(listener, 1, "secret").about) == {0}
        monkeypatch.setattr(program, "PATIENCE", 0.3)
        with pytest.raises(OSError, match="ranks 0 did not reach rank 0"):
            program.Ranks(listener, 1, "other")


def test_a_slow_or_long_greeting_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(program, "ANSWER_SECONDS", 0.3)
    rank, stray = socket.socketpair()
    with rank, stray:
        stop = threading.Event()

        def drip() -> None:
            while not stop.wait(0.05):
                stray.sendall(b" ")

        sender = threading.Thread(target=drip)
        sender.start()
        try:
            with pytest.raises(OSError, match=r"too slowly|timed out"):
                program._greeting(rank)
        finally:
            stop.set()
            sender.join()
        stray.sendall(b" " * 5000)
        with pytest.raises(ValueError, match="Expecting value"):
            program._greeting(rank)


def test_a_host_whose_gpu_programs_fail_to_answer_has_a_problem() -> None:
    class Simulated(program.Ranks):
        def __init__(self) -> None:
            self.about = {0: {}, 1: {}}

        def ask(self, rank: int, do: str, **values: Any) -> dict[str, Any]:
            del do, values
            return {"problem": "rank 1 does not answer: timed out"} if rank else {"dcgmi": None}

    found = program.Results()
    program.hosts(Simulated(), {"hosts": (), "repeats": 1, "seconds": 0.1}, found)
    assert found.more["problem", 1] == {"problem": "rank 1 does not answer: timed out"}
    assert found.more["programs", 0] == {"programs": {"dcgmi": None}}


def test_a_value_is_measured_again_beside_hosts_with_as_many_cores() -> None:
    found = program.Results(dict(enumerate((64, 64, 64, 32, 32, 32))))
    for rank, rate in enumerate((64.0, 64.0, 64.0, 32.0, 32.0, 10.0)):
        found.add(("CPU rate", rank), {"rate": rate})
    assert found.slow() == [("CPU rate", 5)]
    assert found.control(("CPU rate", 5), found.slow()) in (("CPU rate", 3), ("CPU rate", 4))


def test_a_process_that_fails_is_a_problem_and_no_rate() -> None:
    with pytest.raises(OSError, match="copy on 2 cores: a process failed: MemoryError"):
        host.on_cores("copy", 2, 0.01, 1 << 60)
    with pytest.raises(OSError, match=r"1 cores: a process failed: .*KeyError"):
        host.on_cores("nothing", 1, 0.01, 1)
    assert host.on_cores("copy", 2, 0.01, 1 << 20) > 1e6


@pytest.mark.parametrize(("limit", "cores", "size"), [("max", 1, 32 << 20), (str(1 << 30), 16, 16 << 20)])
def test_copies_fit_into_the_memory_of_the_container(
    limit: str, cores: int, size: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "memory.max").write_text(f"{limit}\n")
    monkeypatch.setattr(host, "_LIMITS", (str(tmp_path / "memory.max"), str(tmp_path / "absent")))
    assert host.copy_bytes(cores) == size
    (tmp_path / "memory.max").write_text(f"{64 << 20}\n")
    with pytest.raises(OSError, match="64 MiB of memory are too little for copies by 16 cores"):
        host.copy_bytes(16)
