"""Every matrix in `matrices/`: the good ones give the values beside them, the bad ones exactly that message."""

import hashlib
import json
from dataclasses import asdict
from pathlib import Path

import pytest

from taco_launch.bench.run.matrix_file import parse
from tests.support.document_cases import Cases, check_refused, stem
from tests.support.told import told

CASES = Cases(Path(__file__).with_name("matrices"))
ENVIRON = {"HOME": "/root"}


@pytest.mark.parametrize("case", CASES.good, ids=stem)
def test_good(case: Path) -> None:
    matrix = parse(case.read_bytes(), "/matrices/m.yaml", ENVIRON)
    found = asdict(matrix)
    for entry, variant in zip(found["variants"], matrix.variants, strict=True):
        entry["job"] = told(variant.job)
    assert found.pop("digest") == hashlib.sha256(case.read_bytes()).hexdigest()
    # through JSON, so that tuples and lists are one
    plain = json.loads(json.dumps(found, default=lambda kind: kind.value))
    assert plain == json.loads(case.with_suffix(".json").read_text("utf-8"))


@pytest.mark.parametrize("case", CASES.bad, ids=stem)
def test_bad(case: Path) -> None:
    check_refused(case, lambda data: parse(data, "m.yaml", ENVIRON))


def test_each_case_has_one_expectation_and_no_expectation_is_left_over() -> None:
    assert CASES.unmatched() == set()
