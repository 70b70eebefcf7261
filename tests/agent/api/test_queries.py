"""What the agent shows of jobs and hosts: list, get, top, prune; the index of the jobs that have ended."""

import json
import os
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from taco_launch.agent.api import queries
from taco_launch.agent.host import facts
from taco_launch.agent.store import records
from taco_launch.agent.store.folders import JobFolder, Jobs
from taco_launch.agent.upkeep import job_index
from taco_launch.core.lifecycle import state
from taco_launch.core.model.codec import from_json, to_json
from taco_launch.core.model.job_rows import JobRow, decoded, row_of
from taco_launch.core.model.job_view import JobUsage, LiveJob, Usage
from taco_launch.core.model.jobs import JobRecord, JobSpec
from taco_launch.core.protocol.calls.hosts import HostSize, SlotsReply, Top
from taco_launch.core.protocol.calls.job_list import Counted, LiveJobs
from tests.agent.conftest import Family, write_agent
from tests.support.agent_calls import HOSTS, PLACED, SUCCEEDED, call, submitted
from tests.support.patience import HANG
from tests.support.raisers import raiser


def rows() -> dict[str, JobRow]:
    """Return what `list` answers, by name; all of it comes in one frame."""
    (frame,) = [frame for frame in call("list").frames if "rows" in frame]
    return {row.name: row for row in map(decoded, frame["rows"])}


def kept(jobs: Jobs) -> list[str]:
    """Return the names that stand in the index."""
    path = jobs.path / ".index.json"
    return sorted(json.loads(path.read_text(encoding="ascii"))["jobs"]) if path.exists() else []


# --- list and get


def test_list(jobs: Jobs, running: JobFolder) -> None:
    assert running.name == "running"
    submitted(jobs, "done", (state.PLACED, PLACED), SUCCEEDED)
    shown = {name: row.state.value for name, row in rows().items()}
    assert shown == {"done": "SUCCEEDED", "running": "RUNNING"}


@pytest.mark.usefixtures("jobs")
def test_list_of_none() -> None:
    found = call("list")
    assert (found.code, found.frames) == (0, [{"op": "rows", "rows": []}])


@pytest.mark.usefixtures("running")
def test_list_and_get_never_disagree(jobs: Jobs) -> None:
    submitted(jobs, "done", (state.PLACED, PLACED), SUCCEEDED)
    submitted(jobs, "suspended", (state.SUSPENDED, {}))
    said = b"n1/0 | step 1\nn1/0  | 10%\rn1/0  | 20%\r\nn1/1  | \nn1/mpirun | bye\n"
    jobs.get("done").merged.with_name(f"{jobs.get('done').merged.name}.0.log").write_bytes(said)
    for _indexed in range(2):  # made of the events, and then of the index
        found = rows()
        last = {name: row.last_line for name, row in found.items()}
        assert last == {"done": "20%", "running": "", "suspended": ""}
        assert sorted(found) == ["done", "running", "suspended"]
        for name, row in found.items():
            (frame,) = call("get", name=name).frames
            shown = frame["job"]
            made = row_of(from_json(JobSpec, shown["spec"]), from_json(JobRecord, shown["record"]))
            assert row == replace(made, command="true", last_line=last[name])


def test_get_compares_with_the_newest_run_on_the_same_hosts(jobs: Jobs, running: JobFolder) -> None:
    def prints(name: str, rate: float) -> None:
        lines = "".join(f"n1/0 | Iter #{step}: {rate} img/sec per GPU\n" for step in range(5))
        merged = jobs.get(name).merged
        merged.with_name(f"{merged.name}.0.log").write_text(lines)

    for name, rate in (("older", 50.0), ("newer", 100.0), ("silent", 0.0)):
        submitted(jobs, name, (state.PLACED, PLACED), SUCCEEDED)
        if rate:
            prints(name, rate)
    submitted(jobs, "elsewhere", (state.PLACED, {**PLACED, "np": 1}), SUCCEEDED)
    prints("elsewhere", 70.0)
    (frame,) = call("get", name=running.name).frames
    assert frame["job"].get("last_run") is None  # it has printed nothing
    prints(running.name, 66.0)
    (frame,) = call("get", name=running.name).frames
    assert frame["job"]["last_run"] == {"name": "newer", "rate": 100.0}
    (frame,) = call("get", name="newer").frames
    assert frame["job"]["last_run"] == {"name": "older", "rate": 50.0}
    (frame,) = call("get", name="older").frames
    assert frame["job"].get("last_run") is None  # none had ended before it


