"""The agent over a real sshd: put there once, as the login or as root by sudo, and followed over a lost connection."""

import json
import os
import shutil
import signal
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from taco_launch.core.errors import HostError
from taco_launch.core.model.codec import to_json
from taco_launch.core.model.host.hosts import Inventory
from taco_launch.core.model.jobs import JobRecord, JobSpec, JobState
from taco_launch.core.protocol import framing as protocol
from taco_launch.core.protocol.calls.job_list import List, Rows
from taco_launch.core.protocol.calls.jobs import Get
from taco_launch.hosts.fanout import connect
from taco_launch.hosts.remote import agent_bundle
from taco_launch.hosts.remote.credentials import Credentials
from taco_launch.jobs.backend import FollowListener, LogQuery, log_follower
from taco_launch.jobs.backend.agent_client import AgentClient, AgentError
from taco_launch.jobs.backend.agent_location import in_container, on_host
from taco_launch.jobs.backend.log_follower import LogFollower
from tests.agent.conftest import write_agent
from tests.conftest import eventually
from tests.hosts.conftest import NOBODY, host, inventory
from tests.support import sshd as server

pytestmark = [pytest.mark.e2e, pytest.mark.usefixtures("home", "_packed")]
SUDO = ("Defaults:USER secure_path=/run/test/programs:/usr/bin:/bin", "USER ALL=(ALL) ALL")
USERS = (
    server.User("plain", 5001),
    server.User("cshy", 5004, "/bin/tcsh", rc=((".tcshrc", "echo noise\n"),)),
    server.User("asked", 5011, password="pässword", sudo=SUDO),
)
# Its `exec -i NAME` runs the rest right here, with a state folder of its own. Simulated.
DOCKER = """#!/bin/sh
case $1 in
  container) echo running ;;
  exec) shift 3; TACO_LAUNCH_STATE=/run/test/state exec "$@" ;;
esac
"""


@pytest.fixture
def _packed(agent: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Pack the agent once for all tests, which takes a second."""
    monkeypatch.setattr(agent_bundle, "build", lambda _contents: agent.read_bytes())


@pytest.fixture(scope="module")
def own(tmp_path_factory: pytest.TempPathFactory) -> Iterator[server.Sshd]:
    if reason := server.why_not():
        pytest.skip(reason)
    folder = tmp_path_factory.mktemp("sshd")
    docker = folder / "programs" / "docker"
    docker.parent.mkdir()
    docker.write_text(DOCKER)
    docker.chmod(0o755)
    with server.sshd(folder, users=USERS) as made:
        yield made


def of(own: server.Sshd, user: str) -> Inventory:
    return inventory(host(own, user))


@pytest.mark.parametrize("user", ["plain", "cshy"])
def test_on_a_host_of_ones_own(own: server.Sshd, user: str, agent: Path) -> None:
    if user == "cshy" and not shutil.which("tcsh"):
        pytest.skip("tcsh is not installed (apt-get install tcsh)")
    found = of(own, user)
    for _controller in range(2):
        with connect(found, found.hosts, NOBODY) as fanout:
            head = AgentClient(fanout.transports[0], on_host(), "taco-launch -i c.yaml")
            assert head.call(List()) == [Rows(rows=[])]
            with pytest.raises(AgentError, match="job 'x' not found") as caught:
                head.call(Get(name="x"))
            assert caught.value.hint == "list all jobs: taco-launch -i c.yaml list"
    home = own.folder / "home" / user
    (there,) = (home / ".local/state/taco-launch/agent").glob("agent-*")
    assert (there.name, there.read_bytes()) == (agent.name, agent.read_bytes())
    assert there.stat().st_uid == next(each.uid for each in USERS if each.name == user)


def test_in_a_container_as_root_by_sudo(own: server.Sshd) -> None:
    found = of(own, "asked")
    location = replace(in_container("taco-launch-c"), folder="/run/test/state/agent/")
    with connect(found, found.hosts, Credentials("pässword")) as fanout:
        assert AgentClient(fanout.transports[0], location).call(List()) == [Rows(rows=[])]
    (agent,) = (own.folder / "state/agent").glob("agent-*")
    assert (agent.owner(), agent.stat().st_mode & 0o777) == ("root", 0o600)
    with connect(found, found.hosts, NOBODY) as fanout, pytest.raises(HostError, match="sudo asks for a password"):
        AgentClient(fanout.transports[0], location).call(List())


# The n-th call gives the n-th half of the log; the first one does not end by itself.
HALVES = """
import json, os, sys, time
here = os.path.dirname(sys.argv[0])
_header, request = input(), json.loads(input())
print(json.dumps({"protocol": %d}))
at = request["offset"]
print(json.dumps({"op": "piece", "offset": at + 6, "bytes": 6}) + "\\n" + ("first\\n" if at == 0 else "again\\n"), end="", flush=True)
if at == 0:
    time.sleep(600)
print(json.dumps({"op": "job", "job": json.load(open(here + "/done"))}))
print(json.dumps({"op": "end"}))
"""


def test_a_lost_connection_is_made_again(own: server.Sshd, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_follower, "_FIRST_PAUSE_SECONDS", 0.05)
    found = of(own, "plain")
    folder = own.folder / "home/plain/halves/agent"
    folder.mkdir(parents=True)
    write_agent(folder / agent_bundle.name(agent_bundle.sources()), HALVES % protocol.VERSION)
    spec = JobSpec("j", ("true",), found.hosts, head="plain")
    job = {"spec": to_json(spec), "record": to_json(JobRecord("1", JobState.SUCCEEDED)), "folder": "/"}
    (folder / "done").write_text(json.dumps(job))
    location = on_host()
    location = replace(location, script="TACO_LAUNCH_STATE=$HOME/halves\n" + location.script)
    output: list[bytes] = []
    said: list[str] = []
    with connect(found, found.hosts, NOBODY) as fanout:
        head = AgentClient(fanout.transports[0], location)
        follower = LogFollower(head, LogQuery("j"), output.append, FollowListener(say=said.append), patience=60)
        cut = threading.Thread(target=end_sessions, args=(own, output))
        cut.start()
        assert follower.to_end().record.state is JobState.SUCCEEDED
        cut.join()
    assert b"".join(output) == b"first\nagain\n"
    assert "the answer to logs broke off" in said[0]
    assert "connected again" in said[1]


def end_sessions(own: server.Sshd, output: list[bytes]) -> None:
    """Kill what serves the connections once something came over them; the sshd itself stays."""
    eventually(lambda: output)
    sessions = [pid for child in children(own.pid) for pid in (child, *children(child))]
    assert sessions
    for pid in sessions:
        os.kill(pid, signal.SIGKILL)


def children(pid: int) -> list[int]:
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
