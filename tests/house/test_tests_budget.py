"""The gate's time budget: each e2e and lab module has a line, each room of fast tests too, and the gate takes ten minutes."""

import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests import budget
from tests.budget_plugin import COLLECTED
from tests.support.budgets import TEXT
from tests.support.paths import ROOT

# The folders that a module may cover.
TOPS = ("docker", "docs", "scripts", "taco_launch")

TESTS = Path(budget.__file__).parent
GROUPS = st.dictionaries(st.sampled_from(["", "a", "b", "c", "d", "e"]), st.floats(0, 1000), max_size=6)


def test_every_module_and_room_has_its_line_and_the_gate_its_time(pytestconfig: pytest.Config) -> None:
    own = budget.load()
    collected = pytestconfig.stash[COLLECTED]
    assert budget.faults(own, collected) == []
    assert [path for path in own.units if not (TESTS / path).exists()] == []


def test_every_prefix_that_a_module_covers_has_files() -> None:
    """A prefix of no file never makes a module owed."""
    own = budget.load()
    paths = [str(path.relative_to(ROOT)) for path in ROOT.glob("*") if path.is_file()]
    paths += [str(path.relative_to(ROOT)) for top in TOPS for path in (ROOT / top).rglob("*") if path.is_file()]
    empty = [
        f"{unit}: {prefix}"
        for unit, module in own.units.items()
        for prefix in module.covers
        if not any(path.startswith((prefix, f"taco_launch/{prefix}")) for path in paths)
    ]
    assert empty == []


def test_what_is_wrong_is_named() -> None:
    found = {
        "e2e/test_a.py": {"test_one", "test_two[b]"},
        "e2e/test_c.py": set[str](),
        "e2e/test_new.py": {"test_new"},
        "core/test_x.py": set[str](),
        "room/test_y.py": set[str](),
    }
    assert budget.faults(budget.read(TEXT), found) == [
        "e2e/test_new.py: no line in tests/budget.toml",
        "room/test_y.py: no line in tests/budget.toml",
        "tests/budget.toml: e2e/test_a.py: no test's name begins with test_two[a",
        "tests/budget.toml: e2e/test_b.py: covers nothing",
        "tests/budget.toml: e2e/test_b.py: seconds in the gate and names of its gate tests go together",
        "tests/budget.toml: e2e/test_c.py has no test of its section",
        "the gate takes 610 s, limit 600 s: move tests to the extended tier",
    ]


@pytest.mark.parametrize(
    ("path", "name", "has_line", "is_in_gate"),
    [
        ("e2e/test_a.py", "test_one[x-1]", True, True),
        ("e2e/test_a.py", "test_two[b]", True, False),
        ("e2e/test_c.py", "test_one", True, False),
        ("e2e/test_a.py", "test_fast", False, True),
        ("core/test_x.py", "test_slow[1]", False, False),
        ("core/test_x.py", "test_other", False, True),
    ],
)
def test_the_gate_runs_what_is_named_and_fast_tests_that_are_not_slow(
    path: str, name: str, has_line: bool, is_in_gate: bool
) -> None:
    assert budget.read(TEXT).is_in_gate(path, name, has_line=has_line) is is_in_gate


@pytest.mark.parametrize(
    ("was", "becomes", "said"),
    [
        ("[lab]\nworkers", "[lab]\nother", "KeyError: 'workers'"),
        ("seconds = 20", "second = 20", "unexpected keyword argument 'second'"),
        ("slow =", "other =", "KeyError: 'slow'"),
        ("[lab]", "[lab", "Expected ']'"),
    ],
)
def test_a_budget_that_cannot_be_read_says_why(was: str, becomes: str, said: str) -> None:
    with pytest.raises(ValueError, match=re.escape(said)):
        budget.read(TEXT.replace(was, becomes, 1))


@given(GROUPS, st.integers(1, 4))
def test_the_critical_path_is_between_its_bounds(groups: dict[str, float], workers: int) -> None:
    """No schedule beats the longest group or an even share; longest-first is at most 4/3 of the best (Graham 1969)."""
    least = max([sum(groups.values()) / workers, *(value for name, value in groups.items() if name)])
    assert least * (1 - 1e-9) <= budget.makespan(groups, workers) <= least * 2 + 1e-9


def test_what_has_no_group_fills_the_gaps() -> None:
    assert budget.makespan({"a": 100, "b": 40}, 2) == 100
    assert budget.makespan({"a": 100, "b": 40, "": 60}, 2) == 100
    assert budget.makespan({"a": 100, "b": 40, "": 80}, 2) == 110


def test_tests_of_a_group_are_one_unit_of_work(pytestconfig: pytest.Config, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pytestconfig.option, "dist", "loadgroup")
    monkeypatch.setattr(pytestconfig.option, "tx", ["2*popen"])
    scheduler = pytestconfig.hook.pytest_xdist_make_scheduler(config=pytestconfig, log=None)
    units = [
        scheduler._split_scope(f"tests/{file}::test_it[{case}]")  # what xdist asks it
        for file in ("e2e/test_hosts.py", "e2e/test_run.py", "house/test_tests_budget.py")
        for case in "ab"
    ]
    assert units[0] == units[1]
    assert len(set(units)) == 5
