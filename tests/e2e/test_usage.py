"""A real job is sampled, and `top job`, `get` and its folder show what it uses."""

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from taco_launch.agent.store import usage_series
from taco_launch.agent.store.folders import JobFolder
from tests.conftest import Taco, eventually

pytestmark = pytest.mark.e2e

BUSY = "while True: sum(range(1000))"


def test_top_job_and_report_show_the_cpus_that_a_job_uses(taco: Taco, tmp_path: Path) -> None:
    secret = ("-x", "API_TOKEN=hunter2hunter2")
    taco.ok(
        "submit", "--name", "busy", "--np", "1", "--launcher", "env", *secret, "--", sys.executable, "-S", "-c", BUSY
    )

    def used() -> Any:
        (job,) = json.loads(taco.ok("top", "job", "--json").stdout)["jobs"]
        return job["usage"]

    found = eventually(used, 40, "the second sample")["localhost"]
    assert 0.2 < found["job_cpus"] <= 1.1
    assert 0.2 < found["thread"] <= 1.0
    assert found["cpu"] * found["cpus"] > 0.2
    header, line = taco.ok("top", "job").stdout.splitlines()[:2]
    assert header.split()[-6:] == ["IO", "WAIT", "RECEIVE", "SEND", "GOODPUT", "PROGRESS"]
    assert f" of {found['cpus']} " in line
    assert "\nUSES: CPU " in taco.ok("get", "busy").stdout
    taco.ok("stop", "busy")
    taco.ended("busy")
    kept = usage_series.read(JobFolder(taco.folder("busy")))
    assert kept is not None
    assert kept.series, "it stays for a report"
    assert taco.job("busy")["usage"] == {}
    page = tmp_path / "busy.html"
    taco.ok("report", "busy", "--to", str(page))
    assert "busy: CANCELLED" in page.read_text("utf-8")
    assert "hunter2" not in page.read_text("utf-8")
    report = json.loads(taco.ok("report", "busy", "--format", "json").stdout)
    assert (report["state"], report["hosts"][0]["host"], report["hosts"][0]["ranks"]) == ("CANCELLED", "localhost", "0")
    assert report["usage"][0]["job_cpus"] > 0.2
    assert {each["label"]: each["value"] for each in report["facts"]}["REASON"].startswith("stopped by ")
    assert report["events"][-1]["kind"] == "ended"
