"""Whoever reaches the port of `metrics --listen` cannot hold it, nor read by a name that is none of its: review L8."""

import contextlib
import http.client
import socket
import threading
from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from taco_launch.jobs.metrics import listen
from taco_launch.jobs.metrics.listen import Server
from tests.conftest import eventually

pytestmark = pytest.mark.enable_socket


@pytest.fixture
def server() -> Iterator[Server]:
    with Server("127.0.0.1", 0, lambda: b"a 1\n", ("head.example.org",)) as made:
        thread = threading.Thread(target=made.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield made
        made.shutdown()
        thread.join()


def port_of(server: Server) -> tuple[str, int]:
    return str(server.server_address[0]), int(server.server_address[1])


def status(server: Server, host: str | None = None) -> int:
    connection = http.client.HTTPConnection(*port_of(server), timeout=10)
    connection.putrequest("GET", "/metrics", skip_host=True)
    if host is not None:
        connection.putheader("Host", host)
    connection.endheaders()
    found = connection.getresponse().status
    connection.close()
    return found


def serves(server: Server) -> bool:
    """Return whether the metrics come; who is refused sees a 503, or a connection that was closed before he read it."""
    try:
        return status(server) == 200
    except (ConnectionError, http.client.HTTPException):
        return False


@pytest.mark.parametrize(
    "host", ["evil.example", "head.example.org.evil.example", "[::1", "", "127.0.0.1.evil.example"]
)
def test_a_page_cannot_read_by_a_name_of_its_own(server: Server, host: str) -> None:
    assert status(server, host) == 421


@pytest.mark.parametrize(
    "host", [None, "localhost:9464", "127.0.0.1:9464", "[::1]:9464", "HEAD.example.org", "10.0.0.1"]
)
def test_its_own_names_are_served(server: Server, host: str | None) -> None:
    assert status(server, host) == 200
    assert status(server, socket.gethostname()) == 200


def test_clients_that_say_nothing_or_little_keep_nobody_out(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listen, "ASK_SECONDS", 5.0)
    with ExitStack() as open_:
        idle = [open_.enter_context(socket.create_connection(port_of(server))) for _ in range(listen.MOST_CLIENTS)]
        eventually(lambda: len(server._due) == listen.MOST_CLIENTS)
        assert serves(server), "the oldest makes room"
        idle[0].settimeout(10)
        assert idle[0].recv(1) == b"", "it is cut off"

        def dribbles() -> bool:
            """Write a byte more of a request that never ends."""
            try:
                idle[-1].sendall(b"G")
            except OSError:
                return True
            return False

        eventually(dribbles, 10, "the one that writes slowly to be cut off")


def test_of_clients_that_wait_for_an_answer_there_is_a_limit() -> None:
    collects = threading.Event()
    with Server("127.0.0.1", 0, lambda: b"a 1\n" if collects.wait(20) else b"") as server, ExitStack() as open_:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        for _ in range(listen.MOST_CLIENTS):
            client = open_.enter_context(socket.create_connection(port_of(server)))
            client.sendall(b"GET /metrics HTTP/1.0\r\n\r\n")
        eventually(lambda: len(server._due) == listen.MOST_CLIENTS and not server._silent)
        assert not serves(server), "at most so many at once"
        collects.set()
        eventually(lambda: serves(server), 10, "the others to be served")
        server.shutdown()
        thread.join()


def test_a_client_that_does_not_read_is_cut_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listen, "ANSWER_SECONDS", 0.5)
    with Server("127.0.0.1", 0, lambda: bytes(64 << 20)) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        with socket.create_connection(port_of(server)) as client:
            client.sendall(b"GET /metrics HTTP/1.0\r\n\r\n")
            eventually(lambda: bool(server._due), 10, "the request to come")
            eventually(lambda: not server._due, 10, "the one that does not read to be cut off")
        server.shutdown()
        thread.join()


def test_headers_have_a_limit(server: Server) -> None:
    with socket.create_connection(port_of(server), timeout=10) as client:
        client.sendall(b"GET /metrics HTTP/1.1\r\n")
        with contextlib.suppress(OSError):  # it may be closed by now
            for _number in range(64):
                client.sendall(b"X: " + b"x" * 1000 + b"\r\n")
        with contextlib.suppress(ConnectionError):
            assert client.recv(100), "it does not wait for more"
    assert serves(server)
