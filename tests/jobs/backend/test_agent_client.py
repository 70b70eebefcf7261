"""The controller's side of a call: frames as they come, the agent's errors as they are, a dying agent as a HostError."""

import json
import os
from pathlib import Path
from typing import Any

import pytest

from taco_launch.core.errors import HostError, NoJobError, TacoLaunchError, UsageError
from taco_launch.core.model.codec import to_json
from taco_launch.core.model.host.hosts import Host
from taco_launch.core.model.jobs import JobSpec
from taco_launch.core.protocol import framing as protocol
from taco_launch.core.protocol.calls import EndOfReplies, Failure, Notice, Reply, Request
from taco_launch.core.protocol.calls.exec_command import Exited
from taco_launch.core.protocol.calls.hosts import SlotsReply
from taco_launch.core.protocol.calls.job_list import List, Rows
from taco_launch.core.protocol.calls.jobs import Get, JobReply
from taco_launch.core.protocol.calls.logs import LogChunk, Logs, Skipped
from taco_launch.core.protocol.calls.stacks import Stacks
from taco_launch.hosts.remote import agent_bundle
from taco_launch.hosts.remote.local import LocalTransport
from taco_launch.jobs.backend.agent import AgentBackend
from taco_launch.jobs.backend.agent_client import AgentClient, AgentError
from taco_launch.jobs.backend.agent_location import here, on_host
from tests.agent.conftest import write_agent

HEADER = protocol.dump(protocol.header("op", "a"))
END = EndOfReplies().encode()
GET = Get(name="a")


# Imported for their replies too, which are then known.
assert issubclass(Exited, Reply)
assert issubclass(SlotsReply, Reply)


class Dance(Request):
    """What no agent knows."""

    op = "dance"


def own_head() -> AgentClient:
    return AgentClient(LocalTransport(), here(os.environ, os.geteuid()))


@pytest.fixture
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("TACO_LAUNCH_STATE", str(tmp_path / "state"))
    return tmp_path / "state"


@pytest.fixture
def installed(state: Path) -> Path:
    """Where the agent lies; a test puts a program of its own there."""
    path = state / "agent" / agent_bundle.name(agent_bundle.sources())
    path.parent.mkdir(parents=True)
    return path


def says(installed: Path, output: bytes, end: str = "") -> AgentClient:
    """Return a head whose agent reads its input, says something, and comes to some end."""
    script = f"import os, sys\nsys.stdin.buffer.read()\nos.write(1, {output!r})\n{end}\n"
    write_agent(installed, script)
    return own_head()


def test_the_agent_is_installed_once(state: Path) -> None:
    head = own_head()
    assert head.call(List()) == [Rows(rows=[])]
    (path,) = (state / "agent").glob("agent-*")
    assert path.name == agent_bundle.name(agent_bundle.sources())
    assert path.read_bytes() == agent_bundle.build(agent_bundle.sources())
    assert path.stat().st_mode & 0o777 == 0o600
    before = path.stat().st_mtime_ns
    own_head().call(List())
    assert path.stat().st_mtime_ns == before


@pytest.mark.parametrize("full", [False, True])
def test_py_spy_is_there_for_what_reads_stacks_and_its_lack_ends_no_call(
    state: Path, monkeypatch: pytest.MonkeyPatch, full: bool
) -> None:
    put = LocalTransport.put

    def on_a_full_disk(self: LocalTransport, data: bytes, path: str, **how: Any) -> None:
        if data == b"program" and full:
            raise HostError("localhost: cannot write: No space left on device")
        put(self, data, path, **how)

    monkeypatch.setattr(LocalTransport, "put", on_a_full_disk)
    monkeypatch.setattr("taco_launch.hosts.remote.py_spy.program", lambda: ("py-spy-1-x86_64", b"program"))
    own_head().call(List())
    assert list((state / "agent").glob("py-spy-*")) == []
    with pytest.raises(NoJobError):  # the agent was asked
        own_head().call(Stacks(name="nosuch"))
    assert [path.read_bytes() for path in (state / "agent").glob("py-spy-*")] == ([] if full else [b"program"])


ECHO = """
import json, sys
print(json.dumps({"protocol": 1}))
told = {"header": json.loads(input()), "request": json.loads(input()), "arguments": sys.argv[1:]}
print(json.dumps({"op": "warned", "text": json.dumps(told)}))
print(json.dumps({"op": "end"}))
"""


