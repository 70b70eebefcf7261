"""When a job is tried again: by its policy, and by whose fault a failure is."""

from dataclasses import replace
from typing import Any

import pytest

from taco_launch.core.errors import CANNOT_PLACE, DEADLINE
from taco_launch.core.lifecycle import retries, state
from taco_launch.core.lifecycle.goodput import time_spent, trained_share
from taco_launch.core.lifecycle.retries import AttemptResult, Blame, Decision, Retry, decide
from taco_launch.core.model.jobs import Event, Finding, JobRecord, JobState, Policy, Restart, Transition
from taco_launch.core.signatures.match import ENTRIES


def record(failures: int = 0, **more: object) -> JobRecord:
    # It was suspended once besides, which is not a failure.
    before = (JobState.SUSPENDED, *(JobState.RESTARTING for _failure in range(failures)))
    changes = tuple(Transition(float(number), change) for number, change in enumerate(before))
    return JobRecord("abc", JobState.RUNNING, attempt=failures + 1, left_out=("a",), transitions=changes, **more)  # type: ignore[arg-type]


def policy(restart: str = "on-failure", limit: int = 3) -> Policy:
    return Policy(restart=Restart(restart), backoff_limit=limit)


@pytest.mark.parametrize(
    ("restart", "limit", "failures", "end", "code", "delay"),
    [
        ("never", 3, 0, "FAILED", 1, None),
        ("on-failure", 3, 0, "FAILED", 1, 10.0),
        ("on-failure", 3, 2, "FAILED", 137, 40.0),
        ("on-failure", 3, 3, "FAILED", 1, None),  # the limit is used up
        ("on-failure", 9, 7, "LOST", 1, 360.0),
        ("on-failure", 3, 0, "SUCCEEDED", 0, None),
        ("on-failure", 3, 0, "CANCELLED", 143, None),
        ("on-failure", 3, 0, "FAILED", 124, None),  # its time is over
        ("on-failure", 3, 0, "FAILED", 125, None),  # no rank could start: nor will the next time
        ("always", 3, 0, "FAILED", 1, 10.0),
        ("exit-code", 3, 0, "FAILED", 127, None),
        ("exit-code", 3, 0, "FAILED", 128, 10.0),
        ("exit-code", 3, 0, "LOST", 1, 10.0),
    ],
)
def test_by_the_policy(restart: str, limit: int, failures: int, end: str, code: int, delay: float | None) -> None:
    result = AttemptResult(JobState(end), code, "b")
    again, rule = decide(policy(restart, limit), record(failures), result)
    assert (again and again.delay) == delay
    by_code = "not tried again: --restart exit-code retries only after a signal or a lost host, not after "
    told = {("exit-code", 127): f"{by_code}exit code 127", ("on-failure", 3): "its 4 attempts are used up"}
    if end == "FAILED":
        assert rule == told.get((restart, code), told.get((restart, failures), ""))
    if code == 128:
        assert decide(policy(restart), record(), result._replace(raised=True)) == Decision(
            None, f"{by_code}an exception of the program"
        )
    if again is not None:
        assert again.left_out == ("a", "b")
        assert decide(policy(restart, limit), record(failures), result._replace(host="a")).retry == (
            delay,
            ("a",),
            again.counts,
        )


# A failure as its logs are explained: (signature, cause), and what follows with --backoff-limit 3.
FAILURES = (
    ("module-missing", "", Blame.UNKNOWN),  # a file server may be away on that host
    ("script-missing", "", Blame.UNKNOWN),
    ("windows-line-ends", "", Blame.PROGRAM),
    ("arguments-refused", "", Blame.PROGRAM),
    ("cuda-out-of-memory", "", Blame.PROGRAM),
    ("cuda-device-assert", "", Blame.PROGRAM),
    ("torch-unused-parameters", "", Blame.PROGRAM),
    ("horovod-mismatch", "", Blame.PROGRAM),
    ("python-exception", "The program raised AssertionError: no (line 3 of t.py).", Blame.PROGRAM),
    ("python-exception", "The program raised NameError: name 'x' is not defined.", Blame.PROGRAM),
    ("python-exception", "The program raised RuntimeError: no (line 3 of t.py).", Blame.UNKNOWN),
    ("gpu-lost", "", Blame.HARDWARE),
    ("gpu-xid-fatal", "", Blame.HARDWARE),
    ("gpu-xid-nvlink", "", Blame.HARDWARE),
    ("gpu-gsp", "", Blame.UNKNOWN),  # a driver
    ("hardware-error", "", Blame.HARDWARE),
    ("cable-error", "", Blame.HARDWARE),
    ("hca-failed", "", Blame.HARDWARE),
    ("disk-fault", "", Blame.HARDWARE),
    ("nccl-ib-no-answer", "", Blame.UNKNOWN),  # a network
    ("disk-full", "", Blame.UNKNOWN),  # storage
    ("out-of-memory", "", Blame.UNKNOWN),  # another program may have had it
    ("process-killed", "", Blame.UNKNOWN),
    ("", "", Blame.UNKNOWN),
)


