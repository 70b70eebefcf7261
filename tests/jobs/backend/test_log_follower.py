"""Following a job over answers that end and connections that break: nothing twice, nothing missing, and it is said."""

import json
import math
import os
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from taco_launch.core.errors import HostError
from taco_launch.core.model.codec import to_json
from taco_launch.core.model.host.hosts import Container, Host
from taco_launch.core.model.job_view import JobView
from taco_launch.core.model.jobs import JobRecord, JobSpec, JobState
from taco_launch.core.protocol.calls.logs import JobWaiting, StateChange
from taco_launch.hosts.remote import agent_bundle
from taco_launch.hosts.remote.local import LocalTransport
from taco_launch.jobs.backend import FollowListener, LogQuery, log_follower
from taco_launch.jobs.backend.agent import AgentBackend
from taco_launch.jobs.backend.agent_client import AgentClient, AgentError
from taco_launch.jobs.backend.agent_location import here
from taco_launch.jobs.backend.log_follower import LogFollower
from tests.agent.conftest import write_agent

LOG = b"".join(b"gpu1/0 | line %d\n" % number for number in range(40))
SPEC = JobSpec("j", ("true",), (Host("gpu1", "10.0.0.1", identity_file="/k"),), head="gpu1", cwd="/home/me")
DONE = {
    "spec": to_json(SPEC),
    "record": to_json(JobRecord("1", JobState.SUCCEEDED, exit_code=0)),
    "folder": "/var/lib/taco-launch/jobs/j",
}
# An agent that keeps what it is asked, and answers the n-th call as the n-th line of the plan says.
AGENT = """
import json, os, sys
here = os.path.dirname(sys.argv[0])
log = open(here + "/log", "rb").read()
done = json.load(open(here + "/done"))
header, request = json.loads(input()), json.loads(input())
with open(here + "/asked", "a") as asked:
    asked.write(json.dumps(request) + "\\n")
number = len(open(here + "/asked").readlines()) - 1
plan = json.load(open(here + "/plan"))[number]

def say(message, raw=b""):
    os.write(1, json.dumps(message).encode() + b"\\n" + raw)

if plan.get("unready"):
    print("unready python3")
    sys.exit()
say({"protocol": 1})
if plan.get("error"):
    say({"op": "failure", "message": plan["error"], "hint": "taco-launch list", "exit_code": 1})
    sys.exit(1)
placed = {**done, "record": {**done["record"], "state": "STARTING", "exit_code": None}}
if sys.argv[1] == "submit":
    say({"op": "accepted", "name": "j"})
    queued = {**done, "record": {**placed["record"], "state": "QUEUED", "waiting": [["gpu1", "0 of 1 free"]]}}
    say({"op": "job", "job": queued if plan.get("waits") else placed})
for words in plan.get("waits", ()):
    say({"op": "waiting", "why": words})
if plan.get("waits"):
    say({"op": "began", "job": placed})
say({"op": "state", "state": "RUNNING"})
begin = request.get("offset") or 0
if plan.get("tells"):
    say({"op": "place", "offset": begin, **plan["tells"]})
if request.get("tail") is not None:
    begin = plan["tail_is_at"]
    say({"op": "piece", "offset": begin})
end = min(plan["to"], len(log))
raw = log[begin:end]
if raw:
    say({"op": "piece", "offset": end, "bytes": len(raw)}, raw[: len(raw) - plan.get("short", 0)])
if plan.get("short") or plan.get("breaks"):
    sys.exit(1)
if end == len(log):
    say({"op": "job", "job": done})
say({"op": "end"})
"""


