"""A job that hangs, in words; and when it is told and looked for."""

import pytest

from taco_launch.core.lifecycle import state
from taco_launch.core.model.codec import to_json
from taco_launch.core.model.jobs import Event, JobState
from taco_launch.core.model.stalls import (
    LOOK_SECONDS,
    RankLook,
    Stall,
    doing,
    look_every,
    reason,
    stall_report_delay,
    telling,
)

SLEEPS = RankLook(0, 11, "python3", "S", "in hrtimer_nanosleep", 601.0, "step 7", "gpu1")
STOPPED = RankLook(2, 31, "python3", "T", "", 600.0, "", "gpu2")
STUCK = RankLook(3, 41, "cp", "D", "in nfs_wait_bit_killable", 640.0, "saving", "gpu2")
GONE = RankLook(1, silent=700.0, host="gpu1")


@pytest.mark.parametrize(("limit", "after", "every"), [(None, 600, 5), (7200, 600, 5), (60, 60, 5), (2, 2, 0.5)])
def test_when_it_is_told_and_looked_for(limit: float | None, after: float, every: float) -> None:
    assert stall_report_delay(limit) == after
    assert look_every(stall_report_delay(limit)) == every <= LOOK_SECONDS


def test_what_tells_most_comes_first() -> None:
    longer = RankLook(9, 99, "python3", "S", "", 602.0)
    assert telling((SLEEPS, GONE, longer, STUCK, STOPPED)) == (STOPPED, STUCK, longer, SLEEPS, GONE)
    assert len(telling([RankLook(rank) for rank in range(1000)])) == 64


def test_the_rank_that_does_what_no_other_does_comes_first() -> None:
    """The others wait for it, though they are silent for longer."""
    waits = [
        RankLook(rank, 10 + rank, "python3", "S", "in futex_do_wait", 601.0, "step 2", "gpu1") for rank in range(3)
    ]
    odd = RankLook(3, 13, "python3", "S", "in hrtimer_nanosleep", 600.0, "step 2", "gpu2")
    found = telling((*waits, odd))
    assert found == (odd, *waits)
    told = reason(4, found)
    assert (
        "rank 3 on gpu2: process 13 (python3) sleeps (S, in hrtimer_nanosleep), its last line: step 2; rank 0" in told
    )
    assert told.endswith("; 2 more ranks like rank 0")
    assert reason(5, found).endswith("; 3 more ranks")  # one was not seen


@pytest.mark.parametrize(
    ("look", "words"),
    [
        (SLEEPS, "sleeps (S, in hrtimer_nanosleep)"),
        (STOPPED, "is stopped (T)"),
        (STUCK, "waits in the kernel and cannot be interrupted (D, in nfs_wait_bit_killable)"),
        (GONE, "has no process that can be seen"),
        (RankLook(0, 7, "a", "I"), "is in a state that is not known (I)"),
        (RankLook(0, 7, "a", "R", does="in load at a.py:3"), "is in load at a.py:3"),
        (RankLook(0, 7, "a", "R", does="in MPI_Recv at a.py:3", waits=True), "waits in MPI_Recv at a.py:3"),
        (RankLook(0, 7, "a", "T", does="in load at a.py:3"), "is stopped (T)"),
    ],
)
def test_what_a_process_does(look: RankLook, words: str) -> None:
    assert doing(look) == words


def test_the_reason_names_the_first_two() -> None:
    assert reason(4, (STOPPED, STUCK, SLEEPS, GONE)) == (
        "rank 2 on gpu2: process 31 (python3) is stopped (T), it wrote nothing; "
        "rank 3 on gpu2: process 41 (cp) waits in the kernel and cannot be interrupted (D, in nfs_wait_bit_killable), "
        "its last line: saving; 2 more ranks"
    )
    assert reason(1, (GONE,)) == "rank 1 on gpu1 has no process that can be seen, it wrote nothing"
    assert reason(0, ()) == ""


RUNS = (
    Event(1.0, state.SUBMITTED, "waiting", {"id": "abc"}),
    Event(2.0, state.PLACED, "fits", {"np": 2, "hosts": ["gpu1"], "line": ""}),
    Event(3.0, state.RUNNING, "runs", {"boot": "b", "roots": []}),
)
STALLED = Event(9.0, state.STALLED, "it hangs", {"since": 4.0, "ranks": to_json((STOPPED, SLEEPS))})
STIRRED = Event(10.0, state.STIRRED, "it continues")
STOPPING = Event(11.0, state.STOPPING, "stopped")


def test_a_job_hangs_and_goes_on() -> None:
    hangs = state.reduce((*RUNS, STALLED))
    assert (hangs.state, hangs.reason) == (JobState.RUNNING, "it hangs")
    assert hangs.stalled == Stall(4.0, (STOPPED, SLEEPS))
    goes_on = state.reduce((*RUNS, STALLED, STIRRED))
    assert (goes_on.stalled, goes_on.reason) == (None, "it continues")
    assert state.reduce((*RUNS, STIRRED)).reason == "runs"
    assert state.reduce((*RUNS, STOPPING, STALLED)) == state.reduce((*RUNS, STOPPING))


def test_a_hang_stands_in_the_record_until_there_is_another_attempt() -> None:
    ended = Event(12.0, state.ENDED, "stopped", {"state": "CANCELLED", "exit_code": 143})
    assert state.reduce((*RUNS, STALLED, STOPPING, ended)).stalled is not None
    again = Event(12.0, state.RESTARTING, "hung", {"delay": 1.0})
    assert state.reduce((*RUNS, STALLED, again)).stalled is not None
    assert state.reduce((*RUNS, STALLED, again, RUNS[1])).stalled is None
