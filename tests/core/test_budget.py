"""The gate's time budget: each e2e and lab module has a line, and no section's critical path is over its limit."""

import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests import budget
from tests.budget_plugin import COLLECTED

TESTS = Path(budget.__file__).parent
GROUPS = st.dictionaries(st.sampled_from(["", "a", "b", "c", "d", "e"]), st.floats(0, 1000), max_size=6)
LATE = (
    "section e2e takes 35 s on 2 workers, limit 30 s: make a test faster, or move a slow variation to the nightly tier"
)
TEXT = """
[e2e]
workers = 2
limit = 30
nightly_limit = 100
[e2e.modules]
"e2e/test_a.py" = {seconds = 20, group = "one"}
"e2e/test_b.py" = {seconds = 15, group = "one"}
"e2e/test_c.py" = {seconds = 5, nightly = 100}
[lab]
workers = 2
limit = 10
nightly_limit = 0
[lab.modules]
"""


@pytest.mark.parametrize("name", budget.SECTIONS)
def test_every_module_has_its_line_and_the_section_its_time(name: str, pytestconfig: pytest.Config) -> None:
    section = budget.load()[name]
    collected = {path: name in belongs for path, belongs in pytestconfig.stash[COLLECTED].items()}
    assert budget.faults(section, collected) == []
    assert [module.path for module in section.modules if not (TESTS / module.path).is_file()] == []


def test_what_is_wrong_is_named() -> None:
    found = {"e2e/test_a.py": True, "e2e/test_b.py": False, "e2e/test_new.py": True, "core/test_x.py": False}
    assert budget.faults(budget.read(TEXT)["e2e"], found) == [
        "e2e/test_new.py: no line in tests/budget.toml, [e2e.modules]",
        LATE,
        "tests/budget.toml: [e2e.modules]: e2e/test_b.py has no e2e test",
    ]
    assert budget.faults(budget.read(TEXT)["lab"], dict.fromkeys(found, False)) == []


@pytest.mark.parametrize(
    ("was", "becomes", "said"),
    [
        ("[lab]\nworkers", "[lab]\nother", "KeyError: 'workers'"),
        ("seconds = 20", "second = 20", "unexpected keyword argument 'second'"),
        ("workers = 2", "worker = 2", "KeyError: 'workers'"),
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
        for file in ("e2e/test_hosts.py", "e2e/test_run.py", "core/test_budget.py")
        for case in "ab"
    ]
    assert units[0] == units[1]
    assert len(set(units)) == 5
