"""Every output in `perftest/` gives the readings, or the reason for none, that stands beside it."""

import json
from pathlib import Path

import pytest

from taco_launch.bench.logs.parse import NoSample
from taco_launch.bench.logs.perftest import read, speaks

FOLDER = Path(__file__).with_name("perftest")
LOGS = sorted(FOLDER.glob("*.log"))


@pytest.mark.parametrize("log", LOGS, ids=lambda path: path.stem)
def test_case(log: Path) -> None:
    expected = json.loads(log.with_suffix(".json").read_text("utf-8"))
    text = log.read_text("utf-8")
    assert speaks(text)
    found = read(text)
    if "readings" in expected:
        assert not isinstance(found, NoSample), found
        assert [[reading.metric.name, reading.value] for reading in found] == expected["readings"]
        kinds = {(reading.metric.unit, reading.metric.higher_is_better) for reading in found}
        assert kinds == {(expected["unit"], expected["higher_is_better"])}
    else:
        assert isinstance(found, NoSample), found
        assert expected["no_sample"] in found.why


def test_each_case_has_one_expectation_and_no_expectation_is_left_over() -> None:
    assert {path.name for path in FOLDER.iterdir()} == {f"{log.stem}{end}" for log in LOGS for end in (".log", ".json")}
