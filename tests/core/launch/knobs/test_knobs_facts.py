"""The table of knobs against the facts that were typed apart from it: default, values, unit, since and history."""

import re
from pathlib import Path

import pytest

from taco_launch.core.launch import knobs
from taco_launch.core.launch.knobs import Knob
from taco_launch.core.launch.knobs.values import verbatim

LINES = (Path(__file__).parent / "cases" / "facts.txt").read_text("utf-8").splitlines()
FACTS = [tuple(part.strip() for part in line.split("|")) for line in LINES if line and not line.startswith("#")]
SAID = re.compile(r"'([^']*)'")
RANGE = re.compile(r"(>?)(-?[0-9]+)\.\.([0-9]*)")
UNITS = ("bytes", "ms", "s")


def passes(name: str, value: str) -> bool:
    try:
        verbatim(name, value)
    except ValueError:
        return False
    return True


def check_values(knob: Knob, values: str) -> None:
    """Compare what the fact says of the values: a range and its unit, words, and sentences in quotes."""
    for said in SAID.findall(values):
        assert said in knob.allowed
    words = SAID.sub("", values).split()
    ranges = [found for found in map(RANGE.fullmatch, words) if found]
    assert knob.unit == next((word for word in words if word in UNITS), "")
    for found in ranges:
        assert (knob.positive, knob.low, knob.high) == (
            found[1] == ">",
            int(found[2]),
            int(found[3]) if found[3] else None,
        )
    if ranges or not words:
        return
    assert knob.exact == ("exact" in words)
    for word in words:
        if word != "exact":
            assert passes(knob.name, word), word
            assert not knob.exact or word.isdigit() or not passes(knob.name, word.lower())


@pytest.mark.parametrize(
    ("name", "kind", "default", "values", "since", "history"), FACTS, ids=[row[0] for row in FACTS]
)
def test_the_table_has_the_facts(name: str, kind: str, default: str, values: str, since: str, history: str) -> None:
    knob = knobs.find(name)
    assert knob
    assert knob.kind == kind
    for told, has in ((default, knob.default), (since, knob.since)):
        assert not told or has == ("" if told == "-" else told)
    check_values(knob, values)
    if history == "-":
        assert knob.history == ""
    else:
        assert [part for part in history.split("; ") if part not in knob.history] == []


def test_every_knob_of_lightcc_has_its_fact() -> None:
    assert {knob.name for knob in knobs.matching("LIGHT_")} <= {row[0] for row in FACTS}
