"""Following a job's logs while it is written, over attempts; and what a follower is told of the job itself."""

import os
import threading
import time
from collections.abc import Iterator, Mapping
from types import SimpleNamespace
from typing import Any

import pytest

from taco_launch.agent.api import log_stream
from taco_launch.agent.store import records
from taco_launch.agent.store.folders import Jobs
from taco_launch.agent.upkeep import scheduler_wakeup
from taco_launch.core.lifecycle import state
from taco_launch.core.model.job_view import WaitReasons
from taco_launch.core.model.jobs import JobState
from taco_launch.core.protocol.calls import Reply
from taco_launch.core.protocol.calls.jobs import JobReply
from taco_launch.core.protocol.calls.logs import JobPlaced, JobWaiting, Logs, StateChange
from tests.conftest import eventually
from tests.support.agent_calls import locked
from tests.support.attempts import Made, make
from tests.support.patience import HANG


class Following:
    """A call in a thread of its own, and what it gave so far."""

    def __init__(self, jobs: Jobs, request: Mapping[str, Any]) -> None:
        self.replies: list[Reply] = []
        self.raw = b""
        self._thread = threading.Thread(target=self._run, args=(jobs, request), daemon=True)
        self._thread.start()

    def _run(self, jobs: Jobs, request: Mapping[str, Any]) -> None:
        for reply in log_stream.logs(jobs, "/agent.pyz", Logs(name="j", follow=True, **request)):
            self.raw += vars(reply).get("data", b"")
            self.replies.append(reply)

    @property
    def states(self) -> list[str]:
        return [reply.state for reply in self.replies if isinstance(reply, StateChange)]

    @property
    def reasons(self) -> list[WaitReasons]:
        return [reply.reasons for reply in self.replies if isinstance(reply, JobWaiting)]

    @property
    def last_state(self) -> JobState:
        last = self.replies[-1]
        assert isinstance(last, JobReply)
        return last.job.record.state

    def join(self) -> None:
        self._thread.join(HANG)
        assert not self._thread.is_alive()


@pytest.fixture
def supervised(jobs: Jobs, monkeypatch: pytest.MonkeyPatch) -> Iterator[Made]:
    """A job of one attempt, with a supervisor as far as its lock tells."""
    monkeypatch.setattr(scheduler_wakeup, "ensure", lambda _jobs, _agent: None)
    found = make(jobs.path.parent)
    lock = locked(found.folder)
    found.begin()
    yield found
    os.close(lock)


@pytest.mark.parametrize(("loss", "diverged"), [("0.5", None), ("nan", True), ("inf", True)])
def test_the_end_of_a_job_shows_a_loss_that_is_no_number(
    jobs: Jobs, supervised: Made, loss: str, diverged: bool | None
) -> None:
    for step in range(5):
        supervised.write(0, f"step {step}/9 loss: {loss}\n".encode())
    supervised.end()
    followed = Following(jobs, {})
    followed.join()
    last = followed.replies[-1]
    assert isinstance(last, JobReply)
    assert (last.job.progress and last.job.progress.diverged) == diverged


@pytest.mark.parametrize("whose", [{"rank": 1}, {"instance": "j-worker-0"}, {"host": "n2"}, {}])
def test_following_over_attempts(jobs: Jobs, supervised: Made, whose: dict[str, Any]) -> None:
    followed = Following(jobs, whose)
    one = Following(jobs, {**whose, "attempt": 1})
    supervised.write(1, b"first\n")
    supervised.write(2, b"other\n")
    eventually(lambda: b"first\n" in followed.raw or whose == {"host": "n2"})
    supervised.begin()
    supervised.write(1, b"second\n")
    supervised.write(3, b"last\n")
    supervised.end()
    followed.join()
    one.join()
    expected: dict[str, tuple[bytes, bytes]] = {
        "rank": (b"first\n", b"[taco-launch: attempt 2]\nsecond\n"),
        "instance": (b"n1/1 | first\n", b"[taco-launch: attempt 2]\nn2/1 | second\n"),
        "host": (b"n2/2 | other\n", b"n2/1 | second\n"),
        "": (b"n1/1 | first\nn2/2 | other\n", b"[taco-launch: attempt 2]\nn2/1 | second\nn3/3 | last\n"),
    }
    first, second = expected[next(iter(whose), "")]
    assert (one.raw, followed.raw) == (first, first + second)
    assert followed.last_state is JobState.SUCCEEDED
    if "rank" in whose:  # a call that broke off within the first attempt has all the same
        again = Following(jobs, {**whose, "log": 1, "offset": 2})
        again.join()
        assert again.raw == (first + second)[2:]


