"""The agent log: one writer, lines of guards in between, nothing lost while a guard has no connection, never a job's end."""

import json
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from taco_launch.agent.logs import agent_log
from taco_launch.agent.logs.agent_log import GuardTrace
from taco_launch.agent.store import records
from taco_launch.agent.store.folders import JobFolder, Jobs
from taco_launch.core import trace
from taco_launch.core.lifecycle import state
from taco_launch.core.model.jobs import Policy
from taco_launch.core.protocol.connection import JsonConnection
from taco_launch.core.protocol.guard_messages import Ended, Reached, Supervise, Trace
from tests.support.agent_calls import SUCCEEDED, call, submitted

AT = "2023-11-14T22:13:20.062Z"
SUPERVISE = Supervise(job_id="j", host_loss_timeout=9, look=False, size="2", gpus="none", agent_log=True, name="n2")


@pytest.fixture(autouse=True)
def untraced(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """End the trace of a test with it."""
    monkeypatch.setattr(agent_log, "_file", None)
    monkeypatch.setattr(trace, "stamp", lambda: AT)
    yield
    trace.start(trace.OFF, lambda _at, _text: None)


@pytest.fixture
def folder(jobs: Jobs) -> JobFolder:
    return submitted(jobs, "a", SUCCEEDED)


def shown() -> list[str]:
    return call("logs", name="a", agent=True).raw.decode().splitlines()


def test_what_supervisor_and_guards_do_is_one_log(folder: JobFolder) -> None:
    agent_log.start(folder, wanted=True)
    records.Events(folder).add(state.RUNNING, "every rank has started")
    agent_log.relay("n2", Trace(at=AT, text="sent reached: why=''"))
    assert shown() == [
        f"{AT} supervisor: running: every rank has started",
        f"{AT} guard of n2: sent reached: why=''",
    ]
    assert call("logs", name="a", agent=True, tail=1).raw.decode().splitlines() == shown()[1:]


def test_a_job_without_one(folder: JobFolder) -> None:
    agent_log.start(folder, wanted=False)
    records.Events(folder).add(state.RUNNING, "x")
    agent_log.relay("n2", Trace(at=AT, text="x"))
    refused = call("logs", name="a", agent=True)
    assert refused.error["message"] == "job a: it has no agent log"
    assert refused.error["hint"] == "only jobs that are started with --agent-log keep an agent log"


def test_it_is_for_its_owner_and_has_a_size(folder: JobFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(agent_log, "_BYTES", 4096)
    agent_log.start(folder, wanted=True)
    for number in range(200):
        trace.decision(f"{number} {'x' * 80}")
    files: list[Path] = sorted(folder.logs.glob("agent.*"))
    assert sum(file.stat().st_size for file in files) <= 4096
    assert {file.stat().st_mode & 0o777 for file in files} == {0o600}
    assert {file.stat().st_mode & 0o77 for file in (folder.path, folder.path.parent)} == {0}
    assert shown()[-1].startswith(f"{AT} supervisor: 199 ")


def test_a_guard_of_another_host_keeps_its_lines_there_too(folder: JobFolder) -> None:
    ours, theirs = map(JsonConnection, socket.socketpair())
    guard = GuardTrace(folder, elsewhere=True)
    guard.begin(ours, SUPERVISE)
    trace.decision("a")
    ours.close()
    trace.decision("nobody listens")
    assert shown() == [f"{AT} guard of n2: a", f"{AT} guard of n2: nobody listens"]
    assert [message.text for message in theirs.receive() or () if isinstance(message, Trace)] == ["a"]
    theirs.close()


def test_the_guard_of_the_head_goes_on_with_the_log_of_a_supervisor_that_is_gone(folder: JobFolder) -> None:
    lost, _gone = map(JsonConnection, socket.socketpair())
    guard = GuardTrace(folder, elsewhere=False)
    guard.begin(lost, SUPERVISE)
    lost.close()
    trace.decision("before")
    assert not list(folder.logs.glob("agent.*"))  # the supervisor's alone
    guard.take_over()
    records.Events(folder).add(state.ENDED, "its supervisor died")
    assert shown() == [
        f"{AT} guard of n2: before",
        f"{AT} guard of n2: the supervisor is gone: its guard ends the job",
        f"{AT} guard of n2: ended: its supervisor died",
    ]


def test_a_job_of_which_none_is_wanted_has_none(folder: JobFolder) -> None:
    ours, theirs = map(JsonConnection, socket.socketpair())
    guard = GuardTrace(folder, elsewhere=True)
    guard.begin(ours, SUPERVISE.replace(agent_log=False))
    trace.decision("x")
    guard.take_over()
    assert theirs.receive() == []
    assert not list(folder.logs.glob("agent.*"))
    ours.close()
    theirs.close()


def test_a_job_of_an_agent_before_has_none(folder: JobFolder) -> None:
    written = json.loads(folder.spec.read_text("utf-8"))
    del written["spec"]["policy"]["agent_log"]
    folder.spec.write_text(json.dumps(written), "utf-8")
    assert records.read_spec(folder).policy == Policy()


def test_no_job_ends_for_its_log(folder: JobFolder) -> None:
    (folder.logs / "agent.0.log").symlink_to("agent.0.log")  # a rank may put anything there
    agent_log.start(folder, wanted=True)
    trace.decision("x")
    ours, theirs = map(JsonConnection, socket.socketpair())
    guard = GuardTrace(folder, elsewhere=True)
    guard.begin(ours, SUPERVISE)
    trace.decision("y")
    guard.take_over()
    assert [message.text for message in theirs.receive() or () if isinstance(message, Trace)][:1] == ["y"]
    ours.close()
    theirs.close()


def test_a_guard_sends_its_lines_before_the_messages_that_they_are_about(folder: JobFolder) -> None:
    ours, theirs = map(JsonConnection, socket.socketpair())
    GuardTrace(folder, elsewhere=False).begin(ours, SUPERVISE)
    ours.post(Ended())
    messages = theirs.receive()
    assert messages is not None
    first, second = messages
    assert isinstance(first, Trace)
    assert (first.text[:11], second) == ("sent ended:", Ended(left=[]))
    ours.close()
    theirs.close()


def test_a_guard_keeps_the_last_lines_while_nobody_listens(folder: JobFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(agent_log, "_WAITING_LINES", 3)
    guard = GuardTrace(folder, elsewhere=False)
    lost, _gone = map(JsonConnection, socket.socketpair())
    guard.begin(lost, SUPERVISE)
    lost.close()
    for number in range(5):
        trace.decision(str(number))
    ours, theirs = map(JsonConnection, socket.socketpair())
    guard.begin(ours, SUPERVISE)
    assert [message.text for message in theirs.receive() or () if isinstance(message, Trace)] == ["2", "3", "4"]


def test_a_supervisor_that_does_not_read_is_not_flooded(folder: JobFolder) -> None:
    ours, theirs = map(JsonConnection, socket.socketpair())
    GuardTrace(folder, elsewhere=False).begin(ours, SUPERVISE)
    for _line in range(20_000):
        trace.message("sent", Reached(why="x" * 90))
    assert ours.waiting < agent_log._WAITING_BYTES + 1000
    theirs.close()
