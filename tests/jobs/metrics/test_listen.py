"""The HTTP server that Prometheus scrapes."""

import http.client
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from taco_launch.core.errors import HostError
from taco_launch.jobs.metrics.listen import CONTENT_TYPE, Server

pytestmark = pytest.mark.enable_socket


@contextmanager
def serving(collect: Callable[[], bytes], address: str = "127.0.0.1") -> Iterator[Server]:
    with Server(address, 0, collect) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()


def ask(server: Server, path: str = "/metrics", method: str = "GET") -> tuple[int, str, bytes]:
    address, port = server.server_address[:2]
    connection = http.client.HTTPConnection(str(address), port, timeout=10)
    connection.request(method, path)
    answer = connection.getresponse()
    found = answer.status, answer.getheader("Content-Type") or "", answer.read()
    connection.close()
    return found


def test_each_scrape_is_collected_anew() -> None:
    texts = iter([b"a 1\n", b"a 2\n"])
    with serving(lambda: next(texts)) as server:
        assert server.url == f"http://127.0.0.1:{server.server_address[1]}/metrics"
        assert ask(server) == (200, CONTENT_TYPE, b"a 1\n")
        assert ask(server, "/metrics?a=b") == (200, CONTENT_TYPE, b"a 2\n")


def test_other_paths_and_methods() -> None:
    with serving(lambda: b"a 1\n") as server:
        assert ask(server, "/")[0::2] == (404, b"the metrics are at /metrics\n")
        assert ask(server, method="HEAD") == (200, CONTENT_TYPE, b"")
        assert ask(server, method="POST")[0] == 501


def test_what_cannot_be_collected_is_told_and_the_next_may_go() -> None:
    answers: list[bytes | None] = [None, b"a 1\n"]

    def collect() -> bytes:
        found = answers.pop(0)
        if found is None:
            raise HostError("gpu1: no route to host", "is it up?")
        return found

    with serving(collect) as server:
        assert ask(server)[0::2] == (503, b"gpu1: no route to host\n")
        assert ask(server)[0] == 200


def test_a_bug_is_one_line_and_the_server_goes_on(capfd: pytest.CaptureFixture[str]) -> None:
    answers = [0, 1]
    with serving(lambda: b"%d\n" % (1 // answers.pop(0))) as server:
        with pytest.raises((http.client.HTTPException, ConnectionError)):
            ask(server)
        assert ask(server)[0] == 200
    assert capfd.readouterr().err.count("\n") == 1


def test_scrapes_that_come_together_are_collected_together() -> None:
    entered, go = threading.Event(), threading.Event()
    calls: list[int] = []

    def collect() -> bytes:
        calls.append(1)
        entered.set()
        assert go.wait(10)
        return b"%d\n" % len(calls)

    with serving(collect) as server:
        answers: list[bytes] = []
        threads = [threading.Thread(target=lambda: answers.append(ask(server)[2])) for _scrape in range(8)]
        threads[0].start()
        assert entered.wait(10)
        for thread in threads[1:]:
            thread.start()
        while threading.active_count() < 17:  # this one, the server's, and two of each scrape
            time.sleep(0.01)
        time.sleep(0.1)
        go.set()
        for thread in threads:
            thread.join()
    assert len(answers) == 8
    assert len(calls) < 5  # 2, but for those that a busy machine makes late


def test_somebody_who_says_nothing_is_no_hindrance() -> None:
    with serving(lambda: b"a 1\n") as server, socket.create_connection(("127.0.0.1", server.server_address[1])):
        assert ask(server)[0] == 200


def test_ipv6() -> None:
    if not socket.has_ipv6:
        pytest.skip("cannot: this Python has no IPv6")
    try:
        with serving(lambda: b"a 1\n", "::1") as server:
            assert server.url == f"http://[::1]:{server.server_address[1]}/metrics"
            assert ask(server)[0] == 200
    except OSError as error:
        pytest.skip(f"cannot: this machine has no ::1: {error}")
