"""A job whose record is damaged, by a rank or a disk: it is named, it can be deleted, and nothing of any other job depends on it."""

import copy
import json
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from taco_launch.agent.scheduler.job_starter import JobStarter
from taco_launch.agent.store import records
from taco_launch.agent.store.folders import JobFolder, Jobs
from taco_launch.agent.upkeep import scheduler_wakeup
from taco_launch.core.errors import DamagedRecordError
from taco_launch.core.lifecycle import state
from tests.agent.conftest import scratch
from tests.support.agent_calls import PLACED, SUCCEEDED, Answer, call, submitted

WAITS: tuple[tuple[str, dict[str, Any]], ...] = ((state.WAITING, {"hosts": [["me", "no slot is free"]]}),)
FAILED = {"state": "FAILED", "exit_code": 1, "rank": 1, "host": "me", "log": "me:rank-1", "lines": ["no"]}
RUN: tuple[tuple[str, dict[str, Any]], ...] = (
    (state.PLACED, {**PLACED, "mark": "id-bad", "attempt": 1, "warnings": ["w"]}),
    (state.COPIED, {"bytes": 1, "seconds": 0.5, "notes": ["n"]}),
    (state.LAUNCHED, {"boot": "b", "roots": [[1 << 30, 2]], "agent": "/agent.pyz"}),
    (state.RUNNING, {"boot": "b", "roots": [[1 << 30, 2]]}),
    (state.STALLED, {"since": 1.0, "ranks": []}),
    (state.RESTARTING, {"delay": 3.0, "left_out": ["me"], "lost": "me", **FAILED}),
)
LIVES = {"waits": WAITS, "runs": RUN[:4], "restarts": RUN, "ended": (*RUN[:4], (state.ENDED, FAILED))}
WRONG = (
    "Infinity", "-Infinity", "NaN", "-1", "1e400", "1e300", "9" * 4000, "9" * 18, '""', '"' + "x" * (1 << 20) + '"',
    "[]", '["me", 7]', "[" * 90 + "]" * 90, "[" * 200 + "]" * 200, "null", "true", "{}", '{"a": {"b": [{}]}}',
)  # fmt: skip
PLACEHOLDER = "@@"


