"""The operations that the agent answers, on job folders made by hand: no supervisor, no mpirun."""

import json
import os
import socket
import subprocess
from pathlib import Path
from typing import Any

import pytest

from taco_launch.agent.api import queries, submission
from taco_launch.agent.host import facts
from taco_launch.agent.logs.merge import LogMerge
from taco_launch.agent.logs.segments import Writer
from taco_launch.agent.store import records
from taco_launch.agent.store.folders import JobFolder, Jobs
from taco_launch.core.lifecycle import state
from taco_launch.core.model.codec import to_json
from taco_launch.core.model.jobs import JobSpec, Policy
from taco_launch.core.protocol import framing as protocol
from taco_launch.core.protocol.calls.jobs import Get
from tests.agent.conftest import PYTHON
from tests.support.agent_calls import HOSTS, PLACED, SUCCEEDED, answer, call, submitted
from tests.support.patience import HANG

FOLLOW: dict[str, Any] = {"rank": None, "offset": 0, "tail": None, "follow": False}


# --- the call itself


@pytest.mark.usefixtures("jobs")
def test_the_header_comes_first() -> None:
    assert call("list").header == protocol.header("list", "/agent.pyz")


@pytest.mark.usefixtures("jobs")
def test_a_whole_answer_says_that_it_is_whole() -> None:
    # Whoever reads it can tell it from that of an agent, or of a connection, that died on the way.
    assert call("list").whole
    assert not call("get", name="nosuch").whole


@pytest.mark.usefixtures("jobs")
def test_a_caller_of_another_version() -> None:
    found = answer("list", protocol.dump({"protocol": protocol.VERSION + 1}))
    assert found.error["hint"] == "upgrade taco-launch on the host"
    assert found.error["exit_code"] == 2


@pytest.mark.parametrize("stdin", [b"\n", b"hello\n", protocol.dump(protocol.header("list", "")) + b"[1]\n"])
@pytest.mark.usefixtures("jobs")
def test_what_is_no_call(stdin: bytes) -> None:
    assert answer("list", stdin).error["exit_code"] == 2


@pytest.mark.usefixtures("jobs")
def test_an_operation_that_there_is_not() -> None:
    found = call("dance")
    assert "does not know this operation" in found.error["message"]
    assert found.error["hint"] == "upgrade taco-launch on this host"


@pytest.mark.usefixtures("jobs")
def test_a_request_without_its_fields() -> None:
    assert "cannot read this request: get: name is missing: its version" in call("get").error["message"]
    assert "cannot read this request: name: str is needed, got int" in call("get", name=1).error["message"]
    assert call("get").error["exit_code"] == 2


@pytest.mark.usefixtures("jobs")
def test_a_bug_is_one_line_and_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(queries.OPERATIONS, Get, lambda jobs, *_words: jobs.nosuch)
    old = [tmp_path / f"taco-launch-bug-{number}.log" for number in range(6)]
    for number, path in enumerate((*old, tmp_path / "taco-launch-bug-others.txt")):
        path.touch()
        os.utime(path, (number, number))
    found = call("get", name="a")
    assert [path.exists() for path in old] == [False, False, True, True, True, True]
    for path in old[2:]:
        path.unlink()
    assert found.error["message"] == "a bug in the agent: AttributeError: 'Jobs' object has no attribute 'nosuch'"
    (log,) = tmp_path.glob("taco-launch-bug-*.log")
    assert str(log) in found.error["hint"]
    assert "Traceback" in log.read_text(encoding="utf-8")


