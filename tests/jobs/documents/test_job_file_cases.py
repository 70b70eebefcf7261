"""Every job file in `jobs/`: the good ones give the values beside them, the bad ones exactly that message."""

import json
from pathlib import Path

import pytest

from taco_launch.core.errors import USAGE, SpecError
from taco_launch.jobs.documents.job_file import parse
from tests.support.told import told

FOLDER = Path(__file__).with_name("cases")
CASES = sorted(FOLDER.glob("*.yaml"))
ENVIRON = {"HOME": "/root"}


@pytest.mark.parametrize("case", [path for path in CASES if path.stem.startswith("good_")], ids=lambda path: path.stem)
def test_good(case: Path) -> None:
    job = parse(case.read_bytes(), "/jobs/job.yaml", ENVIRON)
    found = {"request": told(job.request), "notes": list(job.notes)}
    assert found == json.loads(case.with_suffix(".json").read_text("utf-8"))


@pytest.mark.parametrize("case", [path for path in CASES if path.stem.startswith("bad_")], ids=lambda path: path.stem)
def test_bad(case: Path) -> None:
    with pytest.raises(SpecError) as caught:
        parse(case.read_bytes(), "job.yaml", ENVIRON)
    assert f"{caught.value}\n" == case.with_suffix(".txt").read_text("utf-8")
    assert caught.value.exit_code == USAGE


def test_each_case_has_one_expectation_and_no_expectation_is_left_over() -> None:
    expected = {path.stem + (".json" if path.stem.startswith("good_") else ".txt") for path in CASES}
    assert {path.name for path in FOLDER.iterdir()} == expected | {path.name for path in CASES}