@pytest.mark.parametrize(
    "damage",
    [
        lambda folder: records.write_json(folder.spec, {"schema": 99}),
        lambda folder: folder.spec.unlink(),
        lambda folder: folder.spec.write_bytes(b""),
        lambda folder: folder.spec.write_bytes(b"{}"),
        lambda folder: records.Events(folder).add(state.PLACED, np="two"),
        lambda folder: folder.spec.write_text(folder.spec.read_text("ascii").replace('"mpirun"', '"slurm"')),
    ],
    ids=["other-schema", "no-spec", "empty-spec", "spec-without-schema", "event-without-fields", "unknown-launcher"],
)
def test_a_damaged_job_hides_no_other(jobs: Jobs, damage: Callable[[JobFolder], None]) -> None:
    damage(submitted(jobs, "b"))
    for name in ("a", "c"):
        submitted(jobs, name, SUCCEEDED)
    assert sorted(rows()) == ["a", "c"]
    found = call("list")
    assert found.code == 0
    (warning,) = [frame["text"] for frame in found.frames if frame["op"] == "warned"]
    assert "job b" in warning


def test_get_has_the_events(jobs: Jobs) -> None:
    folder = submitted(jobs, "vgg", (state.PLACED, PLACED), SUCCEEDED)
    (frame,) = call("get", name="vgg").frames
    job = frame["job"]
    assert job["folder"] == str(folder.path)
    assert job["spec"]["hosts"] == to_json(HOSTS)
    assert (job["record"]["id"], job["record"]["np"], job["record"]["exit_code"]) == ("id-vgg", 2, 0)
    assert [event["kind"] for event in job["events"]] == [state.SUBMITTED, state.PLACED, state.ENDED]


def test_a_job_that_lost_its_supervisor(jobs: Jobs, family: Family) -> None:
    folder = submitted(jobs, "vgg", (state.PLACED, PLACED))
    process = family.start(("sleep", "60"))
    records.Events(folder).add("launched", boot=facts.boot_id(), roots=[family.root(process)])
    assert rows()["vgg"].state.value == "LOST"
    assert process.wait(HANG) == -9


def test_what_running_jobs_use(jobs: Jobs, running: JobFolder) -> None:
    submitted(jobs, "done", (state.PLACED, PLACED), SUCCEEDED)
    now = time.time()
    fresh, old = (Usage(when, 60, cpus=4, cpu=0.5) for when in (now - 5, now - 500))
    for folder in (running, jobs.get("done")):
        records.write_json(folder.usage, to_json(JobUsage(10, (fresh,), (("n1", fresh), ("n2", old)))))
    *_others, frame = call("live").frames
    live = LiveJobs.from_wire(frame)
    assert live.jobs == [LiveJob("running", None, (("n1", fresh),))]
    *_others, frame = call("metrics").frames
    assert Counted.from_wire(frame).live == live.jobs
    (shown,) = call("get", name=running.name).frames
    assert [host for host, _usage in shown["job"]["usage"]] == ["n1"]
    (shown,) = call("get", name="done").frames
    assert shown["job"]["usage"] == []
    running.usage.write_text("{", "ascii")
    (shown,) = call("get", name=running.name).frames
    assert shown["job"]["usage"] == [], "the next sample replaces a damaged file"
    with pytest.raises(ValueError, match="cpu is 7"):
        LiveJobs.from_wire({"jobs": [to_json(LiveJob("a", None, (("n1", replace(fresh, cpu=7.0)),)))]})


