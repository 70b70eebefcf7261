"""What a nightly run clears away, and how many before it were unsure."""

from pathlib import Path
from typing import Any, cast

import pytest

pytest.importorskip("scipy")

from taco_launch.bench.history.history import open_history
from taco_launch.bench.runs import MetricKey
from taco_launch.bench.stats.verdicts import JudgeRules, Verdict, VerdictKind
from taco_launch.flows.ladder import LadderListener, LadderPlan, LadderResult
from taco_launch.nightly import run as nightly_run
from taco_launch.nightly.run import RunRequest, clear_logs, waiting_before
from taco_launch.nightly.summary import JudgedMetric
from tests.bench.ladders import ladder


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


def test_a_run_that_is_unsure_again_tells_how_often(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    key = MetricKey(("gpu1",), "A100", "w", "v", 1, "img/sec")
    unsure = JudgedMetric(Verdict(key, VerdictKind.UNSURE, None, None, "it varies"), 9.0, 8.0, "img/sec")
    monkeypatch.setattr(nightly_run, "_end_broken", lambda *_given: None)
    monkeypatch.setattr(nightly_run, "_faults", lambda *_given: "")
    monkeypatch.setattr(nightly_run, "_wait_for_room", lambda *_given: "")
    monkeypatch.setattr(nightly_run._Night, "measure", lambda _self: ((unsure,), LadderResult((), "done")))
    tell = LadderListener(lambda _progress: None, lambda _words: None)
    rows: list[int] = []
    with open_history(tmp_path / "history.db") as history:
        for number in (1, 2):
            plan = LadderPlan(ladder(number), (), {}, lambda _cell, _text: (), tmp_path)
            asked = RunRequest("taco", cast(Any, None), 0.0, JudgeRules())
            made = nightly_run.run(cast(Any, None), cast(Any, None), plan, asked, history, cast(Any, None), {}, tell)
            rows.append(made.in_a_row)
    assert rows == [1, 2]
