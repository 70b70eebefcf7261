"""Jobs whose processes are killed and stopped at random moments: none is lost, hung or told wrong, and nothing is left."""

import importlib
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from tests.support.patience import patience

SCRIPT = Path(__file__).parent.parent.parent / "scripts" / "chaos.py"
ROOT_FAULTS = {"disk full"} if os.geteuid() == 0 else set()
LINK_FAULTS = {"link down, short", "link down, long", "link down, for good"}

pytestmark = pytest.mark.e2e


@pytest.mark.skipif(os.geteuid() != 0, reason="cannot: only root may mount a disk")
def test_a_disk_of_any_size_is_filled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(SCRIPT.parent)
    chaos_jobs = importlib.import_module("chaos_jobs")
    subprocess.run(("mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", tmp_path), check=True)
    try:
        for pages in range(17):
            (tmp_path / "other").write_bytes(bytes(4096 * pages))
            chaos_jobs.fill(tmp_path / "filler")
            assert shutil.disk_usage(tmp_path).free == 0
            (tmp_path / "filler").unlink()
    finally:
        subprocess.run(("umount", tmp_path), check=True)


@pytest.fixture
def chaos_links(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(SCRIPT.parent)
    return importlib.import_module("chaos_links")


@pytest.mark.parametrize(
    ("change", "seconds", "wrong"),
    [
        ({}, 20, ""),
        ({"reason": "rank 1 was killed"}, 20, "its reason names no host"),
        ({}, 2, "its connections were back in time"),
        ({"started": None}, 2, ""),
        ({"hosts": ["n1", "n3"]}, 20, "nothing that it needs was cut off"),
        ({"ended": 99.0}, 20, "nothing that it needs was cut off"),
        ({"state": "SUCCEEDED"}, 20, "its ranks ended with 3"),
        ({"state": "FAILED", "exit_code": 3, "reason": "rank 1 exited with code 3"}, 2, ""),
    ],
)
def test_what_is_told_of_a_job_whose_host_was_cut_off(
    chaos_links: ModuleType, tmp_path: Path, change: dict[str, Any], seconds: float, wrong: str
) -> None:
    plan = chaos_links.Plan("l0-0", "mpirun", ranks=4, seconds=9.0, exit_code=3, at=0.0)
    record = {
        "state": "LOST",
        "exit_code": 1,
        "hosts": ["n1", "n2"],
        "submitted": 90.0,
        "started": 91.0,
        "ended": 150.0,
    }
    record |= {"reason": "host n2 lost: no heartbeat for 8 s", **change}
    links = chaos_links.Links(tmp_path, 1.0, chaos_links.Result())
    assert links._is_wrong(plan, record, "n2", 100.0, 100.0 + seconds) == wrong


def test_what_is_reported_of_a_job_that_ended_wrong(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.syspath_prepend(SCRIPT.parent)
    chaos_jobs = importlib.import_module("chaos_jobs")
    chaos = chaos_jobs.Chaos(tmp_path, 1.0)
    rows = [{"name": "c0", "state": "FAILED", "reason": "it failed"}]
    monkeypatch.setattr(chaos, "ask", lambda *_words: {"jobs": rows})
    plan = chaos_jobs.Plan(
        "c0", 1, 0.0, exit_code=0, verb="run", restart=False, fault="", signal=9, after=0.0, resumed=True
    )
    assert chaos.finish([plan]).wrong == ["c0: nothing that it needs was ended: FAILED: it failed (no fault)"]


def test_where_no_link_can_be_cut_that_is_told(
    chaos_links: ModuleType, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(chaos_links, "why_not", lambda: "cannot: only root makes hosts of namespaces")
    chaos = importlib.import_module("chaos")
    assert chaos.main(["--jobs", "0", "--links", "1", "--no-disk"]) == 0
    assert "left out: link down: cannot: only root makes hosts of namespaces\n" in capsys.readouterr().out


@pytest.mark.parametrize(("jobs", "links", "seconds"), [(24, 0, 120), (200, 12, 1200)], ids=["24", "200"])
@pytest.mark.timeout(4000)
def test_nothing_is_lost_left_or_told_wrong(chaos_links: ModuleType, jobs: int, links: int, seconds: int) -> None:
    limits = ("--seconds", str(patience(seconds)), "--patience", str(patience(1)))
    words = ("--jobs", str(jobs), "--links", str(links), *limits, "--json")
    done = subprocess.run(
        (sys.executable, str(SCRIPT), *words),
        capture_output=True,
        text=True,
        check=False,
        timeout=patience(2 * seconds),
    )
    print(done.stdout, done.stderr)
    result = json.loads(done.stdout.splitlines()[-1])
    assert {name: result[name] for name in ("wrong", "lost", "hung", "orphans", "burned")} == {
        "wrong": [],
        "lost": [],
        "hung": [],
        "orphans": [],
        "burned": [],
    }
    assert done.returncode == 0
    assert result["right"] >= jobs / 2
    assert set(result["faults"]) >= ROOT_FAULTS | (LINK_FAULTS if links and not chaos_links.left_out() else set())
