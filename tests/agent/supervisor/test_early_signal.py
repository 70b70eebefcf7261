"""When ranks are told to save their state, and how long their end waits for that."""

import time
from typing import Any, cast

import pytest

from taco_launch.agent.gang.guard_pool import GuardPool
from taco_launch.agent.store import records
from taco_launch.agent.store.folders import JobFolder
from taco_launch.agent.supervisor import deadlines
from taco_launch.agent.supervisor.deadlines import EarlySignal
from taco_launch.agent.supervisor.ranks import Ranks
from taco_launch.core.model import jobs as model
from taco_launch.core.model.jobs import Policy
from taco_launch.core.protocol.message import Message
from taco_launch.core.protocol.rank_messages import Signalled, SignalRanks


class Gang:
    """Guards that only hear."""

    def __init__(self) -> None:
        self.ordered: list[Message] = []

    def order(self, message: Message) -> None:
        self.ordered.append(message)


class Three:
    """Three ranks that run."""

    def __init__(self) -> None:
        self.np, self.started, self.ended = 3, {0: "a", 1: "a", 2: "b"}, dict[int, int]()

    @property
    def all_ended(self) -> bool:
        return len(self.ended) == self.np


class Early:
    """An early signal, and what comes of it."""

    def __init__(self, folder: JobFolder, **policy: Any) -> None:
        self.gang, self.ranks = Gang(), Three()
        self.folder = folder
        events = records.Events(folder)
        rules = Policy(signal=model.EarlySignal("USR1", 60.0), **policy)
        self.it = EarlySignal(rules, cast("GuardPool", self.gang), cast("Ranks", self.ranks), events)

    @property
    def told(self) -> list[str]:
        return [event.reason for event in records.read_events(self.folder)]


def test_a_job_without_one_waits_for_nothing(folder: JobFolder) -> None:
    early = Early(folder)
    early.it = EarlySignal(Policy(), cast("GuardPool", early.gang), cast("Ranks", early.ranks), records.Events(folder))
    early.it.step(1e9)
    assert not early.it.before_end("stopped", None)
    assert not early.it.is_over(time.monotonic())
    assert early.gang.ordered == []


def test_an_end_waits_until_all_ranks_have_ended(folder: JobFolder) -> None:
    early = Early(folder)
    assert early.it.before_end("stopped by me", None)
    assert early.gang.ordered == [SignalRanks(number=10)]
    assert early.told == ["stopped by me; sent USR1 to its ranks; TERM follows after 60 s"]
    early.ranks.ended = {0: 0, 1: 3}
    assert not early.it.is_over(time.monotonic() + 59)
    assert early.it.is_over(time.monotonic() + 61)
    early.ranks.ended[2] = 0
    assert early.it.is_over(time.monotonic())
    assert early.it.why == "stopped by me"


@pytest.mark.parametrize(("grace", "waits"), [(0.0, False), (5.0, True)])
def test_a_stop_with_a_time_of_its_own(folder: JobFolder, grace: float, waits: bool) -> None:
    early = Early(folder)
    assert early.it.before_end("stopped", grace) == waits
    assert bool(early.gang.ordered) == waits
    if waits:
        assert early.it.is_over(time.monotonic() + 6)


def test_a_second_stop_shortens_it(folder: JobFolder) -> None:
    early = Early(folder)
    assert early.it.before_end("stopped", None)
    early.it.hurry(None)
    assert not early.it.is_over(time.monotonic() + 1)
    early.it.hurry(0.0)
    assert early.it.is_over(time.monotonic() + 1)


def test_before_the_deadline_it_comes_once(folder: JobFolder) -> None:
    early = Early(folder, timeout=100.0)
    early.it.step(39.0)
    assert (early.gang.ordered, early.it.remark) == ([], "")
    early.it.step(40.5)
    early.it.step(41.0)
    assert early.gang.ordered == [SignalRanks(number=10)]
    assert early.told == ["sent USR1 to its ranks, 60 s before the end of its --timeout"]
    assert (
        early.it.remark == "its ranks got USR1 60 s before the end of its --timeout, so the job may have stopped early"
    )
    assert early.it.before_end("stopped", None)  # for what is left of that time
    assert len(early.gang.ordered) == 1


def test_not_while_ranks_start(folder: JobFolder) -> None:
    early = Early(folder, timeout=100.0)
    del early.ranks.started[2]
    early.it.step(50.0)
    assert early.gang.ordered == []


@pytest.mark.parametrize(
    ("caught", "told", "remark"),
    [
        ({0: 1, 1: 1, 2: 1}, [], ""),
        ({0: 1, 1: 0, 2: 1}, ["rank 1 has no process that catches USR1"], "rank 1 has no process that catches USR1"),
        (
            {0: 0, 1: 0, 2: 0},
            ["ranks 0, 1, 2 have no process that catches USR1"],
            "no rank has a process that catches USR1, so it was sent to none",
        ),
    ],
)
def test_who_does_not_catch_it_is_told(folder: JobFolder, caught: dict[int, int], told: list[str], remark: str) -> None:
    early = Early(folder)
    early.it.before_end("stopped", None)
    for rank, count in caught.items():
        early.it.step(1.0)
        assert early.told[1:] == []
        early.it.note(Signalled(rank=rank, caught=count))
    early.it.step(1.0)
    early.it.step(2.0)
    assert early.told[1:] == told
    assert early.it.remark == remark  # the reason of the end has it


def test_who_does_not_answer_is_told_as_well(folder: JobFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(deadlines, "_ANSWER_SECONDS", -1.0)
    early = Early(folder)
    early.it.before_end("stopped", None)
    early.it.note(Signalled(rank=0, caught=1))
    early.ranks.ended = {2: 0}  # it ended meanwhile, as it was asked to
    early.it.step(1.0)
    assert early.told[1:] == ["rank 1 has no process that catches USR1"]
