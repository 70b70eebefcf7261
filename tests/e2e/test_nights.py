"""nightly run with the real mpirun: green, slower, faster, busy, broken off; against a history made beforehand."""

import contextlib
import json
import math
import platform
import re
import signal
import sqlite3
import subprocess
import time
from dataclasses import replace
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import pytest

from taco_launch.bench.history.history import LadderKind, open_history
from taco_launch.bench.model.runs import Run, RunEnvironment
from tests.conftest import Taco, eventually
from tests.support.patience import patience

pytest.importorskip("scipy")
pytestmark = pytest.mark.e2e

SCRIPT = """
import pathlib, sys, time
folder = pathlib.Path(sys.argv[1])
if (folder / "slow").exists():
    time.sleep(600)
speed = (folder / "speed").read_text()
if speed == "none":
    sys.exit("no speed at all")
print("rate", float(speed) * (1 + time.time_ns() % 101 / 20000))
"""
MATRIX = """
name: tiny
workloads:
  loop: {{kind: regex, command: [python3, {script}, {folder}], pattern: 'rate ([0-9.]+)', unit: steps/sec}}
sizes: [1]
variants: {{base: {{}}}}
repeats: 5
warmUps: 0
minEffect: 5%
"""
NIGHTS = 12
DAY = 86400.0
OLD = "5.4.0-old"


@pytest.fixture
def matrix(tmp_path: Path) -> Path:
    (tmp_path / "loop.py").write_text(SCRIPT)
    path = tmp_path / "tiny.yaml"
    path.write_text(MATRIX.format(script=tmp_path / "loop.py", folder=tmp_path))
    speed(matrix=path, value="100")
    return path


def speed(matrix: Path, value: str) -> None:
    (matrix.parent / "speed").write_text(value)


def night(taco: Taco, matrix: Path, *words: str) -> "subprocess.CompletedProcess[str]":
    return taco("nightly", "run", str(matrix), *words, timeout=110)


def seeded(taco: Taco, matrix: Path) -> None:
    """Have a nightly run that is real stand in the history a dozen times, as if it had been made on the days before."""
    first = night(taco, matrix)
    assert first.returncode == 0, first.stderr
    with open_history(taco.state / "history.db") as history:
        (one,) = history.ladders()
        runs = history.runs(one.id)
        for ago in range(1, NIGHTS + 1):
            earlier = replace(
                one, id=f"tiny-{ago:06x}", started=one.started - ago * DAY, ended=one.started, accepted=True
            )
            history.begin(earlier)
            for position, run in runs:
                readings = tuple(
                    replace(each, value=each.value * (1 + 0.004 * math.sin(7 * ago))) for each in run.readings
                )
                facts = tuple(fact for fact in run.circumstances.facts if fact[1] != "kernel")
                before = RunEnvironment(tuple(sorted((*facts, *_kernels(run)))))
                history.add(earlier.id, position, replace(run, readings=readings, circumstances=before))


def _kernels(run: Run) -> list[tuple[str, str, str]]:
    return [(host, what, OLD) for host, what, _value in run.circumstances.facts if what == "kernel"]


def summary(taco: Taco) -> dict[str, Any]:
    """Return the JSON of the newest night."""
    newest = max((taco.state / "nights" / "tiny").glob("20*.json"), key=lambda path: path.stat().st_mtime_ns)
    found: dict[str, Any] = json.loads(newest.read_text())
    return found


def test_nights(taco: Taco, matrix: Path, tmp_path: Path) -> None:
    seeded(taco, matrix)
    green = night(taco, matrix)
    assert green.returncode == 0, green.stderr
    assert green.stdout.startswith("nightly tiny: OK: 1 cell as before; summary: ")
    assert green.stdout.count("\n") == 1

    speed(matrix, "80")
    slower = night(taco, matrix, "--junit", str(tmp_path / "night.xml"))
    assert slower.returncode == 6, slower.stderr
    assert slower.stdout.startswith("nightly tiny: REGRESSION: loop base at 1 rank -")
    told = summary(taco)
    assert told["outcome"] == "regression"
    (one,) = told["judged"]
    assert one["verdict"] == "regression"
    assert one["change"]["value"] == pytest.approx(-0.2, abs=0.01)
    assert one["tonight"] == pytest.approx(80, rel=0.01)
    with open_history(taco.state / "history.db") as history:
        newest = history.ladders(LadderKind.NIGHTLY_RUN)[0]
        assert not newest.accepted
        assert len(history.runs(newest.id)) == 15  # 5 that the screen was of, 10 that decided
    suite = ET.parse(tmp_path / "night.xml").getroot()
    assert (suite.get("tests"), suite.get("failures")) == ("1", "1")

    speed(matrix, "100")
    healed = night(taco, matrix, "--json")
    assert healed.returncode == 0, healed.stderr
    assert json.loads(healed.stdout)["outcome"] == "ok"
    last = json.loads(taco("nightly", "status", "--json").stdout or "[]")
    assert last == []  # none is installed


