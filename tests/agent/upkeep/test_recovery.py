"""A job without a supervisor is ended and recorded as lost by whoever looks; one that has a supervisor is left alone."""

import os
from collections.abc import Iterator
from typing import Any

import pytest

from taco_launch.agent.host import facts
from taco_launch.agent.store import records
from taco_launch.agent.store.folders import JobFolder
from taco_launch.agent.upkeep import recovery
from taco_launch.core.errors import NoJobError
from taco_launch.core.launch.command_line.env import JOB_ID
from taco_launch.core.lifecycle import state
from taco_launch.core.model.host.hosts import Host
from taco_launch.core.model.jobs import JobSpec, JobState, Policy, Restart
from tests.agent.conftest import Family
from tests.support.agent_calls import locked
from tests.support.patience import HANG

SLEEP = ("sleep", "60")
HOSTS = (Host("me", "me", connection="local"), *(Host(name, name) for name in "abc"))
PLACED: dict[str, Any] = {"np": 1, "hosts": ["me"], "line": "mpirun"}


@pytest.fixture
def waiting(folder: JobFolder, family: Family) -> records.Events:
    """The events of a job whose id is that of the family, and which waits."""
    found = records.Events(folder)
    found.add(state.SUBMITTED, id=family.job_id)
    return found


@pytest.fixture
def events(waiting: records.Events) -> records.Events:
    """The events of such a job that has got its place."""
    waiting.add(state.PLACED, **PLACED)
    return waiting


def write_spec(folder: JobFolder, **policy: Any) -> None:
    spec = JobSpec(name="job", command=("true",), hosts=HOSTS, head="me", policy=Policy(**policy))
    records.write_spec(folder, spec)


@pytest.fixture
def supervised(folder: JobFolder) -> Iterator[int]:
    lock = locked(folder)
    yield lock
    os.close(lock)


@pytest.mark.usefixtures("supervised")
def test_a_supervised_job_is_left_alone(folder: JobFolder, events: records.Events, family: Family) -> None:
    assert events is not None
    process = family.start(SLEEP, marked=True)
    assert recovery.current_record(folder).state is JobState.STARTING
    assert process.poll() is None


def test_a_job_that_has_ended_is_left_alone(folder: JobFolder, events: records.Events, family: Family) -> None:
    events.add(state.ENDED, "done", state="SUCCEEDED", exit_code=0)
    process = family.start(SLEEP, marked=True)
    before = os.listdir(folder.path)
    found = recovery.current_record(folder)
    assert (found.state, found.reason) == (JobState.SUCCEEDED, "done")
    assert os.listdir(folder.path) == before
    assert process.poll() is None


def test_a_lost_job_is_ended(folder: JobFolder, events: records.Events, family: Family) -> None:
    assert events is not None
    folder.caller.write_text("secrets", encoding="ascii")
    process = family.start(SLEEP, marked=True)
    found = recovery.current_record(folder)
    assert (found.state, found.exit_code) == (JobState.LOST, 125)
    assert found.reason == "its supervisor was killed"
    assert process.wait(HANG) == -9
    assert not folder.caller.exists()
    assert recovery.current_record(folder) == found
    lock = locked(folder)
    os.close(lock)


def test_a_job_that_waits_is_left_alone(folder: JobFolder, waiting: records.Events, family: Family) -> None:
    assert waiting is not None
    process = family.start(SLEEP, marked=True)
    assert recovery.current_record(folder).state is JobState.QUEUED
    lock = locked(folder)
    recovery.close(folder, lock)  # as a guard does whose supervisor is gone before there was a place
    assert [event.kind for event in records.read_events(folder)] == [state.SUBMITTED]
    assert process.poll() is None


@pytest.mark.parametrize("kind", [None, state.SUSPENDED, state.RESTARTING])
def test_a_job_that_waits_is_stopped_by_whoever_looks(
    folder: JobFolder, waiting: records.Events, kind: str | None
) -> None:
    if kind is not None:
        waiting.add(kind, delay=10)
    folder.caller.write_text("secrets", encoding="ascii")
    records.write_json(folder.stop, {"by": "somebody", "signal": 2, "grace": None})
    found = recovery.current_record(folder)
    assert (found.state, found.exit_code, found.reason) == (JobState.CANCELLED, 130, "stopped by somebody")
    assert not folder.caller.exists()


def test_a_job_that_waits_is_suspended_by_whoever_looks(folder: JobFolder, waiting: records.Events) -> None:
    assert waiting is not None
    folder.caller.write_text("secrets", encoding="ascii")
    records.write_json(folder.suspend, {"by": "somebody"})
    found = recovery.current_record(folder)
    assert (found.state, found.reason) == (JobState.SUSPENDED, "suspended by somebody")
    assert folder.caller.exists()  # it continues some day
    assert not folder.suspend.exists()
    assert recovery.current_record(folder) == found


