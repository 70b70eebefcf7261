"""What ends a job that runs: its time, or that all guards tell at once that their ranks make no progress."""

from dataclasses import replace
from typing import Any

import pytest

from taco_launch.agent.store import records
from taco_launch.agent.store.folders import JobFolder
from taco_launch.agent.supervisor.deadlines import Limits, SlowStart, SomeEnded
from taco_launch.agent.supervisor.ranks import Ranks
from taco_launch.agent.supervisor.supervised_attempt import SupervisedAttempt
from taco_launch.core.lifecycle import state
from taco_launch.core.lifecycle.waits import pending_reasons
from taco_launch.core.model.jobs import JobState, Policy
from taco_launch.core.model.stalls import RankLook, shown_time
from taco_launch.core.protocol.message import Message
from taco_launch.core.protocol.rank_messages import Exit
from taco_launch.core.protocol.stall_messages import ReadStacks, SeenRanks, StallReport
from tests.support.gangs import Cluster

SLEEPS: dict[str, Any] = {
    "rank": 0,
    "pid": 11,
    "program": "python3",
    "state": "S",
    "silent": 30.0,
    "last_line": "step 7",
}


class Watched:
    """A running job with a rank on each of two hosts, at a time that the test sets."""

    def __init__(self, folder: JobFolder, policy: Policy) -> None:
        self.folder, self.now = folder, 1000.0
        events = records.Events(folder)
        self.ranks = Ranks(folder, events, 1 << 20)
        self.ranks._placed = dict.fromkeys(range(2), "gpu1")
        self.ranks.started = {0: "gpu1", 1: "gpu2"}
        self.orders: list[Message] = []
        self.limits = Limits(policy, self.ranks, events, self.orders.append)

    def note(self, host: str, silent: float, **look: Any) -> None:
        ranks = [RankLook(**{**SLEEPS, **look})] if silent else []
        self.limits.note(host, StallReport(silent=silent, ranks=ranks))

    def events(self) -> list[str]:
        return [event.kind for event in records.read_events(self.folder)]


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    now = [1000.0]
    monkeypatch.setattr("taco_launch.agent.supervisor.deadlines.time.monotonic", lambda: now[0])
    return now


def both(job: Watched, silent: float) -> None:
    job.note("gpu1", silent)
    job.note("gpu2", silent + 5, rank=1, pid=21, state="T")


def test_its_time(folder: JobFolder, clock: list[float]) -> None:
    """The guards read what the ranks do before the job is ended; one that does not answer is waited for five seconds."""
    job = Watched(folder, Policy(timeout=60))
    assert job.limits.exceeded(60) == ""
    assert job.orders == []
    for _tick in range(2):
        assert job.limits.exceeded(60.1) == ""
    assert job.orders == [ReadStacks()]
    waits = RankLook(**SLEEPS, does="in hvd.allreduce at train.py:57", waits=True)
    job.limits.note("gpu1", SeenRanks(ranks=[waits]))
    assert job.limits.exceeded(61) == ""
    clock[0] += 5
    assert job.limits.exceeded(65.1) == (
        "reached its --timeout of 60 s: rank 0 on gpu1 waits in hvd.allreduce at train.py:57"
    )
    assert not job.limits.hung
    (event,) = records.read_events(folder)
    assert (event.kind, event.data["hung"], event.data["ranks"][0]["host"]) == (state.SEEN, False, "gpu1")


def test_ranks_that_print_nothing(folder: JobFolder, clock: list[float]) -> None:
    """They may compute as they like; what they do is read before the job is ended."""
    job = Watched(folder, Policy(silence_timeout=60))
    job.ranks.last_output = clock[0]
    job.ranks._placed = dict.fromkeys(range(3), "gpu1")
    clock[0] += 61
    assert job.limits.exceeded(61) == ""  # one has not started
    job.ranks._placed = dict.fromkeys(range(2), "gpu1")
    assert job.limits.exceeded(59) == ""  # a second attempt: the silence before it does not count
    job.ranks.last_output += 2
    assert job.limits.exceeded(61) == ""
    assert job.orders == []
    clock[0] += 2
    assert job.limits.exceeded(63) == ""
    assert job.orders == [ReadStacks()]
    job.limits.note("gpu1", SeenRanks(ranks=[RankLook(**SLEEPS, does="in load at train.py:3")]))
    job.ranks.last_output = clock[0]
    assert job.limits.exceeded(63) == ""  # one prints after all
    clock[0] += 61
    assert job.limits.exceeded(124) == ""
    assert job.orders == [ReadStacks(), ReadStacks()]
    computes = RankLook(**SLEEPS, does="in matmul at train.py:57")
    job.limits.note("gpu1", SeenRanks(ranks=[computes]))
    job.limits.note("gpu2", SeenRanks(ranks=[replace(computes, rank=1)]))
    assert job.limits.exceeded(124.1) == (
        "reached its --silence-timeout: no rank has printed anything for 60 s: "
        "ranks 0 on gpu1, 1 on gpu2 are in matmul at train.py:57"
    )
    assert job.limits.hung


