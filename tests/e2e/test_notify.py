"""--notify: what a real web server is told of a job's end, and what `get` tells where nobody listens."""

import http.server
import json
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import Taco, eventually
from tests.support.mail_server import mail_server

pytestmark = pytest.mark.e2e


@pytest.fixture
def posted() -> Iterator[tuple[str, list[dict[str, Any]]]]:
    """The URL of a server, and what was posted to it; it refuses the first."""
    told: list[dict[str, Any]] = []
    asked: list[str] = []

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            asked.append(self.path)
            if len(asked) > 1:
                told.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
            self.send_response(204 if told else 503)
            self.end_headers()

        def log_message(self, *_words: object) -> None:
            """Print nothing."""

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}/hook?of=me", told
        server.shutdown()


def test_the_end_of_a_job_is_posted(taco: Taco, posted: tuple[str, list[dict[str, Any]]]) -> None:
    url, told = posted
    done = taco(
        "run", "--name", "bad", "--np", "2", "--notify", url, "--", "sh", "-c", "exit $((3 * OMPI_COMM_WORLD_RANK))"
    )
    assert done.returncode == 3
    eventually(lambda: told)
    (body,) = told
    assert body.pop("reason").startswith("rank 1 on localhost exited with code 3")
    assert body.pop("from") == socket.gethostname()
    assert body.pop("next") == ["taco-launch get bad"]
    assert body == {"name": "bad", "state": "FAILED", "event": "ended", "hosts": ["localhost"], "cluster": "local"}


def test_a_failed_delivery_is_an_event_and_no_failure(taco: Taco) -> None:
    taco.ok("run", "--name", "quiet", "--np", "1", "--notify", "http://127.0.0.1:9/", "--", "true")

    def said() -> str:
        return next((one["reason"] for one in taco.job("quiet")["events"] if one["kind"] == "not-notified"), "")

    assert eventually(said, 20, "the delivery to fail").startswith(
        "--notify: the message about the job's end was not delivered: Connection refused"
    )
    assert taco.job("quiet")["state"] == "SUCCEEDED"


@pytest.mark.parametrize("url", ["ftp://host/x", "mail me", "https://user:pw@host/"])
def test_what_is_no_url(taco: Taco, url: str) -> None:
    done = taco("run", "--np", "1", "--notify", url, "--", "true")
    assert done.returncode == 2
    assert f"error: --notify: {url!r} is not a valid address for messages" in done.stderr


def test_the_inventory_names_who_gets_mail_about_failures(taco: Taco, tmp_path: Path) -> None:
    with mail_server() as (port, mails):
        inventory = tmp_path / "i.yaml"
        address = f"smtp://127.0.0.1:{port}/?to=ops@example.com"
        inventory.write_text(f"cluster: c\nhosts: {{localhost: {{connection: local}}}}\nnotify: ['{address}']\n")
        taco.ok("-i", str(inventory), "run", "--name", "good", "--np", "1", "--", "true")
        assert taco("-i", str(inventory), "run", "--name", "bad", "--np", "1", "--", "false").returncode == 1
        eventually(lambda: mails)
        ((_sender, to, text),) = mails
        assert (to, "Subject: [taco-launch] bad: FAILED" in text) == (["ops@example.com"], True)
        assert f"cluster: c\ntaco-launch -i {inventory} get bad" in text.replace("=\n", "")
        assert not [event for event in taco.job("bad")["events"] if event["kind"] == "not-notified"]


def test_a_message_shows_the_cause_and_no_secret(taco: Taco, tmp_path: Path) -> None:
    sent, program = tmp_path / "sent", tmp_path / "page"
    program.write_text(f"#!/bin/sh\ncat > {sent}.part && mv {sent}.part {sent}\n")
    program.chmod(0o755)
    script = "echo login password=hunter2hunter2; python3 -c 'import nosuchmodule'"
    taco("run", "--name", "bad", "--np", "1", "--notify", f"exec:{program}", "--", "sh", "-c", script)
    body = json.loads(eventually(lambda: sent.exists() and sent.read_text()))
    assert "cause: The Python of a rank on localhost has no module nosuchmodule." in body["reason"]
    assert "next: " in body["reason"]
    assert "hunter2" not in json.dumps(body)


def test_the_message_of_a_waiting_job_that_is_deleted(taco: Taco, tmp_path: Path) -> None:
    sent, program = tmp_path / "sent", tmp_path / "page"
    program.write_text(f"#!/bin/sh\ncat > {sent}.part && mv {sent}.part {sent}\n")
    program.chmod(0o755)
    taco.ok("submit", "--name", "d1", "--np", "1", "--suspend", "--notify", f"exec:{program}", "--", "true")
    done = taco.ok("delete", "--yes", "d1")
    body = json.loads(eventually(lambda: sent.exists() and sent.read_text()))
    assert (body["name"], body["event"], body["state"]) == ("d1", "ended", "CANCELLED")
    assert "Traceback" not in done.stderr + taco.ok("list").stderr


def test_an_undelivered_message_of_a_deleted_job_leaves_no_traceback(taco: Taco) -> None:
    taco.ok("submit", "--name", "d1", "--np", "1", "--suspend", "--notify", "exec:/bin/false", "--", "true")
    done = taco.ok("delete", "--yes", "d1")
    time.sleep(1)
    assert "Traceback" not in done.stderr + taco.ok("list").stderr