@pytest.mark.parametrize(("signature", "cause", "whose"), FAILURES, ids=[f"{row[0]}-{row[1]}" for row in FAILURES])
def test_by_whose_fault_it_is(signature: str, cause: str, whose: Blame) -> None:
    result = AttemptResult(JobState.FAILED, 1, "b", signature=signature, cause=cause)
    again, rule = decide(policy(), record(), result)
    if whose is Blame.PROGRAM:
        assert again is None
        assert (
            rule == "not tried again: each attempt would meet this fault of the program (--restart always retries it)"
        )
    else:
        assert again == Retry(10.0, ("a", "b"), counts=whose is Blame.UNKNOWN)
        assert rule.startswith("a fault of hardware: retry 1 of 5 that") is (whose is Blame.HARDWARE)
    assert decide(policy("always"), record(), result) == Decision(Retry(10.0, ("a", "b")))
    assert decide(policy("never"), record(), result) == Decision(None)


@pytest.mark.parametrize("signature", ["module-missing", "script-missing", "command-missing", "out-of-memory"])
def test_what_the_only_host_lacks_is_the_programs(signature: str) -> None:
    result = AttemptResult(JobState.FAILED, 1, "b", signature=signature, single_host=True)
    is_retried = decide(policy(), record(), result).retry is not None
    assert is_retried is (signature == "out-of-memory")
    assert decide(policy(), record(), result._replace(single_host=False)).retry is not None
    assert decide(policy("always"), record(), result).retry is not None


def test_every_signature_is_one_that_exists() -> None:
    assert set(ENTRIES) >= retries._OF_PROGRAM | retries._OF_HARDWARE
    assert not retries._OF_PROGRAM & retries._OF_HARDWARE


def test_hardware_has_a_limit_of_its_own() -> None:
    lost = AttemptResult(JobState.LOST, 125, "b")
    again, _rule = decide(policy(limit=1), record(5, excused=4), lost)
    assert again is not None
    assert not again.counts
    # then it counts as any failure does
    counted, rule = decide(policy(limit=1), record(5, excused=5), lost)
    assert counted is not None
    assert (counted.counts, rule) == (True, "")
    assert decide(policy(limit=1), record(6, excused=5), lost) == Decision(None, "its 7 attempts are used up")
    # the supervisor alone was lost: which host is at fault is not known
    assert decide(policy(limit=0), record(), lost._replace(host="")) == Decision(None)


RAISED = Finding("python-exception", "The program raised ValueError: no (line 3 of t.py).", "", "a", 3)


def again(before: Finding, **changes: Any) -> Retry | None:
    result = AttemptResult(JobState.FAILED, 1, "b", signature=before.signature, cause=before.cause)
    return decide(policy(), record(1, blamed=before), result._replace(**changes)).retry


def test_the_same_exception_on_two_hosts_is_the_programs() -> None:
    assert again(RAISED) is None
    assert again(RAISED, host="a") is not None
    assert again(RAISED, cause="The program raised ValueError: yes.") is not None
    assert again(RAISED, host="a", single_host=True) is None
    passing = replace(RAISED, cause="The program raised OSError: [Errno 5] Input/output error.")
    assert again(passing) is not None


def test_what_a_host_may_lack_is_the_programs_the_second_time() -> None:
    missing = replace(RAISED, signature="script-missing", cause="t.py was not found.")
    assert again(missing) is None
    assert again(missing, host="a") is None
    assert again(missing, signature="folder-missing") is not None