@pytest.mark.nightly  # a dozen nightly runs more; what is told of a change is judged without jobs, too
def test_what_changed_is_told(taco: Taco, matrix: Path) -> None:
    seeded(taco, matrix)
    with contextlib.closing(sqlite3.connect(taco.state / "history.db", isolation_level=None)) as db:
        # then the last accepted run is one with another kernel
        db.execute("UPDATE ladder SET accepted = 0 WHERE started = (SELECT max(started) FROM ladder)")
    speed(matrix, "80")
    slower = night(taco, matrix)
    assert slower.returncode == 6
    change = f"kernel: {OLD} -> {platform.release()}"
    assert f"changed since the last accepted run: localhost: {change}; summary: " in slower.stdout
    text = Path(slower.stdout.rpartition("summary: ")[2].strip()).read_text()
    assert f"| kernel | localhost | {OLD} | {platform.release()} |" in text.replace("\\", "")
    assert summary(taco)["green"] == "tiny-000001"


def test_a_cell_without_a_sample_fails_the_night(taco: Taco, matrix: Path) -> None:
    speed(matrix, "none")
    failed = night(taco, matrix)
    assert failed.returncode == 1
    assert failed.stdout.startswith("nightly tiny: FAILED: no sample of loop base at 1 rank: ")
    assert "no speed at all" in failed.stderr


def test_a_busy_cluster_is_not_measured(taco: Taco, matrix: Path) -> None:
    taco.ok("submit", "--name", "holds", "--np", "1", "--", "sleep", "100")
    busy = night(taco, matrix, "--deadline", "0")
    assert busy.returncode == 5, busy.stderr
    assert "job holds (root)" in busy.stdout
    waits = taco.start("nightly", "run", str(matrix), "--deadline", "1m")
    time.sleep(3)
    taco("stop", "--grace", "0", "holds")
    assert waits.wait(patience(90)) == 0, waits.stderr


def test_a_head_that_cannot_be_reached(taco: Taco, matrix: Path, tmp_path: Path) -> None:
    hosts = tmp_path / "hosts.yaml"
    hosts.write_text("cluster: away\nhosts: {n1: {address: 127.0.0.1, port: 1, slots: 1}}\n")
    away = taco("-i", str(hosts), "nightly", "run", str(matrix), "--deadline", "0")
    assert away.returncode == 5, away.stderr
    assert away.stdout.startswith("nightly tiny: CLUSTER NOT FIT: ")
    assert "n1" in summary(taco)["unfit"]


def test_it_never_overlaps_itself_and_ends_what_broke_off(taco: Taco, matrix: Path) -> None:
    slow = matrix.parent / "slow"
    slow.touch()
    broken = taco.start("nightly", "run", str(matrix))
    job = eventually(lambda: running(taco), 40)
    second = night(taco, matrix)
    assert second.returncode == 1
    assert f"nightly run tiny is already running: process {broken.pid}, since 20" in second.stderr
    broken.send_signal(signal.SIGKILL)
    broken.wait(patience(10))
    assert running(taco) == job  # nobody has ended it
    slow.unlink()
    third = night(taco, matrix)
    assert third.returncode == 0, third.stderr
    assert f"ending job {job}" in third.stderr
    assert summary(taco)["notes"][0].endswith("was interrupted")


def running(taco: Taco) -> str:
    jobs = json.loads(taco("list", "--json").stdout)["jobs"]
    return next((row["name"] for row in jobs if row["state"] == "RUNNING"), "")


def test_who_ends_it_ends_its_job(taco: Taco, matrix: Path) -> None:
    (matrix.parent / "slow").touch()
    ended = taco.start("nightly", "run", str(matrix))
    eventually(lambda: running(taco), 40)
    ended.send_signal(signal.SIGTERM)
    assert ended.wait(patience(60)) == 130
    assert not running(taco)
    last = json.loads((taco.state / "nights" / "tiny" / "last.json").read_text())
    assert (last["exit_code"], last["outcome"]) == (130, "interrupted")
    assert last["ended"] is not None
    assert ended.stdout is not None
    assert ended.stdout.read().decode() == f"{last['line']}\n"
    assert last["line"] == (
        "nightly tiny: INTERRUPTED: nothing was measured; the run does not count in the baseline; "
        f"run it again: taco-launch nightly run {matrix}; summary: {last['summary']}"
    )
    assert summary(taco)["outcome"] == "interrupted"
    nights = json.loads(taco("nightly", "baseline", "show", "tiny", "--json").stdout)["nightly_runs"]
    assert [(night["outcome"], night["accepted"]) for night in nights] == [("interrupted", False)]

    (matrix.parent / "slow").unlink()
    matrix.write_text(matrix.read_text().replace("repeats: 5", "repeats: 500"))
    ended = taco.start("nightly", "run", str(matrix), "--json")
    assert ended.stderr is not None
    while b"run 2 of 500" not in (line := ended.stderr.readline()):
        assert line
    ended.send_signal(signal.SIGINT)
    out, _told = ended.communicate(timeout=patience(60))
    assert ended.returncode == 130, _told
    told = json.loads(out)
    assert told == summary(taco)
    assert re.match(
        r"\d+ of 500 runs were made: taco-launch bench show tiny-\w+; the run does not", told["interrupted"]
    )
    assert [one["verdict"] for one in told["judged"]] == ["no verdict yet"]