# --- the index


def test_a_job_that_waits_is_kept_until_something_is_asked_of_it(jobs: Jobs) -> None:
    folder = submitted(jobs, "a")
    assert rows()["a"].state.value == "QUEUED"
    assert kept(jobs) == ["a"]
    folder.stop.write_text('{"by": "bob", "signal": 15}')
    assert rows()["a"].state.value == "CANCELLED"
    folder = submitted(jobs, "b")
    rows()
    records.Events(folder).add(state.SUSPENDED, "suspended by bob")
    assert (rows()["b"].state.value, kept(jobs)) == ("SUSPENDED", ["a", "b"])
    records.Events(folder).add(state.PLACED, "", **PLACED)
    records.Events(folder).add(state.RESTARTING, "rank 0 failed", delay=60.0)
    assert (rows()["b"].state.value, kept(jobs)) == ("RESTARTING", ["a"]), "it has output"


@pytest.mark.usefixtures("running")
def test_only_jobs_that_have_ended_are_kept(jobs: Jobs, monkeypatch: pytest.MonkeyPatch) -> None:
    submitted(jobs, "done", (state.PLACED, PLACED), SUCCEEDED)
    before = rows()
    assert kept(jobs) == ["done"]
    read: list[str] = []
    real = records.read_spec

    def noted(folder: JobFolder) -> JobSpec:
        read.append(folder.name)
        return real(folder)

    monkeypatch.setattr(records, "read_spec", noted)
    assert rows() == before
    assert read == ["running"]


def test_a_job_of_the_same_name_is_another(jobs: Jobs) -> None:
    jobs.remove(submitted(jobs, "a", SUCCEEDED))
    submitted(jobs, "a", SUCCEEDED)
    rows()
    jobs.remove(jobs.get("a"))
    submitted(jobs, "a", (state.PLACED, PLACED), (state.ENDED, {"state": "FAILED", "exit_code": 3}))
    assert rows()["a"].exit_code == 3


def test_a_job_that_is_gone_is_not_kept(jobs: Jobs) -> None:
    for name in ("a", "b"):
        submitted(jobs, name, SUCCEEDED)
    rows()
    jobs.remove(jobs.get("a"))
    assert sorted(rows()) == kept(jobs) == ["b"]
    jobs.remove(jobs.get("b"))
    assert rows() == {}
    assert ".index.json" not in os.listdir(jobs.path)


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"{",
        b"[]",
        b"null",
        b"\xff",
        b'{"jobs": {}}',
        b'{"fields": [], "jobs": {"a": [1, 2, []]}}',
        b'{"fields": FIELDS, "jobs": []}',
        b'{"fields": FIELDS, "jobs": {"a": 1}}',
        b'{"fields": FIELDS, "jobs": {"a": [STAMP, ["a"]]}}',
        b'{"fields": FIELDS, "jobs": {"a": [STAMP, null]}}',
        b'{"fields": ["of another version"], "jobs": {"a": [STAMP, ROW]}}',
    ],
)
def test_a_damaged_index_is_made_anew(jobs: Jobs, text: bytes) -> None:
    told = submitted(jobs, "a", SUCCEEDED).events.stat()
    fields = json.dumps(list(JobRow.__dataclass_fields__)).encode()
    stamp = b"%d, %d" % (told.st_size, told.st_mtime_ns)
    row = json.dumps(["a"] * len(json.loads(fields))).encode()
    damaged = text.replace(b"FIELDS", fields).replace(b"STAMP", stamp).replace(b"ROW", row)
    (jobs.path / ".index.json").write_bytes(damaged)
    assert rows()["a"].state.value == "SUCCEEDED"
    assert kept(jobs) == ["a"]