def test_what_is_asked_of_a_job_that_is_being_tried_is_its_supervisors(
    folder: JobFolder, waiting: records.Events, supervised: int
) -> None:
    assert waiting is not None
    assert supervised
    records.write_json(folder.stop, {"by": "somebody", "signal": 2, "grace": None})
    assert recovery.current_record(folder).state is JobState.QUEUED


def test_a_lost_job_is_tried_again(folder: JobFolder, events: records.Events, family: Family) -> None:
    write_spec(folder, restart=Restart.ON_FAILURE, backoff_limit=1)
    folder.caller.write_text("what the next attempt needs", encoding="ascii")
    process = family.start(SLEEP, marked=True)
    found = recovery.current_record(folder)
    assert (found.state, found.reason) == (JobState.RESTARTING, "its supervisor was killed")
    assert process.wait(HANG) == -9
    assert folder.caller.exists()
    events.add(state.PLACED, **{**PLACED, "mark": f"{family.job_id}.2", "attempt": 2})
    assert recovery.current_record(folder).state is JobState.LOST  # that was its last attempt


def test_of_a_later_attempt_its_own_processes_are_ended(
    folder: JobFolder, events: records.Events, family: Family
) -> None:
    # The first one was before the host restarted: that is not why this one is lost.
    events.add("launched", boot="another", roots=[])
    events.add(state.RESTARTING, delay=0)
    events.add(state.PLACED, **{**PLACED, "mark": f"{family.job_id}.2", "attempt": 2})
    events.add("launched", boot=facts.boot_id(), roots=[])
    process = family.start(SLEEP, env={JOB_ID: f"{family.job_id}.2"})
    assert recovery.current_record(folder).reason == "its supervisor was killed"
    assert process.wait(HANG) == -9


@pytest.mark.parametrize("asked", ["stop", "suspend"])
def test_a_lost_job_that_was_to_be_ended_is_not_tried_again(
    folder: JobFolder, events: records.Events, asked: str
) -> None:
    assert events is not None
    write_spec(folder, restart=Restart.ON_FAILURE, backoff_limit=1)
    path = folder.stop if asked == "stop" else folder.suspend
    records.write_json(path, {"by": "somebody", "signal": 15, "grace": None})
    assert recovery.current_record(folder).state is (JobState.LOST if asked == "stop" else JobState.SUSPENDED)


def test_every_host_of_every_attempt_is_known(folder: JobFolder, waiting: records.Events) -> None:
    write_spec(folder)
    waiting.add(state.PLACED, **{**PLACED, "hosts": ["me", "a", "b"], "mark": "id"})
    waiting.add(state.PLACED, **{**PLACED, "hosts": ["b", "c"], "mark": "id.2"})
    spec = records.read_spec(folder)
    assert recovery.guests(folder, spec) == {"a": "id", "b": "id.2", "c": "id.2"}


def test_what_left_the_mark_behind_is_found_by_its_recorded_root(
    folder: JobFolder, events: records.Events, family: Family
) -> None:
    process = family.start(SLEEP)
    events.add("launched", boot=facts.boot_id(), roots=[family.root(process)])
    assert recovery.current_record(folder).reason == "its supervisor was killed"
    assert process.wait(HANG) == -9


def test_process_numbers_of_another_boot_mean_nothing(
    folder: JobFolder, events: records.Events, family: Family
) -> None:
    bystander = family.start(SLEEP)
    events.add("launched", boot="another", roots=[family.root(bystander)])
    assert recovery.current_record(folder).reason == "the head or its container restarted"
    assert bystander.poll() is None


def test_roots_of_the_guard_count_too(folder: JobFolder, events: records.Events, family: Family) -> None:
    assert events is not None
    process = family.start(SLEEP)
    lock = locked(folder)
    recovery.close(folder, lock, [family.root(process)])
    assert process.wait(HANG) == -9
    assert records.record(folder).state is JobState.LOST


def test_the_last_words_are_told(folder: JobFolder, events: records.Events) -> None:
    assert events is not None
    folder.debug.write_bytes(b"Traceback\nKeyError: 'umask' \xff\n")
    reason = recovery.current_record(folder).reason
    assert reason.startswith("its supervisor was killed (its last output: KeyError: 'umask'")
    assert str(folder.debug) in reason


def test_a_job_that_is_removed_meanwhile(folder: JobFolder) -> None:
    # `list` and `logs -f` look at jobs that somebody deletes at that moment.
    with pytest.raises(NoJobError):
        recovery.current_record(JobFolder(folder.path.with_name("gone")))
