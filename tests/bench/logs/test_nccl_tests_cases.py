"""Every log in `nccl_tests/` gives the readings, or the reason for none, that stands beside it."""

import json
from pathlib import Path

import pytest

from taco_launch.bench.logs.nccl_tests import read
from taco_launch.bench.logs.parse import NoSample

FOLDER = Path(__file__).with_name("nccl_tests")
LOGS = sorted(FOLDER.glob("*.log"))


@pytest.mark.parametrize("log", LOGS, ids=lambda path: path.stem)
def test_case(log: Path) -> None:
    expected = json.loads(log.with_suffix(".json").read_text("utf-8"))
    found = read(log.read_bytes().decode(), expected["ranks"])
    if "readings" in expected:
        assert not isinstance(found, NoSample), found
        assert [[reading.metric.name, reading.value] for reading in found] == expected["readings"]
        assert {(reading.metric.unit, reading.metric.higher_is_better) for reading in found} == {("GB/s", True)}
    else:
        assert isinstance(found, NoSample), found
        for part in expected["no_sample"]:
            assert part in found.why


def test_each_case_has_one_expectation_and_no_expectation_is_left_over() -> None:
    assert {path.name for path in FOLDER.iterdir()} == {f"{log.stem}{end}" for log in LOGS for end in (".log", ".json")}
