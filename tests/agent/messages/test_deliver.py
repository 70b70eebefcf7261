"""Delivering messages: servers that answer without end, send elsewhere or say too much, as real sockets."""

import contextlib
import hashlib
import hmac
import json
import os
import socket
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from taco_launch.agent.messages import deliver
from tests.conftest import eventually
from tests.support.mail_server import mail_server
from tests.support.patience import HANG

pytestmark = pytest.mark.enable_socket  # they connect to this machine alone
Serve = Callable[[Callable[[socket.socket], None]], str]
SECONDS = 1.0
EVENT = {"name": "j", "state": "FAILED", "event": "ended", "reason": "r", "hosts": ["h"]}


@pytest.fixture
def serve(monkeypatch: pytest.MonkeyPatch) -> Iterator[Serve]:
    """Have a server do something with each connection whose request has come; gives its URL."""
    monkeypatch.setattr(deliver, "_SECONDS", SECONDS)
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
    assert deliver.post(serve(lambda client: client.sendall(b"HTTP/1.1 204 fine\r\n\r\n")), EVENT) == ""


def test_a_few_words_that_an_answer_will_come_are_none(serve: Serve) -> None:
    told = b"HTTP/1.1 100 Continue\r\n\r\n" * 2 + b"HTTP/1.1 200 OK\r\n\r\n"
    assert deliver.post(serve(lambda client: client.sendall(told)), EVENT) == ""


def test_an_answer_that_always_continues(serve: Serve) -> None:
    def go_on(client: socket.socket) -> None:
        while True:
            client.sendall(b"HTTP/1.1 100 Continue\r\n\r\n" * 100)

    url, before = serve(go_on), os.times()
    assert deliver.post(url, EVENT) == "HTTPException: more than 5 answers to one request"
    assert os.times().children_user - before.children_user < SECONDS / 2


def test_a_header_that_drips(serve: Serve) -> None:
    def drip(client: socket.socket) -> None:
        client.sendall(b"HTTP/1.1 200 OK\r\nX-Long: ")
        while True:
            client.sendall(b"x")
            time.sleep(SECONDS / 10)

    begun = time.monotonic()
    assert deliver.post(serve(drip), EVENT) == "no complete answer within 1 s"
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
    assert deliver.post(serve(lambda _client: None), EVENT) == "no complete answer within 1 s"
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
        said = deliver.post(f"http://127.0.0.1:{server.getsockname()[1]}/", EVENT)
    assert said == f"HTTP 302 Found to {other}, and redirects are not followed"
    assert asked == []


def test_of_a_long_reason_little_is_kept(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(deliver, "_SECONDS", HANG)  # it is no test of the limit
    said = deliver.post(serve(lambda client: client.sendall(b"HTTP/1.1 500 " + b"no " * 6000 + b"\r\n\r\n")), EVENT)
    assert said.startswith("HTTP 500 no no ")
    assert len(said) == 200


def test_a_chat_service_that_refuses_with_success(serve: Serve) -> None:
    body = b'{"errcode": 1, "errmsg": "no robot"}'
    answer = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body)
    url = serve(lambda client: client.sendall(answer))
    assert deliver.post(f"dingtalk+{url}", EVENT) == "dingtalk refused it: 1: no robot"
    assert deliver.post(url, EVENT) == "", "of another server any success is one"


def test_a_secret_signs_the_body_of_any_other_server() -> None:
    posted: list[bytes] = []

    with socket.create_server(("127.0.0.1", 0)) as server:

        def once() -> None:
            client, _address = server.accept()
            with client:
                posted.append(client.recv(1 << 16))
                if b"\r\n\r\n" in posted[0] and not posted[0].endswith(b"}"):
                    posted.append(client.recv(1 << 16))
                client.sendall(b"HTTP/1.1 200 OK\r\n\r\n")

        threading.Thread(target=once, daemon=True).start()
        assert deliver.post(f"http://127.0.0.1:{server.getsockname()[1]}/hook#SECRET", EVENT) == ""
    head, _blank, body = b"".join(posted).partition(b"\r\n\r\n")
    signature = hmac.new(b"SECRET", body, hashlib.sha256).hexdigest()
    assert f"x-taco-launch-signature: sha256={signature}".encode() in head.lower()
    assert b"SECRET" not in head + body