def test_a_request_reaches_the_agent(installed: Path) -> None:
    write_agent(installed, ECHO)
    (reply,) = own_head().call(Get(name="vgg \udcff"))
    assert isinstance(reply, Notice)
    assert json.loads(reply.text) == {
        "header": protocol.header("get", ""),
        "request": {"op": "get", "name": "vgg \udcff"},
        "arguments": ["get"],
    }


def test_replies_with_data(installed: Path) -> None:
    replies = [Skipped(count=1), LogChunk(offset=9, data=bytes(range(256)) * 100), LogChunk(offset=9)]
    head = says(installed, HEADER + b"".join(reply.encode() for reply in replies) + END)
    with head.stream(Logs(name="a")) as found:
        assert list(found) == replies


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ({}, "op is 'None'"),
        ({"op": "dance"}, "op is 'dance'"),
        ({"op": "list"}, "op is 'list'"),  # a request
        ({"op": "skipped"}, "skipped: count is missing"),
        ({"op": "skipped", "count": -1}, "count is -1"),
        ({"op": "skipped", "count": 1, "bytes": 1}, "bytes behind skipped"),
        ({"op": "state", "state": "DANCING"}, "'DANCING' is not a valid JobState"),
        ({"op": "place", "offset": 0, "log": 1, "since": float("inf")}, "since is inf"),
        ({"op": "waiting", "why": [["a"]]}, "must be a list of pairs"),
        ({"op": "output", "stream": "x"}, "stream is 'x'"),
        ({"op": "exited", "code": 256}, "code is 256"),
        ({"op": "slots", "host": "a"}, "either its slots or a problem"),
    ],
)
def test_what_is_no_reply(installed: Path, line: dict[str, Any], why: str) -> None:
    head = says(installed, HEADER + protocol.dump(line) + b"x" * 9 + END)
    with pytest.raises(HostError, match="localhost: logs: not a taco-launch message: ") as caught:
        head.call(Logs(name="a"))
    assert why in caught.value.message


def test_a_reply_that_is_needed(installed: Path) -> None:
    head = says(installed, HEADER + Notice(text="x").encode() + END)
    with pytest.raises(HostError, match=r"^localhost: get: not a taco-launch message: the answer has no job$"):
        head.expect(GET, JobReply)


