"""Logs of known programs give their last values; those of others, whose names begin with `none`, give nothing."""

import json
from dataclasses import asdict
from pathlib import Path

import pytest

from taco_launch.core.progress.tracker import Tracker

FOLDER = Path(__file__).parent / "cases"
CASES = sorted(FOLDER.glob("*.json"))


def tracked(text: str) -> Tracker:
    tracker = Tracker()
    for number, line in enumerate(text.split("\n")):
        tracker.feed(1000.0 + 10 * number, 0, line)
    return tracker


@pytest.mark.parametrize("case", CASES, ids=lambda path: path.stem)
def test_case(case: Path) -> None:
    told = json.loads(case.read_text("utf-8"))["expected"]
    with case.with_suffix(".txt").open(encoding="utf-8", newline="") as file:
        found = tracked(file.read()).best()
    if told is None:
        assert found is None
        return
    assert found is not None
    values = asdict(found)
    for name, value in told.items():
        seen = values[name]
        if value == "nan":
            assert (seen, found.diverged) == (None, True)
        elif isinstance(value, float):
            assert seen == pytest.approx(value, rel=1e-3), name
        else:
            assert seen == value, name


def test_there_are_enough_of_both() -> None:
    expected = [json.loads(case.read_text("utf-8"))["expected"] for case in CASES]
    assert sum(one is None for one in expected) >= 20
    assert {case.stem for case in CASES} == {path.stem for path in FOLDER.glob("*.txt")}