def test_a_controller_that_goes_away(jobs: Jobs, agent: Path) -> None:
    folder = submitted(jobs, "big", SUCCEEDED)
    Writer(folder.merged, 1 << 30).write(b"x" * (1 << 20))
    stdin = protocol.dump(protocol.header("logs", "")) + protocol.dump({"name": "big", **FOLLOW})
    process = subprocess.Popen(
        [*PYTHON, str(agent), "logs"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write(stdin)
    process.stdin.close()
    process.stdout.readline()
    process.stdout.close()
    assert process.wait(HANG) == 0
    assert process.stderr is not None
    assert process.stderr.read() == b""
    process.stderr.close()


def test_an_agent_without_a_call_ends_in_silence(agent: Path) -> None:
    """The controller starts one ahead, and finds an unknown option before it calls."""
    process = subprocess.Popen(
        [*PYTHON, str(agent), "submit"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    assert process.stdout is not None
    process.stdout.close()
    assert process.stdin is not None
    process.stdin.close()
    assert process.wait(HANG) == 0
    assert process.stderr is not None
    assert process.stderr.read() == b""
    process.stderr.close()


@pytest.mark.parametrize("op", ["get", "logs", "stop", "delete"])
@pytest.mark.usefixtures("jobs")
def test_a_job_that_there_is_not(op: str) -> None:
    found = call(op, name="../vgg", names=["../vgg"], by="me", signal=15, grace=None, **FOLLOW)
    assert found.error["exit_code"] == 1
    assert found.error["hint"] == "list all jobs: taco-launch list"


# --- logs


@pytest.fixture
def logged(jobs: Jobs) -> JobFolder:
    """A job that has ended, and what its two ranks wrote."""
    folder = submitted(jobs, "vgg", (state.PLACED, PLACED), SUCCEEDED)
    merge = LogMerge(folder.merged, 1 << 20)
    for rank in range(2):
        merge.add(folder.rank(rank), f"me/{rank}")
        Writer(folder.rank(rank), 1 << 20).write(b"".join(b"%d of %d\n" % (line, rank) for line in range(3)))
    merge.step()
    return folder


@pytest.mark.usefixtures("logged")
def test_the_merged_log() -> None:
    found = call("logs", name="vgg", **FOLLOW)
    assert found.raw == b"".join(b"me/%d | %d of %d\n" % (rank, line, rank) for rank in range(2) for line in range(3))
    assert found.frames[-1]["job"]["record"]["state"] == "SUCCEEDED"


@pytest.mark.usefixtures("logged")
def test_the_log_of_a_rank() -> None:
    assert call("logs", name="vgg", **{**FOLLOW, "rank": 1}).raw == b"0 of 1\n1 of 1\n2 of 1\n"


@pytest.mark.usefixtures("logged")
def test_a_rank_that_there_is_not() -> None:
    found = call("logs", name="vgg", **{**FOLLOW, "rank": 2})
    assert found.error["message"].startswith("job vgg: ")
    assert "rank 2" in found.error["message"]
    assert found.error["hint"] == "its ranks are 0 to 1"


def test_a_rank_that_has_said_nothing_yet(running: JobFolder) -> None:
    found = call("logs", name=running.name, **{**FOLLOW, "rank": 1})
    assert (found.code, found.raw) == (0, b"")


@pytest.mark.usefixtures("logged")
def test_logs_go_on_where_they_were() -> None:
    whole = call("logs", name="vgg", **FOLLOW)
    offset = whole.frames[-2]["offset"]
    assert offset == len(whole.raw)
    assert call("logs", name="vgg", **{**FOLLOW, "offset": 5}).raw == whole.raw[5:]
    assert call("logs", name="vgg", **{**FOLLOW, "offset": offset}).raw == b""


@pytest.mark.usefixtures("logged")
def test_the_last_lines() -> None:
    whole = call("logs", name="vgg", **FOLLOW).raw.splitlines(keepends=True)
    for lines in (0, 1, 4, 99):
        assert call("logs", name="vgg", **{**FOLLOW, "tail": lines}).raw == b"".join(
            whole[len(whole) - min(lines, 6) :]
        )


@pytest.mark.usefixtures("logged")
def test_following_a_job_that_has_ended() -> None:
    found = call("logs", name="vgg", **{**FOLLOW, "follow": True})
    assert len(found.raw.splitlines()) == 6
    assert found.frames[-1]["op"] == "job"


def test_a_job_without_output(jobs: Jobs) -> None:
    submitted(jobs, "quiet", SUCCEEDED)
    found = call("logs", name="quiet", **FOLLOW)
    assert (found.code, found.raw) == (0, b"")


# --- stop and delete


def test_stop_asks_the_supervisor(running: JobFolder) -> None:
    found = call("stop", names=["running"], by="me", signal=2, grace=1.5)
    assert found.frames[-1]["job"]["record"]["state"] == "RUNNING"
    assert records.read_json(running.stop) == {"by": "me", "signal": 2, "grace": 1.5}


@pytest.mark.usefixtures("logged")
def test_stop_of_a_job_that_has_ended(jobs: Jobs) -> None:
    found = call("stop", names=["vgg"], by="me", signal=15, grace=None)
    assert found.frames[-1]["job"]["record"]["state"] == "SUCCEEDED"
    assert not jobs.get("vgg").stop.exists()


def test_delete(jobs: Jobs, logged: JobFolder) -> None:
    assert call("delete", names=["vgg"]).frames == [{"op": "deleted", "name": "vgg"}]
    assert not logged.path.exists()
    assert [name for name in os.listdir(jobs.path) if not name.startswith(".")] == []


def test_delete_of_a_running_job(running: JobFolder) -> None:
    found = call("delete", names=["running"])
    assert found.error["message"] == "job running: it is RUNNING"
    assert found.error["hint"] == "taco-launch stop running"
    assert running.path.exists()


# --- submit


def request(name: str, **fields: Any) -> dict[str, Any]:
    spec = to_json(JobSpec(name=name, command=("true",), hosts=HOSTS))
    caller = {"environment": {"TOKEN": "secret"}, "umask": 0o022}
    return {"spec": {**spec, **fields}, "caller": caller, "follow": False}


@pytest.mark.usefixtures("logged")
def test_submit_under_a_taken_name(jobs: Jobs) -> None:
    found = call("submit", **request("vgg"))
    assert found.error["message"] == "job vgg: the name is taken: SUCCEEDED, submitted 0 s ago"
    assert [name for name in os.listdir(jobs.path) if not name.startswith(".")] == ["vgg"]
    assert not jobs.get("vgg").caller.exists()


@pytest.mark.usefixtures("logged")
def test_submit_in_the_place_of_a_job_that_has_ended(jobs: Jobs, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(submission, "_PLACE_SECONDS", 0.0)
    monkeypatch.setattr("taco_launch.agent.api.submission.scheduler.admit", lambda *_: None)
    assert (
        call("submit", **request("vgg")).error["hint"]
        == "choose another --name, or add --replace: it deletes the old one"
    )
    policy = to_json(Policy(replace=True))
    assert (
        call("submit", **request("vgg", policy=policy, owner="mallory"))
        .error["message"]
        .startswith("job vgg: the name")
    )
    before = records.record(jobs.get("vgg")).id
    call("submit", **request("vgg", policy=policy, command=["false"]))
    assert records.read_spec(jobs.get("vgg")).command == ("false",)
    assert records.record(jobs.get("vgg")).id != before


def test_submit_under_a_name_that_leaves_the_folder(jobs: Jobs, tmp_path: Path) -> None:
    found = call("submit", **request("../../evil"))
    assert found.error["exit_code"] == 2
    assert not jobs.path.exists() or os.listdir(jobs.path) == []
    assert not [path for path in tmp_path.rglob("*") if "evil" in path.name]


def test_submit_of_a_spec_of_the_wrong_shape(jobs: Jobs) -> None:
    found = call("submit", **request("vgg", np="two"))
    assert "spec.np: int is needed" in found.error["message"]
    assert not jobs.path.exists()


def test_what_stands_in_a_frame_is_json(jobs: Jobs) -> None:
    submitted(jobs, "vgg", SUCCEEDED)
    (frame,) = call("get", name="vgg").frames
    assert json.loads(json.dumps(frame)) == frame


@pytest.mark.usefixtures("jobs")
def test_facts() -> None:
    (frame,) = call("facts", mpirun="/no/such/mpirun", path="/bin", count_slots=True).frames
    assert frame == {
        "op": "known",
        "known": {**facts.host(count_slots=True).to_wire(), "models": [], "image": []},
        "openmpi": None,
        "problem": f"/no/such/mpirun: not found on {socket.gethostname()}",
        "topology": None,
    }
