"""The operations that the agent answers, on job folders made by hand: no supervisor, no mpirun."""

import io
import json
import os
import socket
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from taco_launch import state
from taco_launch.agent import facts, protocol, records
from taco_launch.agent.folders import JobFolder, Jobs
from taco_launch.agent.logs import Merge, Writer
from taco_launch.agent.serve import serve
from taco_launch.model.codec import to_json
from taco_launch.model.hosts import Host
from taco_launch.model.jobs import JobSpec
from tests.agent.conftest import PYTHON, Family

HOSTS = (Host("me", "127.0.0.1", slots=2, connection="local"),)
PLACED: dict[str, Any] = {"np": 2, "hosts": ["me"], "line": "mpirun -np 2 true"}
FOLLOW: dict[str, Any] = {"rank": None, "offset": 0, "tail": None, "follow": False}


@pytest.fixture
def jobs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Jobs:
    monkeypatch.setenv("TACO_LAUNCH_STATE", str(tmp_path / "state"))
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    return Jobs(tmp_path / "state")


class Answer:
    """What the agent answered: its frames, the raw bytes behind them, and its exit code."""

    def __init__(self, code: int, output: bytes) -> None:
        stream = io.BytesIO(output)
        self.code, self.header, self.raw = code, protocol.read(stream), b""
        self.frames: list[dict[str, Any]] = []
        self.whole = False
        while frame := protocol.read(stream):
            assert not self.whole
            if frame == {"end": True}:
                self.whole = True
                continue
            self.frames.append(frame)
            raw = stream.read(frame.get("bytes", 0))
            assert len(raw) == frame.get("bytes", 0)
            self.raw += raw

    @property
    def error(self) -> dict[str, Any]:
        assert self.code != 0
        found: dict[str, Any] = self.frames[-1]["error"]
        assert found["exit_code"] == self.code
        return found


def call(op: str, **request: Any) -> Answer:
    stdin = protocol.dump(protocol.header(op, "")) + protocol.dump(request)
    return answer(op, stdin)


def answer(op: str, stdin: bytes) -> Answer:
    out = io.BytesIO()
    return Answer(serve(op, "/agent.pyz", io.BytesIO(stdin), out), out.getvalue())


def submitted(jobs: Jobs, name: str, *events: tuple[str, dict[str, Any]]) -> JobFolder:
    """Make the folder of a job with some events behind it."""
    with jobs.create(name) as draft:
        records.write_spec(draft, JobSpec(name=name, command=("true",), hosts=HOSTS))
        writer = records.Events(draft)
        for kind, data in ((state.SUBMITTED, {"id": f"id-{name}"}), *events):
            writer.add(kind, f"why {kind}", **data)
        return jobs.publish(draft, name)


SUCCEEDED = (state.ENDED, {"state": "SUCCEEDED", "exit_code": 0})


@pytest.fixture
def running(jobs: Jobs) -> Iterator[JobFolder]:
    """A job with a supervisor, as far as its lock tells."""
    folder = submitted(jobs, "running", (state.PLACED, PLACED), (state.RUNNING, {"boot": "b", "roots": []}))
    lock = records.try_lock(folder)
    assert lock is not None
    yield folder
    os.close(lock)


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


@pytest.mark.parametrize("stdin", [b"", b"\n", b"hello\n", protocol.dump(protocol.header("list", "")) + b"[1]\n"])
@pytest.mark.usefixtures("jobs")
def test_what_is_no_call(stdin: bytes) -> None:
    assert answer("list", stdin).error["exit_code"] == 2


@pytest.mark.usefixtures("jobs")
def test_an_operation_that_there_is_not() -> None:
    found = call("dance")
    assert "does not know this operation" in found.error["message"]
    assert found.error["hint"] == "upgrade taco-launch on this host"


@pytest.mark.usefixtures("jobs")
def test_a_bug_is_one_line_and_a_file(tmp_path: Path) -> None:
    found = call("get")  # without a name
    assert found.error["message"] == "a bug in the agent: KeyError: 'name'"
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
    assert process.wait(10) == 0
    assert process.stderr is not None
    assert process.stderr.read() == b""
    process.stderr.close()


# --- list and get


def test_list(jobs: Jobs, running: JobFolder) -> None:
    assert running.name == "running"
    submitted(jobs, "done", (state.PLACED, PLACED), SUCCEEDED)
    shown = {frame["job"]["spec"]["name"]: frame["job"]["record"]["state"] for frame in call("list").frames}
    assert shown == {"done": "SUCCEEDED", "running": "RUNNING"}


@pytest.mark.usefixtures("jobs")
def test_list_of_none() -> None:
    found = call("list")
    assert (found.code, found.frames) == (0, [])


