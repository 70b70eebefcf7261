"""What a nightly run clears away, how many before it were unsure, how long it measures again, and how it is interrupted."""

import math
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import pytest

pytest.importorskip("scipy")

from taco_launch.bench.history.history import History, open_history
from taco_launch.bench.model.ladder import order
from taco_launch.bench.model.runs import Cell, MetricKey
from taco_launch.bench.nightly import run as nightly_run
from taco_launch.bench.nightly.run import RunRequest, clear_logs, waiting_before
from taco_launch.bench.nightly.summary import JudgedMetric, NightlyOutcome, Summary
from taco_launch.bench.run import run_ladder as ladders
from taco_launch.bench.run.run_ladder import DONE, INTERRUPTED, TIME_BUDGET, LadderListener, LadderPlan, LadderResult
from taco_launch.bench.stats.verdicts import JudgeRules, Verdict, VerdictKind
from taco_launch.core.model.host.hosts import Host, Inventory
from taco_launch.core.model.jobs import JobSpec
from taco_launch.core.model.slots import Occupancy
from taco_launch.jobs.backend import HostOccupancy
from tests.support.fake_backend import FakeBackend
from tests.support.ladders import ladder
from tests.support.ladders import run as measured_run


def test_the_logs_of_old_nights_go(tmp_path: Path) -> None:
    logs = tmp_path / "ladders"
    nights = [ladder(number) for number in range(1, 61)]
    other = ladder(1, id="other", cluster="other")
    with open_history(tmp_path / "history.db") as history:
        for night in (*nights, other):
            history.begin(night)
            (logs / night.id).mkdir(parents=True)
        assert clear_logs(history, "taco", "hcc", logs, 31.0) == 30
        assert clear_logs(history, "taco", "hcc", logs, 31.0) == 0
    assert sorted(path.name for path in logs.iterdir()) == sorted(night.id for night in (*nights[30:], other))


@pytest.mark.parametrize(
    ("outcomes", "unsure"),
    [
        ((), 0),
        (("ok", "unsure", "unsure"), 2),
        (("unsure", "unsure accepted", "unsure"), 1),
        (("unsure", "rejected", "unsure"), 1),
        (("unsure", "interrupted", "the head was lost", "", "unsure"), 2),
        (("unsure", "regression"), 0),
    ],
)
def test_unsure_nights_in_a_row(tmp_path: Path, outcomes: tuple[str, ...], unsure: int) -> None:
    with open_history(tmp_path / "history.db") as history:
        for number, words in enumerate(outcomes, 1):
            outcome = words.removesuffix(" accepted")
            history.begin(ladder(number, ended=float(number), outcome=outcome, accepted=outcome != words))
        history.begin(ladder(50, id="other", cluster="other", ended=51.0, outcome="ok"))
        tonight = ladder(100)
        history.begin(tonight)
        assert waiting_before(history, tonight) == unsure


@dataclass
class Measured:
    """What runs measure, in their order; `ends` is how the second call of the ladder ends."""

    plans: list[LadderPlan] = field(default_factory=list)
    ends: str = DONE
    first: str = DONE

    def run(self, _backend: Any, plan: LadderPlan, history: History, *_more: Any) -> LadderResult:
        self.plans.append(plan)
        again = len(self.plans) > 1
        kept = dict(history.runs(plan.ladder.id))
        for step in [step for step in plan.steps if step.position not in kept][: 2 if again else None]:
            value = 10.0 + step.position / 100
            history.add(
                plan.ladder.id, step.position, measured_run(value, step.cell.variant, step.cell.ranks, seconds=60.0)
            )
        runs = tuple(run for _at, run in history.runs(plan.ladder.id))
        return LadderResult(runs, self.ends if again else self.first)


@pytest.fixture
def nights(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[Measured, Callable[..., Summary]]]:
    """A history of runs three times as fast, and a nightly run that measures slowly."""
    world, cell = Measured(), Cell("horovod", "RDMA", 8)
    for name in ("_end_broken", "_faults"):
        monkeypatch.setattr(nightly_run, name, lambda *_given: "")
    monkeypatch.setattr(nightly_run, "_wait_for_room", lambda *_given: ("", 0.0))
    monkeypatch.setattr(ladders, "run", world.run)
    told: list[str] = []
    tell = LadderListener(lambda _progress: None, told.append)
    with open_history(tmp_path / "history.db") as history:
        for number in range(1, 13):
            history.begin(ladder(number, ended=float(number), outcome="ok", accepted=True))
            for at in range(5):
                value = 30.0 + math.sin(7 * number + at) / 10
                history.add(ladder(number).id, at, measured_run(value, "RDMA", 8))

        def tonight(budget: float | None = None) -> Summary:
            plan = LadderPlan(ladder(100), order((cell,), 5, 0, 1), {}, lambda _cell, _text: (), tmp_path, budget)
            asked = RunRequest("taco", cast(Any, None), 0.0, JudgeRules())
            return nightly_run.run(cast(Any, None), cast(Any, None), plan, asked, history, cast(Any, None), {}, tell)

        yield world, tonight


def test_measuring_again_has_no_limit_without_a_time_budget(nights: tuple[Measured, Callable[..., Summary]]) -> None:
    world, tonight = nights
    assert tonight().outcome is NightlyOutcome.REGRESSION
    assert [plan.budget for plan in world.plans] == [None, None]


