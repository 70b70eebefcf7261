"""Every inventory in `cases/`: the good ones give the values beside them, the bad ones exactly that message."""

import json
from pathlib import Path

import pytest

from taco_launch.core.model.codec import from_json
from taco_launch.core.model.host.hosts import Inventory
from taco_launch.hosts.inventory.load import parse
from tests.support.document_cases import Cases, check_refused, stem

CASES = Cases(Path(__file__).with_name("cases"))


@pytest.mark.parametrize("case", CASES.good, ids=stem)
def test_good(case: Path) -> None:
    inventory = parse(case.read_bytes(), "inventory.yaml")
    assert inventory == from_json(Inventory, json.loads(case.with_suffix(".json").read_text("utf-8")))


@pytest.mark.parametrize("case", CASES.bad, ids=stem)
def test_bad(case: Path) -> None:
    check_refused(case, lambda data: parse(data, "inventory.yaml"))


def test_each_case_has_one_expectation_and_no_expectation_is_left_over() -> None:
    assert CASES.unmatched() == set()
