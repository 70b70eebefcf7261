"""The keeper of a TensorBoard believes only its own TensorBoard, whoever else listens on this host."""

import contextlib
import json
import re
import socket
import sys
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from taco_launch.agent.host import leases
from taco_launch.agent.store import records
from taco_launch.agent.store.folders import JobFolder, Jobs
from taco_launch.agent.tensorboard import keeper
from taco_launch.core.lifecycle import state
from taco_launch.core.model.jobs import TensorBoard
from taco_launch.core.protocol.calls.jobs import CallerEnvironment
from tests.conftest import eventually
from tests.support.agent_calls import PLACED, submitted

pytestmark = pytest.mark.enable_socket  # they connect to this machine alone

# What TensorBoard does: it imports for a while, listens then, and ends where its port is taken.
STAND_IN = """#!{python}
import http.server, sys, time
time.sleep({seconds})
class Page(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.end_headers()
        self.wfile.write(b"the board")
port = int(sys.argv[sys.argv.index("--port") + 1])
http.server.HTTPServer(({address!r}, port), Page).serve_forever()
"""


@pytest.fixture
def job(jobs: Jobs, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> JobFolder:
    """A running job whose TensorBoard has no grace time."""
    monkeypatch.setenv("TACO_LAUNCH_LEASES", str(tmp_path / "leases"))
    monkeypatch.setattr("taco_launch.agent.tensorboard.keeper.signal.signal", lambda *_: None)
    folder = submitted(jobs, "j", (state.PLACED, PLACED), (state.RUNNING, {"boot": "b", "roots": []}))
    spec = replace(records.read_spec(folder), tensorboard=TensorBoard("runs", 0.0), cwd=str(tmp_path))
    records.write_spec(folder, spec)
    records.write_json(folder.caller, CallerEnvironment(environment={"PATH": str(tmp_path)}, umask=0o077).to_wire())
    return folder


@pytest.fixture
def program(tmp_path: Path) -> Callable[..., None]:
    def write(seconds: float = 0.0, address: str = "127.0.0.1") -> None:
        path = tmp_path / "tensorboard"
        path.write_text(STAND_IN.format(python=sys.executable, seconds=seconds, address=address))
        path.chmod(0o755)

    return write


@contextlib.contextmanager
def kept(job: JobFolder) -> Iterator[None]:
    thread = threading.Thread(target=keeper.main, args=(job,))
    thread.start()
    try:
        yield
    finally:
        records.Events(job).add(state.ENDED, "", state="SUCCEEDED", exit_code=0)
        thread.join(30)
    assert not thread.is_alive()


def told(job: JobFolder) -> dict[str, object]:
    """Return what the keeper tells, when it does."""
    eventually(job.board.exists)
    found: dict[str, object] = json.loads(job.board.read_text())
    return found


def _seen(place: Path) -> set[int]:
    """Return the ports that any user of the host sees: in the names of leases, and on command lines."""
    found = {int(number) for path in place.glob("port-*") for number in re.findall(r"port-(\d+)", path.name)}
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            if b"--logdir" in (line := path.read_bytes()):
                found |= {int(port) for port in re.findall(rb"--port\0(\d+)\0", line)}
    return found - {0}


def test_who_is_quicker_than_tensorboard_gets_nothing(
    job: JobFolder, program: Callable[..., None], tmp_path: Path
) -> None:
    program(seconds=1.0)
    stop, taken = threading.Event(), list[socket.socket]()

    def attack() -> None:
        while not stop.wait(0.02):
            for port in _seen(tmp_path / "leases"):
                with contextlib.suppress(OSError):
                    taken.append(socket.create_server(("127.0.0.1", port)))

    attacker = threading.Thread(target=attack)
    attacker.start()
    try:
        with kept(job):
            port = told(job).get("port")
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/", timeout=5) as answer:
                assert answer.read() == b"the board"
            time.sleep(0.2)
            assert taken == []
            assert leases.Leases(tmp_path / "leases", job.path.parent).holder(int(str(port))) == "job j"
    finally:
        stop.set()
        attacker.join()
        for each in taken:
            each.close()
    assert not job.board.exists()
    assert list((tmp_path / "leases").glob("port-*")) == []


def test_a_port_that_another_job_holds_is_not_used(
    job: JobFolder, program: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    program()
    monkeypatch.setattr(leases.Leases, "take", lambda *_: ())
    monkeypatch.setattr(leases.Leases, "holder", lambda _self, _port: "job other")
    with kept(job):
        problem = str(told(job)["problem"])
    assert re.match(r"TensorBoard was given only ports that other jobs hold: job other has port \d+: see ", problem)


def test_one_that_ends_is_said(job: JobFolder, tmp_path: Path) -> None:
    (tmp_path / "tensorboard").write_text("#!/bin/sh\nexit 3\n")
    (tmp_path / "tensorboard").chmod(0o755)
    with kept(job):
        assert str(told(job)["problem"]).startswith("TensorBoard ended with exit code 3: see ")


def test_one_that_listens_elsewhere_is_not_shown(
    job: JobFolder, program: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    program(address="127.0.0.2")
    monkeypatch.setattr(keeper, "_ANSWER_SECONDS", 1.0)
    with kept(job):
        assert str(told(job)["problem"]).startswith("TensorBoard did not open a port on 127.0.0.1 within 1 s: see ")