@pytest.mark.parametrize("whose", [{"instance": "j-worker-0"}, {"attempt": 2}])
def test_an_attempt_that_is_placed_and_has_not_begun(
    jobs: Jobs, supervised: Made, whose: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its line is written to the merged log after its place is known: a follower may come in between."""
    supervised.write(1, b"first\n")
    supervised.write(2, b"other\n")
    before = Following(jobs, {"instance": "j-worker-0"})
    eventually(lambda: b"first\n" in before.raw)
    begin, followed = supervised.merge_begins, list[Following]()

    def late(*words: Any) -> None:
        followed.append(Following(jobs, whose))
        eventually(lambda: followed[0].replies)
        eventually(lambda: b"attempt 2" in before.raw)
        begin(*words)

    monkeypatch.setattr(supervised, "merge_begins", late)
    supervised.begin()
    supervised.write(1, b"second\n")
    supervised.end()
    followed[0].join()
    before.join()
    assert followed[0].raw == b"n2/1 | second\n"
    assert before.raw == b"n1/1 | first\n[taco-launch: attempt 2]\nn2/1 | second\n"


@pytest.mark.parametrize("whose", [{"rank": 1}, {}])
def test_a_suspension_is_told_between_two_attempts(jobs: Jobs, supervised: Made, whose: dict[str, Any]) -> None:
    followed = Following(jobs, whose)
    supervised.write(1, b"first\n")
    eventually(lambda: b"first\n" in followed.raw)
    events = records.Events(supervised.folder)
    events.add(state.SUSPENDED, "suspended by ann;\n[taco-launch: attempt 9]\n")
    events.add(state.RESUMED, "resumed by bob")
    supervised.begin()
    supervised.end()
    followed.join()
    told = b"[taco-launch: suspended by ann; [taco-launch: attempt 9]]\n[taco-launch: attempt 2]\n"
    assert followed.raw == (b"first\n" if whose else b"n1/1 | first\n") + told


def test_a_half_line_is_shown_as_it_comes_only_without_times(jobs: Jobs, supervised: Made) -> None:
    plain, timed = Following(jobs, {"rank": 0}), Following(jobs, {"rank": 0, "timestamps": True})
    supervised.write(0, b"Epoch 1 ...")
    eventually(lambda: plain.raw == b"Epoch 1 ...")
    supervised.write(0, b" done\n")
    eventually(lambda: timed.raw == b"2023-11-14T22:13:20.010Z Epoch 1 ... done\n")
    supervised.end()
    plain.join()
    timed.join()


def test_it_looks_again_soon_after_a_short_silence_and_when_the_state_has_changed(
    jobs: Jobs, supervised: Made, monkeypatch: pytest.MonkeyPatch
) -> None:
    pauses: list[float] = []

    def sleep(seconds: float) -> None:
        pauses.append(seconds)
        if len(pauses) == 50:
            records.Events(supervised.folder).add(state.RUNNING, boot="b", roots=[])
        elif len(pauses) == 52:
            supervised.end()

    monkeypatch.setattr(log_stream, "time", SimpleNamespace(sleep=sleep, monotonic=time.monotonic, time=time.time))
    list(log_stream.logs(jobs, "/agent.pyz", Logs(name="j", follow=True)))
    shortest, longest = log_stream._POLL_SECONDS
    assert pauses[0] == pauses[50] == shortest < pauses[49] == longest
    assert all(pause < 0.001 + shortest + sum(pauses[:number]) / 10 for number, pause in enumerate(pauses[:50]))


def test_who_follows_a_suspended_job_is_told_so_once(jobs: Jobs) -> None:
    made = make(jobs.path.parent)
    records.Events(made.folder).add(state.SUSPENDED, "suspended by bob")
    followed = Following(jobs, {})
    eventually(lambda: followed.states == ["SUSPENDED"])
    records.ended(records.Events(made.folder), JobState.CANCELLED, 143, "stopped")
    followed.join()
    assert followed.reasons == [(("", f"suspended by bob; taco-launch resume {made.folder.name} starts it"),)]


def test_who_follows_is_told_why_it_waits_and_that_it_began(jobs: Jobs, monkeypatch: pytest.MonkeyPatch) -> None:
    woken = []
    monkeypatch.setattr(scheduler_wakeup, "ensure", lambda _jobs, agent: woken.append(agent))
    made = make(jobs.path.parent)
    followed = Following(jobs, {})
    eventually(lambda: followed.reasons == [()])
    records.Events(made.folder).add(state.WAITING, hosts=[["n1", "0 of 2 free"]])
    eventually(lambda: followed.reasons == [(), (("n1", "0 of 2 free"),)])
    lock = records.try_lock(made.folder)
    made.begin()
    eventually(lambda: any(isinstance(reply, JobPlaced) for reply in followed.replies))
    made.end()
    followed.join()
    assert lock is not None
    os.close(lock)
    assert woken[0] == "/agent.pyz"
    assert followed.states == ["QUEUED", "STARTING"]
