"""Since when a job waits, and what is due when."""

import pytest

from taco_launch.core.errors import CANNOT_PLACE, DEADLINE
from taco_launch.core.lifecycle import state, waits
from taco_launch.core.model.jobs import Event, JobRecord, JobState, Policy, Transition


def test_who_is_resumed_comes_in_behind_who_waits() -> None:
    events = [Event(1, state.SUBMITTED, data={"id": "x"}), Event(2, state.WAITING, data={"hosts": ()})]
    assert waits.queued_at(state.reduce(events)) == 1
    events += [Event(3, state.SUSPENDED), Event(4, state.RESUMED)]
    assert waits.queued_at(state.reduce(events)) == 4
    # neither words nor another attempt is a new start
    events += [Event(5, state.WAITING, data={"hosts": ()}), Event(6, state.RESTARTING, data={"delay": 1})]
    events += [Event(8, state.WAITING, data={"hosts": ()})]
    assert waits.queued_at(state.reduce(events)) == 4
    events += [Event(9, state.SUSPENDED), Event(10, state.RESUMED)]
    assert waits.queued_at(state.reduce(events)) == 10


def test_what_a_job_waits_for() -> None:
    events = [Event(1, state.SUBMITTED, "", {"id": "x"})]
    assert waits.pending_reasons(state.reduce(events), "x") == ()
    events += [Event(2, state.WAITING, state.FOR_SLOTS, {"hosts": [["a", "0 of 2 free"]]})]
    assert waits.pending_reasons(state.reduce(events), "x") == (("a", "0 of 2 free"),)
    placed = Event(3, state.PLACED, "", {"np": 1, "hosts": ["a"], "line": "mpirun", "attempt": 1})
    assert waits.pending_reasons(state.reduce([*events, placed]), "x") == ()
    failed = Event(4, state.RESTARTING, "rank 0 on a exited with code 3", {"delay": 20.0})
    assert waits.pending_reasons(state.reduce([*events, placed, failed]), "x") == (
        ("", "attempt 2 starts 20 s after attempt 1 failed: rank 0 on a exited with code 3"),
    )
    lines = Event(4, state.RESTARTING, "no host:\n  a: away\n  b: away", {"delay": 20.0})
    ((_host, why),) = waits.pending_reasons(state.reduce([*events, placed, lines]), "x")
    assert why == "attempt 2 starts 20 s after attempt 1 failed: no host:; a: away; b: away"
    events += [Event(5, state.SUSPENDED, "suspended by bob")]
    assert waits.pending_reasons(state.reduce(events), "x") == (
        ("", "suspended by bob; taco-launch resume x starts it"),
    )


def record(state: JobState, *, since: float = 100.0, **more: float) -> JobRecord:
    return JobRecord("id", state, submitted=1.0, transitions=(Transition(since, state),), **more)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("policy", "found", "end"),
    [
        (Policy(), record(JobState.QUEUED), None),
        (Policy(queue_timeout=5), record(JobState.QUEUED), (105.0, CANNOT_PLACE)),
        (Policy(queue_timeout=0), record(JobState.QUEUED), (100.0, CANNOT_PLACE)),
        (Policy(queue_timeout=5), record(JobState.RESTARTING, not_before=130.0), (135.0, CANNOT_PLACE)),
        (Policy(queue_timeout=5, timeout=9), record(JobState.SUSPENDED), None),
        (Policy(queue_timeout=5), record(JobState.RUNNING), None),
        (Policy(timeout=50), record(JobState.RESTARTING, started=70.0, not_before=130.0), (120.0, DEADLINE)),
        (Policy(timeout=50), record(JobState.QUEUED), None),  # its time starts with its start
        (Policy(timeout=50, queue_timeout=1), record(JobState.QUEUED, started=70.0), (101.0, CANNOT_PLACE)),
    ],
)
def test_when_the_time_of_a_waiting_job_is_over(
    policy: Policy, found: JobRecord, end: tuple[float, int] | None
) -> None:
    limit = waits.limit(policy, found)
    assert (limit and (limit.time, limit.exit_code)) == end


def test_when_a_record_is_removed() -> None:
    assert waits.removal(Policy(ttl=30), record(JobState.FAILED, ended=100.0)) == 130.0
    assert waits.removal(Policy(), record(JobState.FAILED, ended=100.0)) is None
    assert waits.removal(Policy(ttl=30), record(JobState.RUNNING)) is None


def test_a_retry_may_have_to_have_the_hosts_of_the_attempt_before() -> None:
    tied = Policy(retry_on="same-host")
    failed = record(JobState.RESTARTING, attempt=1, hosts=("gpu2",))  # type: ignore[arg-type]
    assert waits.hosts_of_retry(tied, failed) == ("gpu2",)
    assert waits.hosts_of_retry(Policy(), failed) == ()
    assert waits.hosts_of_retry(tied, record(JobState.QUEUED)) == ()


def test_until_when_a_job_holds_its_slots() -> None:
    limited = Policy(timeout=100, grace=10)
    assert waits.must_end(limited, record(JobState.RUNNING, started=50.0)) == 190.0
    assert waits.must_end(limited, record(JobState.QUEUED, started=50.0)) is None
    assert waits.must_end(limited, record(JobState.FAILED, started=50.0)) is None
    assert waits.must_end(Policy(), record(JobState.RUNNING, started=50.0)) is None
