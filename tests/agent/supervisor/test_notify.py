"""--notify: servers that answer without end, send elsewhere or say too much, as real sockets."""

import contextlib
import os
import socket
import threading
import time
from collections.abc import Callable, Iterator

import pytest

from taco_launch.agent.supervisor import notify

pytestmark = pytest.mark.enable_socket  # they connect to this machine alone
Serve = Callable[[Callable[[socket.socket], None]], str]
SECONDS = 1.0
EVENT = {"name": "j", "state": "FAILED", "event": "ended", "reason": "r", "hosts": ["h"]}


@pytest.fixture
def serve(monkeypatch: pytest.MonkeyPatch) -> Iterator[Serve]:
    """Have a server do something with each connection whose request has come; gives its URL."""
    monkeypatch.setattr(notify, "_SECONDS", SECONDS)
    monkeypatch.setenv("no_proxy", "*")
    with socket.create_server(("127.0.0.1", 0)) as server:

        def served(answer: Callable[[socket.socket], None]) -> str:
            def run() -> None:
                while True:
                    try:
                        client, _address = server.accept()
                    except OSError:
                        return
                    with client:
                        client.recv(1 << 16)
                        try:
                            answer(client)
                        except OSError:  # it has gone
                            continue

            threading.Thread(target=run, daemon=True).start()
            return f"http://127.0.0.1:{server.getsockname()[1]}/hook"

        yield served
        server.shutdown(socket.SHUT_RDWR)


def test_an_answer(serve: Serve) -> None:
    assert notify.post(serve(lambda client: client.sendall(b"HTTP/1.1 204 fine\r\n\r\n")), EVENT) == ""


def test_a_few_words_that_an_answer_will_come_are_none(serve: Serve) -> None:
    told = b"HTTP/1.1 100 Continue\r\n\r\n" * 2 + b"HTTP/1.1 200 OK\r\n\r\n"
    assert notify.post(serve(lambda client: client.sendall(told)), EVENT) == ""


def test_an_answer_that_always_continues(serve: Serve) -> None:
    def go_on(client: socket.socket) -> None:
        while True:
            client.sendall(b"HTTP/1.1 100 Continue\r\n\r\n" * 100)

    url, before = serve(go_on), os.times()
    assert notify.post(url, EVENT) == "HTTPException: more than 5 answers to one request"
    assert os.times().children_user - before.children_user < SECONDS / 2


def test_a_header_that_drips(serve: Serve) -> None:
    def drip(client: socket.socket) -> None:
        client.sendall(b"HTTP/1.1 200 OK\r\nX-Long: ")
        while True:
            client.sendall(b"x")
            time.sleep(SECONDS / 10)

    begun = time.monotonic()
    assert notify.post(serve(drip), EVENT) == "TimeoutError: no whole answer within 1 s"
    assert time.monotonic() - begun < 10 * SECONDS


def test_a_lookup_that_no_signal_ends(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    """The C library's goes on after a signal, and the interpreter runs no handler until it returns."""

    def look_up(*_asked: object) -> None:
        until = time.monotonic() + 10 * SECONDS
        while time.monotonic() < until:
            with contextlib.suppress(TimeoutError):
                time.sleep(SECONDS)

    monkeypatch.setattr(socket, "getaddrinfo", look_up)
    begun = time.monotonic()
    assert notify.post(serve(lambda _client: None), EVENT) == "TimeoutError: no whole answer within 1 s"
    assert time.monotonic() - begun < 5 * SECONDS


def test_a_redirect_is_not_followed(serve: Serve) -> None:
    asked: list[int] = []
    other = serve(lambda _client: asked.append(1))

    with socket.create_server(("127.0.0.1", 0)) as server:

        def once() -> None:
            client, _address = server.accept()
            with client:
                client.recv(1 << 16)
                client.sendall(b"HTTP/1.1 302 Found\r\nLocation: " + other.encode() + b"\r\n\r\n")

        threading.Thread(target=once, daemon=True).start()
        said = notify.post(f"http://127.0.0.1:{server.getsockname()[1]}/", EVENT)
    assert said == "HTTPError: HTTP Error 302: Found"
    assert asked == []


def test_of_a_long_reason_little_is_kept(serve: Serve) -> None:
    said = notify.post(serve(lambda client: client.sendall(b"HTTP/1.1 500 " + b"no " * 6000 + b"\r\n\r\n")), EVENT)
    assert said.startswith("HTTPError: HTTP Error 500: no no ")
    assert len(said) == 200


def test_a_chat_service_that_refuses_with_success(serve: Serve) -> None:
    body = b'{"errcode": 1, "errmsg": "no robot"}'
    answer = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body)
    url = serve(lambda client: client.sendall(answer))
    assert notify.post(f"dingtalk+{url}", EVENT) == "dingtalk refused it: 1: no robot"
    assert notify.post(url, EVENT) == "", "of another server any success is one"
