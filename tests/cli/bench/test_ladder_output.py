"""The tables that a ladder prints at its end."""

from dataclasses import replace
from pathlib import Path

import pytest

pytest.importorskip("scipy")

from taco_launch.bench.history.history import LadderKind, open_history
from taco_launch.bench.model.runs import Cell, Metric, Run
from taco_launch.bench.run.run_ladder import DONE, INTERRUPTED, LadderPlan, LadderResult
from taco_launch.cli.bench.ladder_output import finish, show_tables
from taco_launch.cli.options.common import Settings
from taco_launch.core.model.host.hosts import Host
from taco_launch.core.model.jobs import JobSpec
from tests.support.ladders import ladder
from tests.support.measured import run

CELLS = tuple(Cell("ping", variant, ranks) for ranks in (1, 2) for variant in ("plain", "slow"))
LATENCY = Metric("latency", "ms", higher_is_better=False)


def plan_of(cells: tuple[Cell, ...], folder: Path) -> LadderPlan:
    specs = dict.fromkeys(cells, JobSpec("j", ("true",), (Host("gpu1", "gpu1"),)))
    return LadderPlan(ladder(1, kind=LadderKind.LADDER), (), specs, lambda _cell, _text: (), folder)


def printed(runs: list[Run], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> str:
    show_tables(Settings(), plan_of(CELLS, tmp_path), LadderResult(tuple(runs), INTERRUPTED))
    return capsys.readouterr().out


def test_bars_are_headed_by_their_unit(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A time is no rate."""
    shown = printed([run(cell, 10.5, metric=LATENCY) for cell in CELLS], tmp_path, capsys)
    header = shown.partition("as bars:\n")[2].partition("\n")[0]
    assert header.split() == ["RANKS", "VARIANT", "MS"]


def test_an_interrupted_ladder_claims_nothing_of_cells_that_did_not_run(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shown = printed([run(CELLS[3], 20.5, metric=LATENCY)], tmp_path, capsys)
    assert "no sample" in shown
    assert shown.endswith("\neach number comes from one run: it has no interval and cannot show a difference\n")


def test_a_failed_run_of_a_round_that_does_not_count_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    plan = plan_of(CELLS[:2], tmp_path)
    made = (run(CELLS[0], 10.5), run(CELLS[1], 20.5), replace(run(CELLS[0], 10.5), repeat=1, readings=(), why="exit 1"))
    with open_history(tmp_path / "history.db") as history:
        history.begin(plan.ladder)
        for position, one in enumerate(made):
            history.add(plan.ladder.id, position, one)
        counted = history.counted_runs(plan.ladder)
        assert len(counted) == 2
        assert finish(Settings(), plan, history, LadderResult(counted, DONE), "") == 0
    assert "plain, 1 rank: 1 of 2 runs gave no sample: exit 1" in capsys.readouterr().err