class Scripted:
    """A head whose agent answers as planned, and what came of following it."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("TACO_LAUNCH_STATE", str(folder))
        monkeypatch.setattr(log_follower, "_FIRST_PAUSE_SECONDS", 0.01)
        self.folder = folder / "agent"
        self.folder.mkdir()
        write_agent(self.folder / agent_bundle.name(agent_bundle.sources()), AGENT)
        (self.folder / "log").write_bytes(LOG)
        (self.folder / "done").write_text(json.dumps(DONE))
        self.head = AgentClient(
            LocalTransport("gpu1"), replace(here(os.environ, 0), inherit=True, turn=60.0), "taco-launch -i c.yaml"
        )
        self.output: list[bytes] = []
        self.states: list[str] = []
        self.said: list[str] = []

    def plan(self, *answers: dict[str, Any]) -> None:
        (self.folder / "plan").write_text(json.dumps(answers))

    def asked(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in (self.folder / "asked").read_text().splitlines()]

    def follow(self, query: LogQuery, patience: float = math.inf) -> JobView:
        watch = FollowListener(state=self.states.append, say=self.said.append)
        return LogFollower(self.head, query, self.output.append, watch, patience=patience).to_end()


@pytest.fixture
def scripted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Scripted:
    return Scripted(tmp_path, monkeypatch)


def test_answers_that_end_are_asked_for_again_and_nobody_is_told(scripted: Scripted) -> None:
    scripted.plan({"to": 100}, {"to": 100}, {"to": 333}, {"to": 9999})
    job = scripted.follow(LogQuery("j"))
    assert job.record.state is JobState.SUCCEEDED
    assert b"".join(scripted.output) == LOG
    assert [(call["offset"], call["tail"]) for call in scripted.asked()] == [
        (0, None),
        (100, None),
        (100, None),
        (333, None),
    ]
    assert {call["seconds"] for call in scripted.asked()} == {60.0}
    assert scripted.said == []


@pytest.mark.parametrize("cut", [{"breaks": True}, {"short": 7}], ids=["between", "within"])
def test_a_connection_that_breaks_is_made_again_at_its_offset(scripted: Scripted, cut: dict[str, Any]) -> None:
    scripted.plan({"to": 50}, {"to": 200, **cut}, {"to": 300, "unready": True}, {"to": 9999})
    scripted.follow(LogQuery("j"))
    assert b"".join(scripted.output) == LOG
    lost, back = scripted.said
    assert "gpu1: the answer to logs broke off" in lost
    assert "trying to connect again" in lost
    assert back == "gpu1: connected again, following job j from where it broke off"


def test_what_only_the_head_knows_is_asked_for_as_it_told(scripted: Scripted) -> None:
    """How long ago something was is counted once; an offset is one in the log of an attempt."""
    scripted.plan({"to": 50, "tells": {"log": 2, "since": 777.5}}, {"to": 200, "breaks": True}, {"to": 9999})
    scripted.follow(LogQuery("j", ago=60.0, rank=1, timestamps=True))
    asked = [
        [call[key] for key in ("ago", "since", "log", "offset", "rank", "timestamps")] for call in scripted.asked()
    ]
    assert asked == [
        [60.0, None, None, 0, 1, True],
        [None, 777.5, 2, 50, 1, True],
        [None, 777.5, 2, 200, 1, True],
    ]


def test_the_last_lines_are_asked_for_once(scripted: Scripted) -> None:
    scripted.plan({"to": 0, "tail_is_at": 600, "breaks": True}, {"to": 9999})
    scripted.follow(LogQuery("j", tail=2))
    assert b"".join(scripted.output) == LOG[600:]
    assert [(call["offset"], call["tail"]) for call in scripted.asked()] == [(0, 2), (600, None)]


def test_a_head_that_never_answered_is_an_error_at_once(scripted: Scripted) -> None:
    scripted.plan({"to": 0, "unready": True})
    with pytest.raises(HostError, match="gpu1: there is no python3"):
        scripted.follow(LogQuery("j"))
    assert scripted.said == []


def test_what_the_agent_refuses_is_not_asked_for_again(scripted: Scripted) -> None:
    scripted.plan({"to": 50, "breaks": True}, {"to": 0, "error": "job 'j' not found"})
    with pytest.raises(AgentError, match="not found") as caught:
        scripted.follow(LogQuery("j"))
    assert caught.value.hint == "taco-launch -i c.yaml list"


def test_after_long_enough_the_job_is_left_to_itself(scripted: Scripted) -> None:
    scripted.plan({"to": 50, "breaks": True}, *({"to": 0, "unready": True} for _ in range(50)))
    begin = time.monotonic()
    with pytest.raises(HostError, match="job j continues") as caught:
        scripted.follow(LogQuery("j"), patience=0.2)
    assert time.monotonic() - begin > 0.2
    assert len(scripted.asked()) < 51
    assert caught.value.hint == "taco-launch -i c.yaml logs -f j"
    assert caught.value.exit_code == 5


def test_a_log_that_is_not_followed_is_no_long_wait(scripted: Scripted) -> None:
    scripted.plan({"to": 50, "breaks": True}, {"to": 9999})
    with pytest.raises(HostError):
        scripted.follow(LogQuery("j", follow=False))


def test_on_this_machine_a_dead_agent_is_an_error(scripted: Scripted) -> None:
    scripted.head = AgentClient(LocalTransport(), here(os.environ, 0))
    scripted.plan({"to": 50, "breaks": True}, {"to": 9999})
    with pytest.raises(HostError):
        scripted.follow(LogQuery("j"))


def run(scripted: Scripted, spec: JobSpec, environ: dict[str, str]) -> tuple[JobView, list[Any]]:
    """Return the job at its end, and what was told besides its log and its states."""
    told: list[Any] = []
    watch = FollowListener(
        accepted=lambda: told.append("accepted"),
        job=lambda job: told.append(job.record.state),
        state=scripted.states.append,
        waits=told.append,
        say=scripted.said.append,
    )
    return AgentBackend(scripted.head).run(spec, environ, scripted.output.append, watch), told


def test_run_goes_on_over_a_lost_connection(scripted: Scripted) -> None:
    scripted.plan({"to": 70, "breaks": True}, {"to": 9999})
    job, told = run(scripted, SPEC, {})
    assert told == ["accepted", JobState.STARTING]
    assert job.record.exit_code == 0
    assert b"".join(scripted.output) == LOG
    assert [call["op"] for call in scripted.asked()] == ["submit", "logs"]
    assert len(scripted.said) == 2


def test_why_a_job_waits_is_told_until_it_begins(scripted: Scripted) -> None:
    scripted.plan({"to": 9999, "waits": [[["gpu1", "0 of 1 free"]], [["", "job a is before it"]]]})
    job, told = run(scripted, SPEC, {})
    first, second = (("gpu1", "0 of 1 free"),), (("", "job a is before it"),)
    assert told == ["accepted", JobState.QUEUED, first, second, JobState.STARTING]
    assert job.record.exit_code == 0
    assert b"".join(scripted.output) == LOG


def test_a_job_elsewhere_is_given_what_is_named_and_nothing_of_the_controllers(scripted: Scripted) -> None:
    scripted.plan({"to": 9999})
    contained = replace(SPEC, container=Container("image"), env=(("TOKEN", None), ("A", "1"), ("UNSET", None)))
    run(scripted, replace(contained, container=None), {"TOKEN": "secret", "PATH": "/mine"})
    (call,) = scripted.asked()
    assert call["caller"]["environment"] == {"TOKEN": "secret"}
    assert call["caller"]["inherit"] is True
    sent = call["spec"]
    assert sent["cwd"] == ""
    assert [(host["name"], host["connection"], host["identity_file"]) for host in sent["hosts"]] == [
        ("gpu1", "local", None)
    ]


def test_without_a_container_a_job_stays_on_the_head(scripted: Scripted) -> None:
    two = replace(SPEC, hosts=(*SPEC.hosts, Host("gpu2", "10.0.0.2")))
    with pytest.raises(
        Exception, match="host gpu2: cannot be used: without a container jobs run on the head only, which is gpu1"
    ):
        run(scripted, two, {})


def test_reasons_that_take_turns_are_passed_on_once() -> None:
    heard: list[str] = []
    watch = FollowListener(
        state=heard.append,
        waits=lambda words: heard.append("; ".join(f"{host}: {why}" for host, why in words)),
    )
    off, full, free = ("gpu2", "ssh: no route"), ("gpu1", "0 of 2 free"), ("gpu1", "2 of 2 free")
    turns = [(off,), (off, full), (off,), (free, off), (off, full)]
    follower = LogFollower(
        AgentClient(LocalTransport(), here(os.environ, 0)), LogQuery("j"), lambda _data: None, watch, patience=0
    )
    follower.take(iter([JobWaiting(why=reasons) for reasons in turns]))
    assert heard == ["gpu2: ssh: no route", "gpu1: 0 of 2 free", "gpu1: 2 of 2 free"]
    follower.take(iter([StateChange(state="RESTARTING"), JobWaiting(why=(off,))]))
    assert heard[3:] == ["RESTARTING", "gpu2: ssh: no route"]
