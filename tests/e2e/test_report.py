"""The page of a nightly run in a real browser: it shows its figures, says nothing on the console and asks nobody."""

import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

pytest.importorskip("scipy")

from taco_launch.bench.history.history import open_history
from taco_launch.bench.nightly.recorded_run import record_run
from tests.conftest import Taco
from tests.support import browser
from tests.support.ladders import ladder, run
from tests.support.nights import SLOWER
from tests.support.patience import patience

pytestmark = pytest.mark.e2e


def test_the_page_in_a_browser(taco: Taco, tmp_path: Path) -> None:
    program, db, page = browser.find(), tmp_path / "history.db", tmp_path / "r.html"
    with open_history(db) as history:
        for number in (1, 2):
            runs = [
                run(rate * ranks + n, name, ranks, repeat=n)
                for name, rate in (("a", 10.0), ("RDMA", 12.0))
                for ranks in (8, 16)
                for n in range(3)
            ]
            history.merge(ladder(number, ended=2.0, outcome="done"), list(enumerate(runs)))
    night = replace(SLOWER, ladder=ladder(2).id)
    record_run(taco.state / "nights" / "taco", "taco", None, lambda _start: night)
    taco.ok("nightly", "report", "taco", "--db", str(db), "--to", str(page))
    argv = [program, "--headless", "--no-sandbox", "--disable-gpu", f"--user-data-dir={tmp_path}/profile"]
    argv += ["--enable-logging=stderr", "--v=0", "--dump-dom", page.as_uri()]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=patience(100), check=True)
    assert "linear speedup" in done.stdout
    assert "taco-launch nightly baseline accept" in done.stdout
    assert "CONSOLE" not in done.stderr
    assert "Refused" not in done.stderr