def test_an_index_that_cannot_be_written_is_no_error(jobs: Jobs, monkeypatch: pytest.MonkeyPatch) -> None:
    submitted(jobs, "a", SUCCEEDED)
    monkeypatch.setattr(records, "write_json", raiser(OSError(28, "No space left on device")))
    assert sorted(rows()) == ["a"]


def test_guests_are_no_jobs_of_this_head(jobs: Jobs) -> None:
    folder = submitted(jobs, "guest", SUCCEEDED)
    folder.spec.rename(folder.roots)
    found = job_index.current_rows(jobs)
    assert found.rows == []
    assert found.warnings == [
        "this host is the head of no job, but ranks of 1 job of another head ran here, such as guest: is `head` in the inventory right?"
    ]
    submitted(jobs, "own", SUCCEEDED)
    found = job_index.current_rows(jobs)
    assert ([row[0] for row in found.rows], found.warnings) == (["own"], [])


# --- top


def slots_answer(tmp_path: Path, script: str) -> SlotsReply:
    """Ask an agent that answers `slots` by a script, for this host."""
    agent = tmp_path / "slots.pyz"
    write_agent(agent, script)
    request = Top(hosts=[HostSize(name="me", slots=2, gpus="none")], here="me")
    (reply,) = queries.OPERATIONS[Top](Jobs(tmp_path), str(agent), request)
    assert isinstance(reply, SlotsReply)
    return reply


def test_top_of_this_host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TACO_LAUNCH_LEASES", raising=False)
    script = """import json, sys
seen = {"host": " ".join(sys.argv[1:]), "slots": [{"name": "slot-0"}], "gpus": 0}
print(json.dumps({"host": "", "occupancy": seen}))"""
    found = slots_answer(tmp_path, script)
    assert found.occupancy is not None
    assert (found.host, found.occupancy.host, found.occupancy.free) == ("me", "slots 2 none", 1)


@pytest.mark.parametrize(
    ("script", "problem"),
    [
        ("raise SystemExit('nvidia-smi hangs')", "nvidia-smi hangs"),
        ("""print('{"host": "", "problem": "nvidia-smi hangs"}')""", "nvidia-smi hangs"),
        ("""print('{"host": "a", "occupancy": {}}')""", "its answer cannot be read: occ"),
    ],
)
def test_top_of_a_host_that_cannot_tell(tmp_path: Path, script: str, problem: str) -> None:
    found = slots_answer(tmp_path, script)
    assert (found.host, found.occupancy, found.problem[: len(problem)]) == ("me", None, problem)


# --- prune


def ended(jobs: Jobs, name: str, ago: float, owner: str = "") -> None:
    folder = submitted(jobs, name, SUCCEEDED)
    records.write_spec(folder, JobSpec(name=name, command=("true",), hosts=HOSTS, owner=owner))
    lines = [json.loads(line) for line in folder.events.read_text(encoding="ascii").splitlines()]
    moved = [json.dumps({**line, "time": time.time() - ago}) for line in lines]
    folder.events.write_text("\n".join(moved) + "\n", encoding="ascii")


@pytest.mark.usefixtures("running")
@pytest.mark.parametrize(
    ("owner", "dry_run", "gone"),
    [(None, False, ["bobs", "old", "whose"]), ("alice", False, ["old", "whose"]), ("alice", True, ["old", "whose"])],
)
def test_prune(jobs: Jobs, owner: str | None, dry_run: bool, gone: list[str]) -> None:
    ended(jobs, "old", 7200, "alice")
    ended(jobs, "new", 60, "alice")
    ended(jobs, "bobs", 7200, "bob")
    ended(jobs, "whose", 7200)
    found = call("prune", since=3600, owner=owner, dry_run=dry_run)
    assert [row[0] for frame in found.frames for row in frame["rows"]] == gone
    left = {"bobs", "new", "old", "running", "whose"} - (set() if dry_run else set(gone))
    assert set(rows()) == left
