"""The tables that a ladder prints at its end."""

from pathlib import Path

import pytest

pytest.importorskip("scipy")

from taco_launch.bench.model.runs import Cell, Metric, Run
from taco_launch.bench.run.run_ladder import INTERRUPTED, LadderPlan, LadderResult
from taco_launch.cli.bench.ladder_output import show_tables
from taco_launch.cli.options.common import Settings
from taco_launch.core.model.host.hosts import Host
from taco_launch.core.model.jobs import JobSpec
from tests.support.ladders import ladder
from tests.support.measured import run

CELLS = tuple(Cell("ping", variant, ranks) for ranks in (1, 2) for variant in ("plain", "slow"))
LATENCY = Metric("latency", "ms", higher_is_better=False)


def printed(runs: list[Run], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> str:
    specs = dict.fromkeys(CELLS, JobSpec("j", ("true",), (Host("gpu1", "gpu1"),)))
    plan = LadderPlan(ladder(1), (), specs, lambda _cell, _text: (), tmp_path)
    show_tables(Settings(), plan, LadderResult(tuple(runs), INTERRUPTED))
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
