"""A port of a host's loopback by a real sshd: the way there, the answer of a port without a server, forbidden forwarding."""

import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from taco_launch.core.errors import HostError
from taco_launch.hosts.ssh.host_port import HostPort
from tests.hosts.conftest import NOBODY, host, inventory
from tests.support import sshd as server

pytestmark = [pytest.mark.enable_socket, pytest.mark.usefixtures("home")]


@pytest.fixture
def answering() -> Iterator[int]:
    """Return the port of a server that greets each connection."""
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def greet() -> None:
            try:
                while True:
                    with listening.accept()[0] as connection:
                        connection.sendall(b"hello")
            except OSError:
                return

        threading.Thread(target=greet, daemon=True).start()
        yield int(listening.getsockname()[1])
        listening.shutdown(socket.SHUT_RDWR)


def test_connections_share_one_login(sshd: server.Sshd, answering: int) -> None:
    before = sshd.log().count("Accepted publickey for plain")
    there = HostPort(inventory(host(sshd, "plain")), host(sshd, "plain"), answering, NOBODY)
    for _time in range(3):
        channel = there.connect()
        assert channel.recv(5) == b"hello"
        channel.close()
    there.open().connection.client.close()  # the connection is lost
    assert there.connect().recv(5) == b"hello"
    there.close()
    assert sshd.log().count("Accepted publickey for plain") == before + 2


def test_a_port_without_a_server(sshd: server.Sshd) -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        there = HostPort(inventory(host(sshd, "plain")), host(sshd, "plain"), unused.getsockname()[1], NOBODY)
        with pytest.raises(HostError, match="plain: nothing accepts connections on port"):
            there.connect()
        there.open()  # the login is still usable
        there.close()


def test_what_listens_on_another_loopback_address_is_not_reached(sshd: server.Sshd) -> None:
    with socket.create_server(("::1", 0), family=socket.AF_INET6) as other:
        port = other.getsockname()[1]
        there = HostPort(inventory(host(sshd, "plain")), host(sshd, "plain"), port, NOBODY, "127.0.0.1")
        with pytest.raises(HostError):
            there.connect()
        there.close()


def test_an_sshd_that_forbids_forwarding(tmp_path: Path, answering: int) -> None:
    if reason := server.why_not():
        pytest.skip(reason)
    with server.sshd(tmp_path / "sshd", users=(server.User("plain", 5001),), options="AllowTcpForwarding no") as made:
        there = HostPort(inventory(host(made, "plain")), host(made, "plain"), answering, NOBODY)
        with pytest.raises(HostError, match="plain: its sshd does not allow TCP forwarding") as caught:
            there.connect()
        there.close()
    assert "AllowTcpForwarding" in str(caught.value.hint)


def test_a_host_that_no_way_leads_to(sshd: server.Sshd) -> None:
    """The direct connection is tried first, then the one through the head."""
    away = host(sshd, "away", address="127.0.0.9", user="plain")
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        away = type(away)(
            "away", "127.0.0.9", port=unused.getsockname()[1], user="plain", identity_file=str(sshd.login)
        )
        there = HostPort(inventory(host(sshd, "plain"), away), away, 1, NOBODY)
        with pytest.raises(HostError) as caught:
            there.connect()
        there.close()
    direct, other = caught.value.message.split("\n")
    assert direct.startswith("away: no TCP connection to 127.0.0.9:")
    assert other.startswith("the other way: away: 127.0.0.9:")
    assert "the jump host cannot connect to it" in other