def test_measuring_again_takes_the_time_budget_once_more(nights: tuple[Measured, Callable[..., Summary]]) -> None:
    world, tonight = nights
    world.first = world.ends = TIME_BUDGET
    summary = tonight(1200.0)
    assert world.plans[1].budget == 1500.0
    assert "the repeated measurements ended after 20 min, the matrix's time budget" in summary.notes


@pytest.mark.parametrize("when", ["first", "ends"])
def test_an_interrupted_run_is_judged_by_what_it_measured(
    nights: tuple[Measured, Callable[..., Summary]], when: str
) -> None:
    world, tonight = nights
    setattr(world, when, INTERRUPTED)
    summary = tonight()
    assert (summary.outcome, summary.exit_code) == (NightlyOutcome.INTERRUPTED, 130)
    (one,) = summary.judged
    assert one.verdict.kind is (VerdictKind.UNSURE if when == "first" else VerdictKind.REGRESSION)
    assert "was not measured again" in one.verdict.why or when == "ends"
    assert summary.interrupted == (
        "5 of 5 runs were made" if when == "first" else "5 of 5 runs were made, and 2 more to measure cells again"
    )


def test_a_run_that_is_unsure_again_tells_how_often(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    key = MetricKey(("gpu1",), "A100", "w", "v", 1, "img/sec")
    unsure = JudgedMetric(Verdict(key, VerdictKind.UNSURE, None, None, "it varies"), 9.0, 8.0, "img/sec")
    monkeypatch.setattr(nightly_run, "_end_broken", lambda *_given: None)
    monkeypatch.setattr(nightly_run, "_faults", lambda *_given: "")
    monkeypatch.setattr(nightly_run, "_wait_for_room", lambda *_given: ("", 0.0))
    monkeypatch.setattr(nightly_run._NightlyRun, "measure", lambda _self: ((unsure,), LadderResult((), "done")))
    tell = LadderListener(lambda _progress: None, lambda _words: None)
    rows: list[int] = []
    with open_history(tmp_path / "history.db") as history:
        for number in (1, 2):
            plan = LadderPlan(ladder(number), (), {}, lambda _cell, _text: (), tmp_path)
            asked = RunRequest("taco", cast(Any, None), 0.0, JudgeRules())
            made = nightly_run.run(cast(Any, None), cast(Any, None), plan, asked, history, cast(Any, None), {}, tell)
            rows.append(made.in_a_row)
    assert rows == [1, 2]


def test_a_run_of_another_name_that_is_being_measured_is_left_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ended: list[str] = []
    monkeypatch.setattr(ladders, "end_leftovers", lambda _backend, earlier, *_more: ended.append(earlier.id))
    logs = tmp_path / "ladders"
    plan = LadderPlan(ladder(3), (), {}, lambda _cell, _text: (), logs / ladder(3).id)
    notes: list[str] = []
    with open_history(tmp_path / "history.db") as history:
        for number in (1, 2):
            history.begin(ladder(number))
        with ladders.exclusive_lock(logs, ladder(2).id):
            nightly_run._end_broken(cast(Any, None), history, plan, notes.append)
        assert ended == [ladder(1).id]
        nightly_run._end_broken(cast(Any, None), history, plan, notes.append)
    assert ended == [ladder(1).id, ladder(2).id]


def test_the_change_follows_from_the_two_figures_beside_it(nights: tuple[Measured, Callable[..., Summary]]) -> None:
    _world, tonight = nights
    (one,) = tonight().judged
    assert one.verdict.change is not None
    assert one.tonight is not None
    assert one.baseline is not None
    assert one.tonight / one.baseline - 1 == pytest.approx(one.verdict.change.value)


@pytest.mark.parametrize(
    ("looks", "deadline", "before", "why", "waited"),
    [
        (0, 60.0, 0.0, "", 0.0),
        (0, 60.0, 120.0, "", 120.0),
        (2, 60.0, 0.0, "", 20.0),
        (2, 60.0, 120.0, "", 140.0),
        (9, 0.0, 0.0, "gpu1: no route", 0.0),
        (9, 30.0, 0.0, "gpu1: no route; waited 30 s", 0.0),
        (9, 30.0, 120.0, "gpu1: no route; waited 2 min", 0.0),
    ],
)
def test_a_busy_cluster_is_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, looks: int, deadline: float, before: float, why: str, waited: float
) -> None:
    clock = [1000.0]
    monkeypatch.setattr(nightly_run, "_LOOK_SECONDS", 10.0)
    monkeypatch.setattr(time, "monotonic", lambda: clock[0])
    monkeypatch.setattr(time, "sleep", lambda seconds: clock.append(clock.pop() + seconds))
    host = Host("gpu1", "gpu1")

    class Cluster(FakeBackend):
        """A cluster whose host answers after some looks."""

        left = looks

        def nodes(self, _inventory: Inventory) -> tuple[HostOccupancy, ...]:
            self.left -= 1
            return (HostOccupancy(host, True, Occupancy("gpu1", ()), "" if self.left < 0 else "no route"),)

    cells = {Cell("horovod", "RDMA", 8): JobSpec("j", ("true",), (host,))}
    plan = LadderPlan(ladder(1), (), cells, lambda _cell, _text: (), tmp_path)
    asked = RunRequest("taco", cast(Any, None), deadline, JudgeRules(), waited=before)
    notes: list[str] = []
    found = nightly_run._wait_for_room(Cluster(), cast(Any, None), plan, asked, notes.append)
    assert found == (why, waited)
    assert notes == (["waiting: gpu1: no route", "the cluster is free after 20 s"] if looks == 2 else notes[:1])
