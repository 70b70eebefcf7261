"""A small run of the simulation of the judge: its own figures with room for chance, and what a nightly run's luck does."""

import importlib
import json
from typing import Any

import pytest

from tests.support.paths import ROOT

SCRIPTS = ROOT / "scripts/benchmarks"


@pytest.fixture
def power(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(SCRIPTS)
    return importlib.import_module("judge_power")


@pytest.mark.nightly
def test_false_alarms_are_rare_and_a_drop_is_found(power: Any, capsys: pytest.CaptureFixture[str]) -> None:
    """Bounds that 0.2 % false alarms and 97 % found miss less than once in a million."""
    assert power.main(["--nights", "200", "--jobs", "1", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    for nights, counts in told["counts"].items():
        assert counts["quiet"]["false"] <= 6
        if nights != "3":
            assert counts["dropped"]["found"] >= 178
            # a screen at 5 % of 30 cells; under 0.6 or over 2.4 in the mean of 200 nightly runs is no chance
            assert 0.6 < counts["quiet"]["suspects"] / 200 < 2.4
    assert [verdict["bar"] for verdict in told["verdicts"]] == [1.0, 1.0, 90.0, 1.0, 90.0]


def test_the_luck_of_a_night_is_no_change(power: Any) -> None:
    """Nights that differ by 2 %: what a suspect shows again, its night explains. 1 % of nightly runs may be wrong, 12 are more.

    A fresh p that does not allow for what both stages share calls a change in over 10 %.
    """
    noise = power._Noise(3, 0.01, 0.02)
    counts = power._sum(power._chunk(noise, power._Chunk(10, 0.0, 50, (7, at))) for at in range(4))
    assert counts["suspects"] > 100
    assert counts["false"] <= 12


def test_the_bounds(power: Any) -> None:
    """No event in n trials: 1 - 0.05 ** (1 / n), which is about 3 / n; 1 in 10: 0.394 in Clopper's tables."""
    assert power._below(0, 100) == pytest.approx(1 - 0.05 ** (1 / 100))
    assert power._below(1, 10) == pytest.approx(0.394, abs=5e-4)
    assert power._below(5, 5) == 1.0
