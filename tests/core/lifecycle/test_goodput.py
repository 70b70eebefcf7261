"""Split the time of a job by its states and its first step, without the time that it hung."""

from taco_launch.core.lifecycle import state
from taco_launch.core.lifecycle.goodput import time_spent, trained_share
from taco_launch.core.model.jobs import Event, JobRecord, JobState, Transition

CHANGES = (
    (0, JobState.QUEUED),
    (10, JobState.STARTING),
    (12, JobState.RUNNING),
    (50, JobState.RESTARTING),
    (55, JobState.QUEUED),
    (60, JobState.STARTING),
    (61, JobState.RUNNING),
)
RECORD = JobRecord("1", JobState.RUNNING, transitions=tuple(Transition(float(at), to) for at, to in CHANGES))


def told(record: JobRecord, events: tuple[Event, ...], now: float) -> dict[str, float]:
    return {word: seconds for word, seconds in time_spent(record, events, now).items() if seconds}


def test_every_second_is_told_once() -> None:
    expected = {"ran": 77.0, "queued": 15.0, "starting": 3.0, "before a restart": 5.0}
    assert told(RECORD, (), 100.0) == expected
    slow = (*RECORD.transitions, Transition(90.0, JobState.STOPPING))
    ending = told(JobRecord("1", JobState.STOPPING, transitions=slow), (), 100.0)
    assert (ending["ran"], ending["ending"]) == (67.0, 10.0)
    over = JobRecord("1", JobState.SUCCEEDED, ended=100.0, transitions=RECORD.transitions)
    assert told(over, (), 500.0) == expected


def test_a_hang_is_no_training() -> None:
    stalled = Event(45.0, state.STALLED, "it hangs", {"since": 40.0})
    ended = Event(50.0, state.RESTARTING, "it hung", {})
    again = Event(90.0, state.STALLED, "it hangs", {"since": 80.0})
    found = told(RECORD, (stalled, ended, again), 100.0)
    assert (found["ran"], found["hung"]) == (47.0, 30.0)
    went_on = Event(95.0, state.STIRRED, "it goes on", {})
    assert told(RECORD, (stalled, ended, again, went_on), 100.0)["hung"] == 25.0


def test_only_steps_are_training() -> None:
    def split(first_step: float, *events: Event) -> tuple[float, ...]:
        found = time_spent(RECORD, events, 100.0, first_step)
        assert sum(found.values()) == 100.0
        return tuple(found[word] for word in ("trained", "until the first step", "in earlier attempts", "hung"))

    assert split(70.0) == (30.0, 9.0, 38.0, 0.0)
    assert split(10.0) == (39.0, 0.0, 38.0, 0.0)  # a clock that is behind
    assert split(500.0) == (0.0, 39.0, 38.0, 0.0)
    hang = Event(95.0, state.STALLED, "it hangs", {"since": 80.0})
    assert split(70.0, hang) == (10.0, 9.0, 38.0, 20.0)


def test_the_ratio_counts_steps_of_the_attempt_alone() -> None:
    again = Event(90.0, state.STALLED, "it hangs", {"since": 80.0})
    assert trained_share(time_spent(RECORD, (), 100.0, 70.0)) == 0.3
    assert trained_share(time_spent(RECORD, (again,), 100.0, 70.0)) == 0.1
    assert trained_share(time_spent(JobRecord("1", JobState.RUNNING), (), 100.0, 70.0)) is None
