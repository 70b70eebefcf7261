"""The history of checks: which lines count, and how long the file may become."""

import json
from pathlib import Path

import pytest

from taco_launch.core.facts.reports.health.verdict import FAULT, OK, WARNING, HealthVerdict
from taco_launch.hosts import check_history

HOSTS = (
    ("gpu1", (HealthVerdict("Xid", FAULT, "Xid 79", ""), HealthVerdict("clock", WARNING, "2 s", ""))),
    ("gpu2", (HealthVerdict("Xid", OK, "none", ""),)),
)


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("TACO_LAUNCH_STATE", str(tmp_path / "state"))
    return tmp_path / "state" / "checks.jsonl"


def test_the_faults_of_this_cluster_alone(file: Path) -> None:
    assert check_history.earlier("a") == ()
    check_history.add("a", HOSTS)
    check_history.add("b", HOSTS[1:])
    with file.open("a") as more:
        more.write('{"time": 1, "hosts": {"gpu1": [["fault", "Xid", "of an older version"]]}}\n')
        more.write('[]\n{"cluster": "a"}\n{"cluster": "a", "hosts": {"gpu1": [1]}}\nbroken\n')
    (entry,) = check_history.earlier("a")
    assert entry.faults == {"gpu1": frozenset(("Xid",)), "gpu2": frozenset()}
    assert entry.judged == {"Xid", "clock"}
    assert oct(file.stat().st_mode & 0o777) == "0o600"
    file.chmod(0o644)  # as earlier versions left it
    check_history.add("b", HOSTS[1:])
    assert oct(file.stat().st_mode & 0o777) == "0o600"


@pytest.mark.parametrize(("width", "most", "least"), [(1000, 1 << 20, 400), (300_000, 10 * 301_000, 10)])
def test_the_newest_lines_stay(file: Path, width: int, most: int, least: int) -> None:
    for number in range(1500 if width == 1000 else 14):
        check_history.add(str(number), (("gpu1", (HealthVerdict("Xid", FAULT, "x" * width, ""),)),))
        assert file.stat().st_size <= most + 1000 + width * (number < 14)
    kept = [int(json.loads(line)["cluster"]) for line in file.read_text().splitlines()]
    assert len(kept) >= least
    assert kept == list(range(kept[0], number + 1))
    assert kept[0] > 0