def test_all_have_answered(folder: JobFolder) -> None:
    job = Watched(folder, Policy(timeout=60))
    job.ranks.ended = {1: 0}
    assert job.limits.exceeded(60.1) == ""
    job.limits.note("gpu1", SeenRanks(ranks=[RankLook(**SLEEPS)]))
    assert job.limits.exceeded(60.2) == "reached its --timeout of 60 s"


def test_a_hang_is_told_once_and_does_not_end_the_job(folder: JobFolder) -> None:
    job = Watched(folder, Policy())
    assert job.limits.stall_after == 600
    for silent in (600, 700, 100000):
        both(job, silent)
        assert job.limits.exceeded(0) == ""
    (event,) = records.read_events(folder)
    assert event.kind == state.STALLED
    assert event.time - event.data["since"] == pytest.approx(600, abs=5)
    assert [(look["host"], look["rank"], look["state"]) for look in event.data["ranks"]] == [
        ("gpu2", 1, "T"),
        ("gpu1", 0, "S"),
    ]
    since = shown_time(event.data["since"])
    assert event.reason.startswith(
        f"it hangs: no rank has made progress since {since}; rank 1 on gpu2: process 21 (python3) is stopped"
    )


def test_a_hang_ends_the_job_where_that_is_asked(folder: JobFolder) -> None:
    job = Watched(folder, Policy(stall_timeout=1200))
    both(job, 1199)
    assert job.limits.exceeded(0) == ""
    both(job, 1200)
    reason = job.limits.exceeded(0)
    since = shown_time(records.read_events(folder)[0].data["since"])
    assert reason.startswith(
        f"stalled for --stall-timeout (1200 s): no rank has made progress since {since}; rank 1 on gpu2"
    )
    assert job.limits.hung
    assert job.events() == [state.STALLED]


def test_that_it_goes_on_is_told(folder: JobFolder) -> None:
    job = Watched(folder, Policy())
    both(job, 600)
    job.limits.exceeded(0)
    job.note("gpu2", 0.0)
    for _look in range(2):
        assert job.limits.exceeded(0) == ""
    both(job, 601)
    job.limits.exceeded(0)
    assert job.events() == [state.STALLED, state.STIRRED, state.STALLED]


def test_one_host_that_works_is_enough(folder: JobFolder, clock: list[float]) -> None:
    job = Watched(folder, Policy(stall_timeout=10))
    job.note("gpu1", 1e6)
    assert job.limits.exceeded(0) == ""  # nothing was ever heard of gpu2
    job.note("gpu2", 10, rank=1)
    clock[0] += 16  # what gpu1 and gpu2 said may be true no more
    assert job.limits.exceeded(0) == ""
    job.note("gpu1", 1e6)
    assert job.limits.exceeded(0) == ""
    job.note("gpu2", 0.0)
    assert job.limits.exceeded(0) == ""
    assert job.events() == []
    job.note("gpu2", 10, rank=1)
    assert job.limits.exceeded(0)


def test_what_a_host_says_of_other_hosts_ranks_is_not_believed(folder: JobFolder) -> None:
    job = Watched(folder, Policy(stall_timeout=10))
    job.note("gpu1", 20)
    job.note("gpu2", 20, rank=0, does="in lies at a.py:1")
    assert job.limits.exceeded(0) == ""  # nothing is known of rank 1
    job.note("gpu2", 20, rank=1)
    assert "lies" not in job.limits.exceeded(0)


def test_a_rank_that_may_compute_is_no_hang(folder: JobFolder) -> None:
    """Its CPU use alone does not tell, and nothing is said of a job of which that is not known."""
    job = Watched(folder, Policy(stall_timeout=10))
    job.note("gpu1", 20, idle=False)
    job.note("gpu2", 20, rank=1)
    assert job.limits.exceeded(0) == ""
    assert job.events() == []
    job.note("gpu1", 20, idle=False, does="in hvd.allreduce at train.py:57", waits=True)
    job.note("gpu2", 20, rank=1, does="in load_batch at data.py:19")
    reason = job.limits.exceeded(0)
    since = shown_time(records.read_events(folder)[0].data["since"])
    assert reason == (
        f"stalled for --stall-timeout (10 s): no rank has made progress since {since}: "
        "rank 1 on gpu2 is in load_batch at data.py:19; rank 0 on gpu1 waits in hvd.allreduce at train.py:57"
    )