def test_where_no_retry_or_no_other_host_is_allowed_hardware_is_no_excuse() -> None:
    lost = AttemptResult(JobState.LOST, 125, "b")
    assert decide(policy(limit=0), record(), lost).retry is None
    same = replace(policy(), retry_on="same-host")
    assert decide(same, record(), lost).retry == Retry(10.0, ("a", "b"))


def test_a_host_that_was_lost_may_be_back_for_the_attempt_after_the_next() -> None:
    lost = {"delay": 1, "left_out": ["a", "b"], "lost": "b", "counts": False}
    found = state.reduce((Event(0.0, state.SUBMITTED, "", {"id": "abc"}), Event(1.0, state.RESTARTING, "", lost)))
    assert (found.left_out, found.lost, found.excused) == (("a", "b"), "b", 1)
    for host, left_out in (("", ("a",)), ("c", ("a", "c")), ("b", ("a", "b"))):
        again = decide(policy(limit=9), found, AttemptResult(JobState.FAILED, 1, host)).retry
        assert again is not None
        assert again.left_out == left_out


@pytest.mark.parametrize(
    ("restart", "hung", "again"),
    [("on-failure", True, True), ("on-failure", False, False), ("exit-code", True, False), ("never", True, False)],
)
def test_a_hang_is_a_failure_and_the_end_of_the_time_is_not(restart: str, hung: bool, again: bool) -> None:
    result = AttemptResult(JobState.FAILED, DEADLINE, hung=hung)
    assert (decide(policy(restart), record(), result).retry is not None) == again


@pytest.mark.parametrize(
    ("steps", "most"),
    [
        ("", 4),
        ("P", 4),
        ("PF", 4),
        ("PFW", 4),
        ("PFWP", 4),
        ("PFPFPF", 4),
        ("PFPFPFPE", 4),
        ("PFE", 4),  # stopped before the second started
        ("E", 4),
        ("PS", 5),  # what was suspended has not failed
        ("PSRPF", 5),
    ],
)
def test_how_many_attempts_there_may_be(steps: str, most: int) -> None:
    events = [Event(0, state.SUBMITTED, data={"id": "x"})]
    for step in steps:
        number = sum(event.kind == state.PLACED for event in events)
        events.append(
            {
                "P": Event(1, state.PLACED, data={"np": 1, "hosts": ["a"], "line": "l", "attempt": number + 1}),
                "F": Event(1, state.RESTARTING, data={"delay": 10}),
                "W": Event(1, state.WAITING, data={"hosts": ()}),
                "S": Event(1, state.SUSPENDED),
                "R": Event(1, state.RESUMED),
                "E": Event(1, state.ENDED, data={"state": "FAILED", "exit_code": 1}),
            }[step]
        )
    policy = Policy(restart=Restart.ON_FAILURE, backoff_limit=3)
    assert retries.most_attempts(policy, state.reduce(events)) == most


def test_there_is_one_attempt_where_no_other_is_allowed() -> None:
    record = state.reduce([Event(0, state.SUBMITTED, data={"id": "x"})])
    assert retries.most_attempts(Policy(backoff_limit=3), record) == 1


@pytest.mark.parametrize(("stood", "again"), [(JobState.QUEUED, False), (JobState.STARTING, True)])
def test_a_job_without_a_place_is_not_tried_again(stood: JobState, again: bool) -> None:
    """A rank's own exit code may be the same."""
    decision = decide(policy(), replace(record(), state=stood), AttemptResult(JobState.FAILED, CANNOT_PLACE, "b"))
    assert (decision.retry is not None, decision.rule) == (again, "")


# --- Split the time of a job by its states and its first step, without the time that it hung


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


@pytest.mark.parametrize(("limit", "is_tried"), [(2, False), (3, True)])
def test_starts_within_an_elastic_attempt_are_retries(limit: int, is_tried: bool) -> None:
    found = decide(policy("on-failure", limit), record(), AttemptResult(JobState.FAILED, 3, "b", restarted=2))
    assert (found.retry is not None) == is_tried
    assert found.rule == ("" if is_tried else "not tried again: its ranks were started again 2 times")
