"""Every inventory in `cases/`: the good ones give the values beside them, the bad ones exactly that message."""

import json
from dataclasses import asdict
from pathlib import Path

import pytest

from taco_launch.core.errors import USAGE, SpecError
from taco_launch.hosts.inventory.load import parse

CASES = sorted(Path(__file__).with_name("cases").glob("*.yaml"))


@pytest.mark.parametrize("case", [path for path in CASES if path.stem.startswith("good_")], ids=lambda path: path.stem)
def test_good(case: Path) -> None:
    inventory = parse(case.read_bytes(), "inventory.yaml")
    # through JSON, so that tuples and lists are one
    assert json.loads(json.dumps(asdict(inventory))) == json.loads(case.with_suffix(".json").read_text("utf-8"))


@pytest.mark.parametrize("case", [path for path in CASES if path.stem.startswith("bad_")], ids=lambda path: path.stem)
def test_bad(case: Path) -> None:
    with pytest.raises(SpecError) as caught:
        parse(case.read_bytes(), "inventory.yaml")
    assert f"{caught.value}\n" == case.with_suffix(".txt").read_text("utf-8")
    assert caught.value.exit_code == USAGE


def test_each_case_has_one_expectation_and_no_expectation_is_left_over() -> None:
    folder = Path(__file__).with_name("cases")
    expected = {path.stem + (".json" if path.stem.startswith("good_") else ".txt") for path in CASES}
    assert {path.name for path in folder.iterdir()} == expected | {path.name for path in CASES}