@pytest.mark.parametrize(("rate", "hangs"), [(60e3, True), (1e6, False)])
def test_traffic_as_when_it_worked_is_no_hang(folder: JobFolder, rate: float, hangs: bool) -> None:
    job = Watched(folder, Policy(stall_timeout=10))
    job.note("gpu1", 20, rate=rate, usual=10e6)
    job.note("gpu2", 20, rank=1)
    assert bool(job.limits.exceeded(0)) is hangs


@pytest.mark.parametrize("change", ["starting", "ended"])
def test_only_a_job_that_runs_can_hang(folder: JobFolder, change: str) -> None:
    job = Watched(folder, Policy(stall_timeout=10))
    if change == "starting":
        job.ranks._placed = dict.fromkeys(range(3), "gpu1")
    else:
        job.ranks.ended = {0: 0, 1: 0}
    both(job, 20)
    assert job.limits.exceeded(0) == ""
    assert job.events() == []


def test_what_else_guards_say_is_nothing(folder: JobFolder) -> None:
    job = Watched(folder, Policy(stall_timeout=10))
    job.limits.note("gpu1", Exit(rank=0, exit_code=0))
    assert job.limits.exceeded(0) == ""


def test_a_job_that_starts_slowly_says_what_it_waits_for(folder: JobFolder, clock: list[float]) -> None:
    events = records.Events(folder)
    events.add(state.SUBMITTED, id="a1")
    events.add(state.PLACED, "as asked", np=6, hosts=["gpu1", "gpu2"], line="mpirun")
    ranks = Ranks(folder, events, 1 << 20)
    ranks._placed = dict(enumerate(["gpu1"] * 3 + ["gpu2"] * 3))
    ranks.started = {0: "gpu1"}
    slow = SlowStart(events)
    for now in (1001.0, 1060.0):
        clock[0] = now
        slow.step(ranks.missing)
        assert records.record(folder).reason == "as asked"
    clock[0] = 1061.0
    slow.step(ranks.missing)
    slow.step(ranks.missing)
    found = records.record(folder)
    waits = "rank 1 on gpu1, rank 2 on gpu1, rank 3 on gpu2, rank 4 on gpu2 and 1 more"
    assert found.reason == f"waiting for {waits}, 60 s after its start"
    assert found.state is JobState.STARTING
    assert [event.kind for event in records.read_events(folder)].count(state.SLOW_START) == 1
    events.add(state.RUNNING, "every rank has started", boot="b", roots=[])
    assert records.record(folder).reason == "every rank has started"


def test_a_job_that_has_started_in_time_says_nothing(folder: JobFolder, clock: list[float]) -> None:
    slow = SlowStart(records.Events(folder))
    clock[0] = 2000.0
    slow.step(lambda: "")
    assert records.read_events(folder) == []


def test_a_host_that_does_not_answer_while_the_job_starts_is_what_the_job_waits_for(cluster: Cluster) -> None:
    folder = cluster.gang("a", 4).here._folder
    attempt = SupervisedAttempt(folder, str(cluster.agent), cluster.guards[-1])
    quiet = (("n2", "no answer for 10 s"),)
    for waits in ((), quiet, quiet, ()):
        attempt.gang.waits = waits
        attempt._meanwhile()
    assert pending_reasons(records.record(folder), "a") == quiet
    assert not records.record(folder).admitted  # it may still be refused
    assert [event.kind for event in records.read_events(folder)] == [state.SUBMITTED, state.WAITING]


def test_ranks_that_ended_long_before_the_others_are_told_of(folder: JobFolder) -> None:
    job = Watched(folder, Policy())
    job.ranks._placed = job.ranks.started = {0: "gpu1", 1: "gpu2", 2: "gpu2"}
    some = SomeEnded(job.ranks, records.Events(folder))
    some.step(1000.0)
    job.ranks.ended[1] = 0
    for now in (1001.0, 1005.9):
        some.step(now)
        assert not job.events()
    some.step(1006.0)
    (event,) = records.read_events(folder)
    assert event.reason == "rank 1 has ended with code 0; 2 of 3 ranks continue"
    assert event.data == {"ranks": [1]}
    job.ranks.ended[0] = 0
    some.step(1007.0)
    some.step(1016.0)
    assert job.events() == [state.SOME_ENDED]  # each time later
    some.step(1017.0)
    assert job.events() == [state.SOME_ENDED] * 2
    job.ranks.ended[2] = 0
    some.step(2000.0)
    some.step(3000.0)
    assert job.events() == [state.SOME_ENDED] * 2
