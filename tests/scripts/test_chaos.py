"""Jobs whose processes are killed and stopped at random moments: none is lost, hung or told wrong, and nothing is left."""

import importlib
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.patience import patience

SCRIPT = Path(__file__).parent.parent.parent / "scripts" / "chaos.py"
ROOT_FAULTS = {"disk full"} if os.geteuid() == 0 else set()

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


@pytest.mark.parametrize(("jobs", "seconds"), [(24, 120), (200, 1200)], ids=["24", "200"])
@pytest.mark.timeout(4000)
def test_nothing_is_lost_left_or_told_wrong(jobs: int, seconds: int) -> None:
    words = ("--jobs", str(jobs), "--seconds", str(patience(seconds)), "--patience", str(patience(1)), "--json")
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
    assert set(result["faults"]) >= ROOT_FAULTS
