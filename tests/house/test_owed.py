"""Which extended tests are owed, and which flaky tests the gate leaves out."""

import datetime as dt
from pathlib import Path

import pytest

from tests import budget, flaky, owed
from tests.support.budgets import TEXT

OWN = budget.read(TEXT)
PATHS = (
    "taco_launch/agent/guard.py", "taco_launch/agents.md", "taco_launch/cli/main.py", "taco_launch/core/lifecycle/state.py",
    "docs/index.md", "tests/e2e/cluster.py", "tests/e2e/test_a.py", "tests/e2e/test_c.py", "tests/core/test_x.py",
)  # fmt: skip


def keys(**changed: str) -> dict[str, str]:
    return owed.keys(OWN, {path: changed.get(path.rpartition("/")[2].partition(".")[0], "1") for path in PATHS})


def test_a_unit_covers_its_prefixes_itself_and_helpers_of_its_folder() -> None:
    assert owed.covered(OWN.units["e2e/test_a.py"], PATHS) == [PATHS[0], PATHS[1], PATHS[5], PATHS[6]]
    assert owed.covered(OWN.units["core/"], PATHS) == [PATHS[3], PATHS[8]]


def test_a_unit_covers_what_it_imports_of_the_support(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files = {
        "e2e/test_a.py": "from tests.support import slots\nfrom tests.support.sshd import Sshd, keygen\n",
        "e2e/cluster.py": "from tests.support.mesh import mesh\n",
        "core/facts/test_x.py": "from tests.support.fleet import roce\n",
    }
    for path, text in files.items():
        (tmp_path / "tests" / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "tests" / path).write_text(text)
    monkeypatch.setattr(owed, "_ROOT", tmp_path)
    support = [f"tests/support/{name}.py" for name in ("fleet", "mesh", "slots", "sshd", "told")]
    assert owed.covered(OWN.units["e2e/test_a.py"], support) == ["tests/support/slots.py", "tests/support/sshd.py"]
    assert owed.covered(OWN.units["core/"], support) == ["tests/support/fleet.py"]
    assert owed.covered(OWN.units["e2e/test_c.py"], support) == []


def test_a_unit_is_owed_until_it_passes_with_the_files_as_they_are() -> None:
    every = ["core/", "e2e/test_a.py", "e2e/test_c.py"]  # all that have extended tests
    assert owed.owed(OWN, keys(), "") == every
    record = "".join(owed.line(keys()[unit], passed=unit != "core/", seconds=1, unit=unit) for unit in every)
    assert owed.owed(OWN, keys(), record) == ["core/"]
    assert owed.owed(OWN, keys(guard="2"), record) == ["core/", "e2e/test_a.py"]
    assert owed.owed(OWN, keys(cluster="2"), record) == every
    record += owed.line(keys()["core/"], passed=True, seconds=1, unit="core/")
    assert owed.owed(OWN, keys(), record) == []
    assert owed.owed(OWN, keys(index="2"), f"not a line\n{record}") == []


def test_the_cheapest_units_fill_the_minutes() -> None:
    every = ["core/", "e2e/test_a.py", "e2e/test_c.py"]
    assert owed.within(OWN, every, 5) == ["core/"]
    assert owed.within(OWN, every, 57) == ["core/", "e2e/test_a.py"]
    assert owed.within(OWN, every, 70) == ["core/", "e2e/test_a.py", "e2e/test_c.py"]
    assert owed.within(OWN, every, 1) == []


def test_three_entries_in_two_weeks_leave_a_test_out() -> None:
    lines = ["# a comment", *(f"2026-11-{day} 40 tests/e2e/test_x.py::test[a b]" for day in ("01", "20", "25"))]
    today = dt.date(2026, 11, 26)
    assert flaky.left_out("\n".join(lines), today) == frozenset()
    lines.append("2026-11-26 3 tests/e2e/test_x.py::test[a b]")
    assert flaky.left_out("\n".join(lines), today) == {"tests/e2e/test_x.py::test[a b]"}
    assert flaky.left_out("\n".join(lines), today + dt.timedelta(days=10)) == frozenset()