@pytest.mark.parametrize(
    "damage",
    [
        lambda folder: records.write_json(folder.spec, {"schema": 99}),
        lambda folder: folder.spec.unlink(),
        lambda folder: folder.spec.write_bytes(b""),
        lambda folder: folder.spec.write_bytes(b"{}"),
        lambda folder: records.Events(folder).add(state.PLACED, np="two"),
    ],
    ids=["other-schema", "no-spec", "empty-spec", "spec-without-schema", "event-without-fields"],
)
def test_a_damaged_job_hides_no_other(jobs: Jobs, damage: Callable[[JobFolder], None]) -> None:
    damage(submitted(jobs, "b"))
    for name in ("a", "c"):
        submitted(jobs, name, SUCCEEDED)
    found = call("list")
    assert found.code == 0
    assert [frame["job"]["spec"]["name"] for frame in found.frames if "job" in frame] == ["a", "c"]
    (warning,) = [frame["warning"] for frame in found.frames if "warning" in frame]
    assert "job b" in warning


def test_get_has_the_events(jobs: Jobs) -> None:
    folder = submitted(jobs, "vgg", (state.PLACED, PLACED), SUCCEEDED)
    (frame,) = call("get", name="vgg").frames
    job = frame["job"]
    assert job["folder"] == str(folder.path)
    assert job["spec"]["hosts"] == to_json(HOSTS)
    assert (job["record"]["id"], job["record"]["np"], job["record"]["exit_code"]) == ("id-vgg", 2, 0)
    assert [event["kind"] for event in job["events"]] == [state.SUBMITTED, state.PLACED, state.ENDED]


@pytest.mark.parametrize("op", ["get", "logs", "stop", "delete"])
@pytest.mark.usefixtures("jobs")
def test_a_job_that_there_is_not(op: str) -> None:
    found = call(op, name="../vgg", by="me", signal=15, grace=None, **FOLLOW)
    assert found.error["exit_code"] == 1
    assert found.error["hint"] == "see them all: taco-launch list"


def test_a_job_that_lost_its_supervisor(jobs: Jobs, family: Family) -> None:
    folder = submitted(jobs, "vgg", (state.PLACED, PLACED))
    process = family.start(("sleep", "60"))
    records.Events(folder).add("launched", boot=_boot(), roots=[family.root(process)])
    (frame,) = call("list").frames
    assert frame["job"]["record"]["state"] == "LOST"
    assert process.wait(5) == -9


def _boot() -> str:
    return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()


# --- logs


@pytest.fixture
def logged(jobs: Jobs) -> JobFolder:
    """A job that has ended, and what its two ranks wrote."""
    folder = submitted(jobs, "vgg", (state.PLACED, PLACED), SUCCEEDED)
    merge = Merge(folder.merged, 1 << 20)
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
    offset = whole.frames[0]["offset"]
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
    assert "job" in found.frames[-1]


def test_a_job_without_output(jobs: Jobs) -> None:
    submitted(jobs, "quiet", SUCCEEDED)
    found = call("logs", name="quiet", **FOLLOW)
    assert (found.code, found.raw) == (0, b"")


# --- stop and delete


def test_stop_asks_the_supervisor(running: JobFolder) -> None:
    found = call("stop", name="running", by="me", signal=2, grace=1.5)
    assert found.frames[-1]["job"]["record"]["state"] == "RUNNING"
    assert records.read_json(running.stop) == {"by": "me", "signal": 2, "grace": 1.5}


@pytest.mark.usefixtures("logged")
def test_stop_of_a_job_that_has_ended(jobs: Jobs) -> None:
    found = call("stop", name="vgg", by="me", signal=15, grace=None)
    assert found.frames[-1]["job"]["record"]["state"] == "SUCCEEDED"
    assert not jobs.get("vgg").stop.exists()


def test_delete(jobs: Jobs, logged: JobFolder) -> None:
    assert call("delete", name="vgg").frames[-1]["job"]["spec"]["name"] == "vgg"
    assert not logged.path.exists()
    assert os.listdir(jobs.path) == []


def test_delete_of_a_running_job(running: JobFolder) -> None:
    found = call("delete", name="running")
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
    assert found.error["message"] == "job vgg: the name is taken"
    assert os.listdir(jobs.path) == ["vgg"]
    assert not jobs.get("vgg").caller.exists()


def test_submit_under_a_name_that_leaves_the_folder(jobs: Jobs, tmp_path: Path) -> None:
    found = call("submit", **request("../../evil"))
    assert found.error["exit_code"] == 2
    assert not jobs.path.exists() or os.listdir(jobs.path) == []
    assert not [path for path in tmp_path.rglob("*") if "evil" in path.name]


def test_submit_of_a_spec_of_the_wrong_shape(jobs: Jobs) -> None:
    found = call("submit", **request("vgg", np="two"))
    assert "JobSpec.np" in found.error["message"]
    assert not jobs.path.exists()


def test_what_stands_in_a_frame_is_json(jobs: Jobs) -> None:
    submitted(jobs, "vgg", SUCCEEDED)
    (frame,) = call("get", name="vgg").frames
    assert json.loads(json.dumps(frame)) == frame


@pytest.mark.usefixtures("jobs")
def test_facts() -> None:
    (frame,) = call("facts", mpirun="/no/such/mpirun", path="/bin", count_slots=True).frames
    assert frame == {
        "host": facts.host(count_slots=True),
        "openmpi": None,
        "problem": f"/no/such/mpirun: not found on {socket.gethostname()}",
    }
