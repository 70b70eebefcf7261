"""Counters of this machine's processes, sockets and interfaces, read for real on loopback; HCAs from a copied /sys."""

import os
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from taco_launch.agent.counters import inet_diag, netlink, nics, processes, sockets
from taco_launch.core.model.run.observed import InterfaceTraffic
from tests.support.raisers import raiser

pytestmark = pytest.mark.enable_socket  # they connect to this machine alone


@pytest.fixture
def pair() -> Iterator[tuple[socket.socket, socket.socket]]:
    with socket.socket() as listens:
        listens.bind(("127.0.0.1", 0))
        listens.listen()
        with socket.create_connection(listens.getsockname()) as one, listens.accept()[0] as other:
            yield one, other


def test_bytes_of_a_connection(pair: tuple[socket.socket, socket.socket]) -> None:
    before = sockets.of_processes([os.getpid()])
    assert before.unknown == ""
    pair[0].sendall(bytes(100_000))
    left = 100_000
    while left:
        left -= len(pair[1].recv(left))
    after = sockets.of_processes([os.getpid()])
    assert after.inside.connections >= 2
    assert after.bytes is not None
    assert before.bytes is not None
    assert after.bytes - before.bytes >= 2 * 100_000  # sent by one, received by the other
    assert "127.0.0.1" in after.inside.peers
    assert after.between == ()


@pytest.mark.usefixtures("pair")
def test_ipv6() -> None:
    before = sockets.of_processes([os.getpid()]).inside.connections
    with socket.socket(socket.AF_INET6) as listens:
        listens.bind(("::1", 0))
        listens.listen()
        with socket.create_connection(listens.getsockname()[:2]), listens.accept()[0]:
            assert sockets.of_processes([os.getpid()]).inside.connections == before + 2


def test_a_process_without_connections_and_one_that_is_gone() -> None:
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    assert child.stdin is not None
    assert sockets.of_processes([child.pid]) == sockets.ProcessSockets((), InterfaceTraffic("", 0, 0))
    counted = processes.counters(child.pid)
    assert counted is not None
    child.stdin.close()
    child.wait()
    assert sockets.of_processes([child.pid]).inside.connections == 0
    assert processes.counters(child.pid) is None
    assert processes.of_processes([child.pid]) is None


@pytest.mark.usefixtures("pair")
def test_without_the_kernels_answer_the_list_of_proc_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(netlink, "dump", raiser(PermissionError(1, "Operation not permitted")))
    found = sockets.of_processes([os.getpid()])
    assert found.inside.connections >= 2
    assert found.bytes is None
    assert "Operation not permitted" in found.unknown


def test_the_kernel_says_why_it_refuses() -> None:
    with pytest.raises(netlink.NetlinkError, match="error"):
        list(netlink.dump(inet_diag.NETLINK_SOCK_DIAG, inet_diag.SOCK_DIAG_BY_FAMILY, b"\x00" * 3))


def test_what_a_process_reads_and_computes(tmp_path: Path) -> None:
    before = processes.counters(os.getpid())
    (tmp_path / "file").write_bytes(bytes(1 << 20))
    (tmp_path / "file").read_bytes()
    total = 0
    while (after := processes.counters(os.getpid())) is not None and before is not None:
        total += sum(range(10_000))
        if after.main_cpu_seconds > before.main_cpu_seconds:
            break
    assert before is not None
    assert after is not None
    assert after.read is not None
    assert before.read is not None
    assert after.written is not None
    assert before.written is not None
    assert after.read - before.read >= 1 << 20
    assert after.written - before.written >= 1 << 20
    assert after.cpu_seconds >= after.main_cpu_seconds


def test_counters_that_are_cut() -> None:
    assert processes.io_bytes("rchar: 12\nwchar: 345") == {"rchar": 12, "wchar": 345}
    assert processes.io_bytes("rchar: 12\nwchar: ") == {"rchar": 12}
    assert processes.cpu_and_state("1 (a b) S 1 2", 100.0) is None
    assert processes.cpu_and_state("", 100.0) is None


def test_several_processes_and_one_that_is_stopped() -> None:
    stat = "1 (a) b) T " + " ".join(["0"] * 10 + ["100", "50", "7", "3"] + ["0"] * 10)
    found = processes.cpu_and_state(stat, 100.0)
    assert found is not None
    assert (found.cpu_seconds, found.state) == (1.6, "T")


def test_interfaces_of_this_machine() -> None:
    found = {one.name: one for one in nics.interfaces()}
    assert "lo" not in found
    for name in os.listdir("/sys/class/net"):
        assert name == "lo" or name in found or not Path(f"/sys/class/net/{name}/statistics").is_dir()
    assert nics.number("N/A (no PMA)\n") is None
    assert nics.number("17\n") == 17


def test_ports_of_hcas(tmp_path: Path) -> None:
    """Simulated: no HCA is here."""
    port = tmp_path / "infiniband" / "mlx5_0" / "ports" / "1"
    (port / "counters").mkdir(parents=True)
    (port / "hw_counters").mkdir()
    for name, value in {"port_rcv_data": "250", "port_xmit_data": "N/A (no PMA)", "symbol_error": "3"}.items():
        (port / "counters" / name).write_text(f"{value}\n")
    (port / "hw_counters" / "out_of_sequence").write_text("9\n")
    (found,) = nics.infiniband_ports(tmp_path)
    assert (found.name, found.received, found.sent) == ("mlx5_0:1", 1000, None)
    assert found.faults == {"symbol_error": 3, "out_of_sequence": 9}
    assert nics.infiniband_ports(tmp_path / "none") == []


@pytest.mark.skipif(shutil.which("ss") is None, reason="cannot: no ss here to compare with")
def test_the_kernels_answer_is_what_ss_shows(pair: tuple[socket.socket, socket.socket]) -> None:
    pair[0].sendall(b"x" * 4321)
    pair[1].recv(10_000)
    port = pair[0].getsockname()[1]
    shown = subprocess.run(["ss", "-tin", f"sport = :{port}"], capture_output=True, text=True, check=True).stdout
    asked = inet_diag.established(socket.AF_INET)
    told = netlink.dump(inet_diag.NETLINK_SOCK_DIAG, inet_diag.SOCK_DIAG_BY_FAMILY, asked)
    mine = [one for one in (inet_diag.connection(message.body) for message in told) if one and one.local_port == port]
    assert [f"bytes_acked:{one.sent}" in shown for one in mine] == [True], (mine, shown)
