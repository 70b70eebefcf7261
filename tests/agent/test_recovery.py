"""A job without a supervisor is ended and recorded as lost by whoever looks; one that has a supervisor is left alone."""

import os
from collections.abc import Iterator
from typing import Any

import pytest

from taco_launch import state
from taco_launch.agent import facts, records, recovery
from taco_launch.agent.folders import JobFolder
from taco_launch.errors import FAILED, NO_JOB, NoJobError
from taco_launch.model.jobs import JobState
from tests.agent.conftest import Family

SLEEP = ("sleep", "60")
PLACED: dict[str, Any] = {"np": 1, "hosts": ["me"], "line": "mpirun"}


@pytest.fixture
def events(folder: JobFolder, family: Family) -> records.Events:
    """The events of a job whose id is that of the family."""
    found = records.Events(folder)
    found.add(state.SUBMITTED, id=family.job_id)
    return found


@pytest.fixture
def supervised(folder: JobFolder) -> Iterator[int]:
    lock = records.try_lock(folder)
    assert lock is not None
    yield lock
    os.close(lock)


@pytest.mark.usefixtures("supervised")
def test_a_supervised_job_is_left_alone(folder: JobFolder, events: records.Events, family: Family) -> None:
    events.add(state.PLACED, **PLACED)
    process = family.start(SLEEP, marked=True)
    assert recovery.look(folder).state is JobState.STARTING
    assert process.poll() is None


def test_a_job_that_has_ended_is_left_alone(folder: JobFolder, events: records.Events, family: Family) -> None:
    events.add(state.ENDED, "done", state="SUCCEEDED", exit_code=0)
    process = family.start(SLEEP, marked=True)
    before = os.listdir(folder.path)
    found = recovery.look(folder)
    assert (found.state, found.reason) == (JobState.SUCCEEDED, "done")
    assert os.listdir(folder.path) == before
    assert process.poll() is None


def test_a_lost_job_is_ended(folder: JobFolder, events: records.Events, family: Family) -> None:
    events.add(state.PLACED, **PLACED)
    folder.caller.write_text("secrets", encoding="ascii")
    process = family.start(SLEEP, marked=True)
    found = recovery.look(folder)
    assert (found.state, found.exit_code) == (JobState.LOST, FAILED)
    assert found.reason == "its supervisor was killed"
    assert process.wait(5) == -9
    assert not folder.caller.exists()
    assert recovery.look(folder) == found
    lock = records.try_lock(folder)
    assert lock is not None
    os.close(lock)


def test_a_job_that_never_had_a_place(folder: JobFolder, events: records.Events) -> None:
    assert events is not None
    found = recovery.look(folder)
    assert (found.state, found.exit_code) == (JobState.LOST, NO_JOB)


def test_what_left_the_mark_behind_is_found_by_its_recorded_root(
    folder: JobFolder, events: records.Events, family: Family
) -> None:
    process = family.start(SLEEP)
    events.add("launched", boot=facts.boot_id(), roots=[family.root(process)])
    assert recovery.look(folder).reason == "its supervisor was killed"
    assert process.wait(5) == -9


def test_process_numbers_of_another_boot_mean_nothing(
    folder: JobFolder, events: records.Events, family: Family
) -> None:
    bystander = family.start(SLEEP)
    events.add("launched", boot="another", roots=[family.root(bystander)])
    assert recovery.look(folder).reason == "the host restarted"
    assert bystander.poll() is None


def test_roots_of_the_guard_count_too(folder: JobFolder, events: records.Events, family: Family) -> None:
    assert events is not None
    process = family.start(SLEEP)
    lock = records.try_lock(folder)
    assert lock is not None
    recovery.close(folder, lock, [family.root(process)])
    assert process.wait(5) == -9
    assert records.record(folder).state is JobState.LOST


def test_the_last_words_are_told(folder: JobFolder, events: records.Events) -> None:
    assert events is not None
    folder.debug.write_bytes(b"Traceback\nKeyError: 'umask' \xff\n")
    reason = recovery.look(folder).reason
    assert reason.startswith("its supervisor was killed (its last words: KeyError: 'umask'")
    assert str(folder.debug) in reason


def test_a_job_that_is_removed_meanwhile(folder: JobFolder) -> None:
    # `list` and `logs -f` look at jobs that somebody deletes at that moment.
    with pytest.raises(NoJobError):
        recovery.look(JobFolder(folder.path.with_name("gone")))
