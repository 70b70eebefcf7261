"""Every job file in `jobs/`: the good ones give the values beside them, the bad ones exactly that message."""

import json
from pathlib import Path

import pytest

from taco_launch.jobs.documents.job_file import parse
from tests.support.document_cases import Cases, check_refused, stem
from tests.support.told import told

CASES = Cases(Path(__file__).with_name("cases"))
ENVIRON = {"HOME": "/root"}


@pytest.mark.parametrize("case", CASES.good, ids=stem)
def test_good(case: Path) -> None:
    job = parse(case.read_bytes(), "/jobs/job.yaml", ENVIRON)
    found = {"request": told(job.request), "notes": list(job.notes)}
    assert found == json.loads(case.with_suffix(".json").read_text("utf-8"))


@pytest.mark.parametrize("case", CASES.bad, ids=stem)
def test_bad(case: Path) -> None:
    check_refused(case, lambda data: parse(data, "job.yaml", ENVIRON))


def test_each_case_has_one_expectation_and_no_expectation_is_left_over() -> None:
    assert CASES.unmatched() == set()
