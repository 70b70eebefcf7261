"""TCP ports of a host: which are free, who listens on the others, and which of another host can be reached."""

import getpass
import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from taco_launch.agent.host import ports
from taco_launch.agent.host.leases import Leases
from taco_launch.agent.host.slot_holders import Holder
from taco_launch.core.errors import HostError

pytestmark = pytest.mark.enable_socket  # they bind, and connect to this machine alone


def nobodys(_port: int) -> bool:
    return False


def test_the_ports_that_somebody_listens_on() -> None:
    with socket.socket() as listens, socket.socket(socket.AF_INET6) as too, socket.socket() as bound:
        for each in (listens, too, bound):
            each.bind(("::" if each is too else "", 0))
        for each in (listens, too):
            each.listen()
        heard = sorted(each.getsockname()[1] for each in (listens, too))
        silent = bound.getsockname()[1]
        assert ports.listening_ports(None) == []
        assert ports.listening_ports((heard[0], heard[0])) == heard[:1]
        found = ports.listening_ports((1, 65535))
        assert set(heard) <= set(found)
        assert silent not in found
        name = Path("/proc/self/comm").read_text(encoding="ascii").strip()
        for port in heard:
            assert ports.listener(port).startswith(f"process {os.getpid()} ({name} of ")
        assert ports.listener(silent) == ""


def test_who_listens_where_no_process_can_be_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ports, "_open_files", lambda _pid: set())
    with socket.create_server(("127.0.0.1", 0)) as listens:
        assert ports.listener(listens.getsockname()[1]) == f"a process of {getpass.getuser()}"


def test_only_the_sockets_of_a_process_and_of_those_below_it_are_its_own() -> None:
    script = "import socket; kept = socket.create_server(('{}', 0)); print(kept.getsockname()[1], flush=True); input()"
    for address, seen in (("127.0.0.1", True), ("127.0.0.2", False), ("0.0.0.0", False)):
        inner = [sys.executable, "-I", "-c", script.format(address)]
        argv = ["sh", "-c", '"$@"; exit', "sh", *inner]
        with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as shell:
            assert shell.stdout is not None
            port = int(shell.stdout.readline())
            assert ports.listened_on(shell.pid) == (port if seen else 0)
            with socket.create_server(("127.0.0.1", 0)):
                assert ports.listened_on(shell.pid) == (port if seen else 0), "this one is not below it"
            shell.communicate("\n")


def test_a_free_port_of_the_allowed_ones() -> None:
    assert ports.free(None, nobodys) >= 1024
    with socket.socket() as taken:
        taken.bind(("", 0))
        taken.listen()
        port = taken.getsockname()[1]
        assert ports.free((port - 1, port), nobodys) == port - 1
        for allowed, leased in (((port, port), nobodys), ((port - 1, port), lambda each: each == port - 1)):
            with pytest.raises(HostError, match=f"no port from {allowed[0]} to {port} is free"):
                ports.free(allowed, leased)
    with pytest.raises(HostError, match="no port is free"):
        ports.free(None, lambda _port: True)


def test_a_port_that_is_taken_in_ipv6_alone_is_not_free() -> None:
    with socket.socket(socket.AF_INET6) as taken:
        taken.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        taken.bind(("", 0))
        port = taken.getsockname()[1]
        with pytest.raises(HostError, match="is free"):
            ports.free((port, port), nobodys)


def test_a_port_that_a_job_has_is_no_other_jobs_and_leaves_no_file(tmp_path: Path) -> None:
    place = tmp_path / "leases"
    place.mkdir()
    one, other = Leases(place, tmp_path), Leases(place, tmp_path)
    assert not other.is_leased(41000)
    assert list(place.iterdir()) == []
    assert one.take((), 0, Holder("vgg16", "id", 0.0), None, (41000,))
    assert (other.is_leased(41000), other.holder(41000), other.holder(41001)) == (True, "job vgg16", "")
    one.release(gone=True)
    assert not other.is_leased(41000)
    assert list(place.iterdir()) == []


def test_a_port_of_a_host_that_is_reached_refuses() -> None:
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        assert ports.unreachable(*bound.getsockname()) == ""
        assert ports.unreachable(*bound.getsockname(), listens=True) == "Connection refused"
        bound.listen()
        assert ports.unreachable(*bound.getsockname(), listens=True) == ""
        assert ports.unreachable(*bound.getsockname()) == "another process already listens on that port"
    assert ports.unreachable("255.255.255.255", 41000) == "Network is unreachable"
