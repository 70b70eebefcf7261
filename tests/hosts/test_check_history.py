"""The file of checks: what it keeps of a verdict."""

from pathlib import Path

import pytest

from taco_launch.core.facts.reports.health.verdict import FAULT, HealthVerdict
from taco_launch.hosts import check_history


def test_a_text_is_kept_without_its_age(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TACO_LAUNCH_STATE", str(tmp_path))
    check_history.add("hcc", (("gpu1", (HealthVerdict("Xid", FAULT, "Xid 79 on GPU 2 13.7 s ago (RESTART_BM)", ""),)),))
    assert '"Xid 79 on GPU 2 (RESTART_BM)"' in (tmp_path / "checks.jsonl").read_text()
    (kept,) = check_history.earlier("hcc")
    assert kept.faults == {"gpu1": {"Xid"}}