def fields(value: Any, at: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Name every field of an event, and of what it contains."""
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, part in inner:
        yield (*at, key)
        yield from fields(part, (*at, key))


def replaced(line: bytes, at: tuple[Any, ...], text: str) -> bytes:
    """Return an event with the JSON text in the place of one of its fields."""
    event = json.loads(line)
    inner = event
    for key in at[:-1]:
        inner = inner[key]
    inner[at[-1]] = PLACEHOLDER
    return json.dumps(event).replace(json.dumps(PLACEHOLDER), text).encode()


def survived(answer: Answer, *codes: int) -> Answer:
    assert answer.code in codes
    assert "bug" not in json.dumps(answer.frames[-1:])
    return answer


def serves_the_others(jobs: Jobs) -> None:
    """Every verb about all jobs, and the scheduler, do what they do for a job that is not damaged."""
    (rows,) = [frame for frame in survived(call("list"), 0).frames if frame["op"] == "rows"]
    assert "fine" in {row[0] for row in rows["rows"]}
    survived(call("metrics"), 0)
    survived(call("top", hosts=[{"name": "me", "slots": 2, "gpus": "auto"}], here="me"), 0)
    survived(call("prune", since=0.0, owner=None, dry_run=True), 0)
    starter = JobStarter(jobs)
    starter.look(time.time())
    starter.begin(time.time(), {}, {})
    assert next(entry for entry in starter.entries() if entry.name == "fine").is_ready(time.time())


class _Ended:
    found, unknown = (), ""


@pytest.fixture(autouse=True)
def _no_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scheduler_wakeup, "start", lambda _jobs, _agent, lock: os.close(lock))
    monkeypatch.setattr("taco_launch.agent.api.queries._slots_here", lambda *_words: "not asked")
    monkeypatch.setattr("taco_launch.agent.scheduler.job_starter.JobStarter._start", lambda *_words: False)
    monkeypatch.setattr("taco_launch.agent.host.processes.end", lambda *_words: _Ended())
    monkeypatch.setattr("taco_launch.agent.ssh.commands.ask", lambda *_words, **_more: ())


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.data())
def test_an_event_with_any_field_replaced_stops_nothing(monkeypatch: pytest.MonkeyPatch, data: st.DataObject) -> None:
    with scratch() as path, monkeypatch.context() as patch:
        patch.setenv("TACO_LAUNCH_STATE", str(path))
        jobs = Jobs(path)
        life = LIVES[data.draw(st.sampled_from(sorted(LIVES)), label="life")]
        bad = submitted(jobs, "bad", *life)
        submitted(jobs, "fine")
        jobs.mark("bad")
        jobs.mark("fine")
        lines = bad.events.read_bytes().splitlines()
        number = data.draw(st.integers(0, len(lines) - 1), label="event")
        at = data.draw(st.sampled_from(list(fields(json.loads(lines[number])))), label="field")
        lines[number] = replaced(lines[number], at, data.draw(st.sampled_from(WRONG), label="value"))
        bad.events.write_bytes(b"\n".join(lines) + b"\n")
        serves_the_others(jobs)
        survived(call("get", name="bad"), 0, 1, 5)
        survived(call("stop", names=["bad"], by="me", signal=15), 0, 1, 5)
        survived(call("delete", names=["bad"]), 0, 2)


def damaged(jobs: Jobs, *, field: str = '"np": 2', value: str = '"np": Infinity') -> JobFolder:
    folder = submitted(jobs, "bad", (state.PLACED, PLACED))
    text = folder.events.read_text()
    assert field in text
    folder.events.write_text(text.replace(field, value))
    return folder


def test_a_damaged_job_is_named_and_deleted(jobs: Jobs) -> None:
    folder = damaged(jobs)
    (notice,) = [frame for frame in call("list").frames if "text" in frame]
    assert "job bad: " in notice["text"]
    assert "is damaged" in notice["text"]
    assert "taco-launch delete bad" in notice["text"]
    assert call("get", name="bad").error["kind"] == "record-damaged"
    survived(call("delete", names=["bad"]), 0)
    assert not folder.path.exists()
    assert call("list").frames == [{"op": "rows", "rows": []}]


def test_a_job_with_a_launcher_of_another_version_is_named_and_deleted(jobs: Jobs) -> None:
    folder = submitted(jobs, "newer", (state.PLACED, PLACED), SUCCEEDED)
    folder.spec.write_text(folder.spec.read_text().replace('"mpirun"', '"warp"'))
    (notice,) = [frame for frame in call("list").frames if "text" in frame]
    assert "job newer" in notice["text"]
    assert call("get", name="newer").error["kind"] == "record-damaged"
    survived(call("delete", names=["newer"]), 0)
    assert not folder.path.exists()


@pytest.mark.parametrize("make", [os.mkfifo, os.mkdir, lambda path: path.symlink_to("/dev/zero")])
def test_a_lock_that_is_no_file_is_the_jobs_own_damage(jobs: Jobs, make: Callable[[Path], None]) -> None:
    folder = submitted(jobs, "bad")
    folder.stop.write_text('{"by": "me"}')  # `list` carries that out, for which it needs the lock
    folder.lock.unlink(missing_ok=True)
    make(folder.lock)
    submitted(jobs, "fine")
    jobs.mark("bad")
    jobs.mark("fine")
    serves_the_others(jobs)
    assert call("get", name="bad").error["kind"] == "record-damaged"
    survived(call("delete", names=["bad"], by="me"), 0)
    assert not folder.path.exists()


def test_a_lock_that_is_no_file_does_not_hide_a_supervisor(monkeypatch: pytest.MonkeyPatch, running: JobFolder) -> None:
    monkeypatch.setattr("taco_launch.agent.upkeep.removal._END_SECONDS", 0.2)
    running.lock.unlink()
    os.mkfifo(running.lock)
    assert call("delete", names=["running"]).error["hint"] == "try again: taco-launch delete running"
    assert running.stop.exists()


def test_a_running_job_with_a_launcher_of_another_version_is_stopped_before_it_is_deleted(
    monkeypatch: pytest.MonkeyPatch, running: JobFolder
) -> None:
    monkeypatch.setattr("taco_launch.agent.upkeep.removal._END_SECONDS", 0.2)
    running.spec.write_text(running.spec.read_text().replace('"mpirun"', '"warp"'))
    assert call("delete", names=["running"], by="me").error["hint"] == "try again: taco-launch delete running"
    assert running.stop.exists()


def test_a_damaged_job_that_a_supervisor_has_is_stopped_before_it_is_deleted(
    monkeypatch: pytest.MonkeyPatch, running: JobFolder
) -> None:
    monkeypatch.setattr("taco_launch.agent.upkeep.removal._END_SECONDS", 0.2)
    running.events.write_text(running.events.read_text().replace('"np": 2', '"np": -1'))
    assert call("delete", names=["running"]).error["hint"] == "try again: taco-launch delete running"
    assert running.stop.exists()


@pytest.mark.parametrize(
    "asked", ["[]", "1", '{"by": 1}', '{"by": "x", "signal": Infinity}', '{"by": "x", "signal": 4000}']
)
def test_a_damaged_request_to_stop_is_the_jobs_own_damage(jobs: Jobs, asked: str) -> None:
    folder = submitted(jobs, "bad")
    folder.stop.write_text(asked)
    submitted(jobs, "fine")
    jobs.mark("bad")
    jobs.mark("fine")
    serves_the_others(jobs)


def grown(event: dict[str, Any], **data: Any) -> dict[str, Any]:
    found = copy.deepcopy(event)
    found["data"].update(data)
    return found


@pytest.mark.parametrize(
    "grow",
    [
        lambda event: [grown(event, line="x" * (1 << 24))],
        lambda event: [grown(event, hosts=["n"] * 20_000)],
        lambda event: [grown(event, warnings=["w" * (1 << 20)])] * 40,
    ],
    ids=["event", "hosts", "record"],
)
def test_a_record_that_no_agent_writes_is_refused_by_its_size(jobs: Jobs, grow: Callable[[Any], list[Any]]) -> None:
    folder = submitted(jobs, "bad", (state.PLACED, PLACED))
    first, placed = folder.events.read_text().splitlines()
    folder.events.write_text("\n".join((first, *map(json.dumps, grow(json.loads(placed))))))
    begun = time.process_time()
    with pytest.raises(DamagedRecordError):
        records.record(folder)
    assert time.process_time() - begun < 1


@pytest.mark.nightly
def test_a_record_of_many_small_events_takes_time_in_proportion(tmp_path: Path) -> None:
    folder = JobFolder(tmp_path / "job")
    folder.path.mkdir()
    events = ({"schema": 1, "time": 1.0, "kind": kind} for _each in range(20_000) for kind in ("stopping", "suspended"))
    folder.events.write_text("\n".join(map(json.dumps, events)))
    begun = time.process_time()
    assert len(records.record(folder).transitions) == 40_000
    assert time.process_time() - begun < 10