def test_an_answer_of_many_values(installed: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each takes up to a hundred bytes, however short its text is: what a host answers with in all is limited."""
    monkeypatch.setattr("taco_launch.jobs.backend.agent_client._ANSWER_VALUES", 1000)
    line = Rows(rows=[[]] * 600).encode()
    with pytest.raises(HostError, match="million values"):
        says(installed, HEADER + line + line + END).call(List())


def test_an_error_of_the_agent(installed: Path) -> None:
    error = Failure(message="job x: it does not exist", hint="see them all", exit_code=125)
    head = says(installed, HEADER + Notice(text="first").encode() + error.encode())
    with head.stream(GET) as replies:
        assert next(replies) == Notice(text="first")
        with pytest.raises(AgentError, match="job x: it does not exist") as caught:
            next(replies)
    assert (caught.value.hint, caught.value.exit_code) == ("see them all", 125)
    assert isinstance(caught.value, TacoLaunchError)


def test_the_real_agents_errors(state: Path) -> None:
    assert not state.exists()
    with pytest.raises(AgentError, match="job 'nosuch' not found") as caught:
        own_head().call(Get(name="nosuch"))
    assert isinstance(caught.value, NoJobError)
    assert (caught.value.exit_code, caught.value.kind) == (1, "job-not-found")
    assert str(caught.value.hint).endswith("(for jobs on a cluster: taco-launch -i FILE list)")
    with pytest.raises(AgentError, match="does not know") as caught:
        own_head().call(Dance())
    assert isinstance(caught.value, UsageError)
    assert (caught.value.exit_code, caught.value.kind) == (2, "usage")


WHOLE = HEADER + Skipped(count=1).encode() + LogChunk(offset=3, data=b"xyz").encode()


@pytest.mark.parametrize("end", ["sys.exit(1)", "os.kill(os.getpid(), 9)"], ids=["exits", "killed"])
@pytest.mark.parametrize(
    "output",
    [b"", HEADER[:10], HEADER, HEADER + b'{"a"', WHOLE[:-1], WHOLE],
    ids=["nothing", "half-a-header", "header", "half-a-frame", "half-the-bytes", "frames"],
)
def test_an_agent_that_dies(installed: Path, output: bytes, end: str) -> None:
    with pytest.raises(HostError, match="localhost: "):
        says(installed, output, end).call(Logs(name="a"))


def test_an_agent_that_does_not_even_listen(installed: Path) -> None:
    write_agent(installed, "import os\nos._exit(1)")
    for _try in range(3):
        with pytest.raises(HostError):
            own_head().call(Get(name="x" * 300_000))


def test_an_agent_that_is_no_agent(installed: Path) -> None:
    with pytest.raises(TacoLaunchError, match="not a taco-launch message"):
        says(installed, b"Welcome to gpu1!\n").call(List())


@pytest.mark.parametrize(
    ("version", "side"), [(protocol.VERSION + 1, "the controller"), (protocol.VERSION - 1, "localhost")]
)
def test_an_agent_of_another_version(installed: Path, version: int, side: str) -> None:
    head = says(installed, protocol.dump({"protocol": version, "agent": "a", "op": "list"}))
    with pytest.raises(UsageError) as caught:
        head.call(List())
    assert caught.value.hint == f"upgrade taco-launch on {side}"


def test_leaving_the_block_ends_the_call(installed: Path) -> None:
    script = 'import os, time\nprint(\'{"protocol": 1}\\n{"op": "warned", "text": "%d"}\' % os.getpid(), flush=True)\ntime.sleep(60)'
    write_agent(installed, script)
    with own_head().stream(Logs(name="a")) as replies:
        reply = next(replies)
        assert isinstance(reply, Notice)
        pid = reply.text
        assert Path(f"/proc/{pid}").exists()
    assert not Path(f"/proc/{pid}").exists()


def test_no_place_for_the_agent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_bytes(b"")
    monkeypatch.setenv("TACO_LAUNCH_STATE", str(tmp_path / "file"))
    with pytest.raises(HostError, match="cannot write") as caught:
        own_head().call(List())
    assert caught.value.hint == "name another folder with TACO_LAUNCH_STATE"
    assert os.listdir(tmp_path) == ["file"]


def test_what_the_agent_cannot_write_is_told_by_host_and_by_what_can_be_done_there(state: Path) -> None:
    state.mkdir()
    (state / "jobs").write_bytes(b"")
    hosts = (Host("gpu1", "gpu1", connection="local"),)
    spec = JobSpec("vgg", ("true",), hosts, head="gpu1", cwd="/")
    told = []
    for location in (here(os.environ, os.geteuid()), on_host()):
        with pytest.raises(AgentError) as caught:
            AgentBackend(AgentClient(LocalTransport("gpu1"), location)).submit(spec, {})
        told.append((caught.value.message, caught.value.hint, caught.value.exit_code))
    problem = f"{state}/jobs: Not a directory"
    assert told == [
        (problem, "name another folder with TACO_LAUNCH_STATE", 5),
        (f"gpu1: {problem}", f"look at it: ls -ld {state}/jobs", 5),
    ]


HINTED = {
    "spec": to_json(JobSpec("a", ("true",), (Host("gpu1", "10.0.0.1"),))),
    "folder": "/x",
    "record": {
        "id": "1",
        "state": "FAILED",
        "reason": "4 ranks do not fit; taco-launch list",
        "hint": "see who runs what: taco-launch list",
        "warnings": ["no RDMA (taco-launch facts --only rdma tells)", "taco-launch -i FILE setup --only peermem does"],
    },
    "events": [
        {"time": 1.0, "kind": "ended", "reason": "x", "hint": "taco-launch setup --check"},
        {"time": 1.0, "kind": "placed", "reason": "y"},
    ],
}


@pytest.mark.parametrize(("typed", "file"), [("taco-launch -i c.yaml", "-i c.yaml "), ("taco-launch", "")])
def test_all_that_a_job_says_to_type_has_the_inventory_in_it(installed: Path, typed: str, file: str) -> None:
    head = says(installed, HEADER + protocol.dump({"op": "job", "job": HINTED}) + END)
    head.typed = typed
    job = head.expect(GET, JobReply).job
    record, events = job.record, job.events
    assert record.reason == "4 ranks do not fit; taco-launch list"
    assert record.hint == f"see who runs what: taco-launch {file}list"
    assert record.warnings[0] == f"no RDMA (taco-launch {file}facts --only rdma tells)"
    assert record.warnings[1] == f"taco-launch {file or '-i FILE '}setup --only peermem does"
    assert [(event.reason, event.hint) for event in events] == [("x", f"taco-launch {file}setup --check"), ("y", "")]


def test_an_agent_of_this_machine_that_never_answers(installed: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("taco_launch.jobs.backend.agent_client._ANSWER_SECONDS", 0.5)
    head = says(installed, HEADER, end="import time; time.sleep(60)")
    with pytest.raises(HostError, match=r"localhost: \S+ did not end within 0.5 s"):
        head.call(List())