def test_a_delivery_is_tried_three_times(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []

    def answer(client: socket.socket) -> None:
        asked.append(1)
        client.sendall(b"HTTP/1.1 200 OK\r\n\r\n" if len(asked) == 3 else b"HTTP/1.1 503 later\r\n\r\n")

    monkeypatch.setattr(deliver, "_PAUSES", (0.0, 0.0))
    url = serve(answer)
    assert deliver.deliver(url, EVENT) == ""
    assert len(asked) == 3
    assert deliver.deliver(url, EVENT) == "HTTP 503 later"
    assert len(asked) == 6


def test_a_program_gets_the_message_on_its_input(tmp_path: Path) -> None:
    program, out = tmp_path / "page", tmp_path / "out"
    program.write_text(f"#!/bin/sh\ncat > {out}\necho no such pager >&2\nexit ${{CODE:-0}}\n")
    program.chmod(0o755)
    assert deliver.post(f"exec:{program}", EVENT) == ""
    assert json.loads(out.read_text()) == EVENT
    program.write_text("#!/bin/sh\necho no such pager >&2\nexit 3\n")
    assert deliver.post(f"exec:{program}", EVENT) == f"{program}: exit code 3: no such pager"
    assert deliver.post(f"exec:{tmp_path}/none", EVENT) == f"{tmp_path}/none: No such file or directory"


def test_a_program_that_does_not_end_is_ended_with_all_that_it_started(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(deliver, "_SECONDS", 0.5)
    program, pid = tmp_path / "page", tmp_path / "pid"
    program.write_text(f"#!/bin/sh\nsleep 600 &\necho $! > {pid}\nwait\n")
    program.chmod(0o755)
    assert deliver.post(f"exec:{program}", EVENT) == "no complete answer within 0.5 s"
    sleeper = Path("/proc") / pid.read_text().strip() / "stat"
    eventually(lambda: not sleeper.exists() or sleeper.read_text().rpartition(")")[2].split()[0] == "Z", 10)


def test_an_address_in_a_file(tmp_path: Path) -> None:
    file = tmp_path / "url"
    file.write_text("exec:/bin/true\n")
    assert deliver.post(f"file:{file}", EVENT) == ""
    file.write_text(f"file:{file}\n")
    assert deliver.post(f"file:{file}", EVENT) == f"{file}: its text is not a valid address for messages"
    assert deliver.post(f"file:{tmp_path}/none", EVENT) == f"{tmp_path}/none: No such file or directory"


def test_mail_through_the_sendmail_program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = tmp_path / "sendmail"
    program.write_text(f'#!/bin/sh\n[ "$*" = "-oi -t" ] && cat > {tmp_path}/mail\n')
    program.chmod(0o755)
    monkeypatch.setattr(deliver, "_SENDMAIL", (str(tmp_path / "none"), str(program)))
    assert deliver.post("mailto:a@b.c", EVENT) == ""
    assert "\nTo: a@b.c\n" in (tmp_path / "mail").read_text()
    monkeypatch.setattr(deliver, "_SENDMAIL", (str(tmp_path / "none"),))
    assert deliver.post("mailto:a@b.c", EVENT).startswith("no sendmail program here")


def test_mail_through_a_server() -> None:
    with mail_server() as (port, mails):
        assert deliver.post(f"smtp://127.0.0.1:{port}/?to=a@b.c&from=t@h.i", EVENT) == ""
        ((sender, to, text),) = mails
        assert (sender, to) == ("t@h.i", ["a@b.c"])
        assert "Subject: [taco-launch] j: FAILED" in text
        refused = deliver.post(f"smtp://127.0.0.1:{port}/?to=nobody@b.c&from=t@h.i", EVENT)
        assert refused == "nobody@b.c: 550 no such mailbox"


def test_a_mail_server_that_says_nothing(serve: Serve) -> None:
    port = serve(lambda _client: time.sleep(60)).rpartition(":")[2].partition("/")[0]
    said = deliver.post(f"smtp://127.0.0.1:{port}/?to=a@b.c", EVENT)
    assert said == "no complete answer within 1 s"
