"""bench ladder and bench run with the real mpirun: to the end, over kills and failures, and on from there."""

import json
import re
import signal
import subprocess
from pathlib import Path
from typing import Any

import pytest

from taco_launch.bench.history.history import open_history
from taco_launch.bench.model.runs import Run
from tests.conftest import Taco, eventually
from tests.support.patience import patience

pytest.importorskip("scipy")
pytestmark = pytest.mark.e2e

# Where a test has made a file `slow`, a run takes as long as it says; one that takes minutes leaves a file `stuck`.
SCRIPT = """
import os, pathlib, sys, time
slow = pathlib.Path(os.environ["FOLDER"]) / "slow"
if slow.exists():
    seconds = float(slow.read_text())
    if seconds > 60:
        slow.with_name("stuck").touch()
    time.sleep(seconds)
if os.environ["SPEED"] == "none":
    sys.exit(7)
if os.environ["RANK"] == "0":
    ranks = int(os.environ["WORLD_SIZE"])
    print("rate", 100 * float(os.environ["SPEED"]) * ranks + time.time_ns() % 7 / 10)
"""
MATRIX = """
name: tiny
workloads:
  loop: {{kind: regex, command: [python3, {script}], pattern: 'rate ([0-9.]+)', unit: steps/sec}}
sizes: [1, 2]
variants:
  base: {{env: {{SPEED: '1'}}}}
  twice: {{env: {{SPEED: '{other}'}}}}
job: {{env: {{FOLDER: '{folder}'}}}}
repeats: 2
warmUps: 0
"""


@pytest.fixture
def matrix(tmp_path: Path) -> Path:
    return written(tmp_path, "2")


def written(folder: Path, other: str) -> Path:
    (folder / "loop.py").write_text(SCRIPT)
    path = folder / "tiny.yaml"
    path.write_text(MATRIX.format(script=folder / "loop.py", folder=folder, other=other))
    return path


def measure(taco: Taco, matrix: Path, *words: str) -> "subprocess.CompletedProcess[str]":
    return taco("bench", "ladder", str(matrix), *words, timeout=100)


def kept(taco: Taco) -> list[tuple[str, tuple[tuple[int, Run], ...]]]:
    """Return the outcome and the runs of every ladder in the history, the newest first."""
    with open_history(taco.state / "history.db") as history:
        return [(one.outcome, history.runs(one.id)) for one in history.ladders()]


def jobs_of(taco: Taco) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(taco("list", "--json").stdout)["jobs"]
    return found


def runs_so_far(taco: Taco, number: int) -> None:
    """Wait until so many runs of the newest ladder are kept."""

    def are_there() -> bool:
        found = kept(taco) if (taco.state / "history.db").exists() else []
        return bool(found) and len(found[0][1]) >= number

    eventually(are_there, 60)


def test_a_ladder_to_its_end(taco: Taco, matrix: Path) -> None:
    done = measure(taco, matrix, "--json")
    assert done.returncode == 0, done.stderr
    assert done.stderr.count("run 8 of 8: ") == 1
    found = json.loads(done.stdout)
    rows = {(row["variant"], row["ranks"]): row for row in found["tables"][0]["rows"]}
    assert sorted(rows) == [("base", 1), ("base", 2), ("twice", 1), ("twice", 2)]
    assert rows["twice", 2]["value"] == pytest.approx(400, abs=1)
    assert rows["twice", 1]["ratio_to_first"]["value"] == pytest.approx(2, abs=0.02)
    assert rows["base", 2]["linear_speedup"]["value"] == pytest.approx(1, abs=0.02)
    ((outcome, runs),) = kept(taco)
    assert (outcome, [position for position, _run in runs]) == ("done", list(range(8)))
    for _position, run in runs:
        assert f" | rate {run.readings[0].value}\n" in Path(run.log).read_text()
        assert run.hosts == ("localhost",)
        assert run.circumstances.facts
    assert jobs_of(taco) == []  # their logs are kept here, and nothing fills the list
    again = measure(taco, matrix, "-q", "--repeats", "1")
    assert (again.returncode, again.stderr) == (0, "")
    assert re.search(r"\nloop: base to twice: at 1 rank \+(9[89]|100)\.\d % \(no interval\); at 2 ", again.stdout)
    assert "cannot show a difference" in again.stdout


def test_a_ladder_goes_on_after_its_controller_was_killed(taco: Taco, matrix: Path) -> None:
    (matrix.parent / "slow").write_text("1")
    first = taco.start("bench", "ladder", str(matrix))
    runs_so_far(taco, 2)
    second = measure(taco, matrix)
    assert second.returncode == 1
    assert f"by process {first.pid} " in second.stderr
    (matrix.parent / "slow").write_text("600")
    eventually((matrix.parent / "stuck").exists, 60)
    (left,) = (job["name"] for job in jobs_of(taco) if job["state"] == "RUNNING")
    first.kill()
    first.wait()
    before = len(kept(taco)[0][1])
    (matrix.parent / "slow").unlink()
    done = measure(taco, matrix)
    assert done.returncode == 0, done.stderr
    assert f"\nending job {left}, which is left over from the interrupted sweep tiny-" in done.stderr
    assert re.search(
        rf"^continuing sweep \S+ of .*: {before} of 8 runs done \(--fresh starts over\)\n",
        done.stderr,
        re.MULTILINE,
    )
    assert f"run {before + 1} of 8: " in done.stderr
    ((outcome, runs),) = kept(taco)
    assert (outcome, [position for position, _run in runs]) == ("done", list(range(8)))
    assert jobs_of(taco) == []


@pytest.mark.parametrize("number", [signal.SIGINT, pytest.param(signal.SIGTERM, marks=pytest.mark.nightly)])
def test_ctrl_c_keeps_what_is_there_and_fresh_begins_anew(taco: Taco, matrix: Path, number: int) -> None:
    bench = taco.start("bench", "ladder", str(matrix))
    runs_so_far(taco, 3)
    (matrix.parent / "slow").write_text("600")
    eventually((matrix.parent / "stuck").exists, 60)
    bench.send_signal(number)
    out, err = (text.decode() for text in bench.communicate(timeout=patience(40)))
    assert bench.returncode == 130
    assert out.startswith("loop, steps/sec:\nRANKS ")
    assert f"interrupted: {len(kept(taco)[0][1])} of 8 runs are done\n" in err
    assert f"to continue: taco-launch bench ladder {matrix}\n" in err
    assert jobs_of(taco) == []
    (matrix.parent / "slow").unlink()
    done = measure(taco, matrix, "--fresh", "--seed", "5", "--repeats", "1")
    assert done.returncode == 0, done.stderr
    assert "run 1 of 4" in done.stderr


def test_a_cell_that_fails_does_not_end_the_rest(taco: Taco, tmp_path: Path) -> None:
    done = measure(taco, written(tmp_path, "none"))
    assert done.returncode == 1
    assert "error: 2 of 4 cells have no sample\n" in done.stderr
    assert re.search(r"\n  twice, 2 ranks: job tiny-\S+ FAILED: rank \d on localhost exited with code 7", done.stderr)
    assert re.search(r"\n +2 +2\d\d\.\d ±\S+ +\S+% \[\S+, \S+\] +no sample", done.stdout)
    failed = jobs_of(taco)
    assert len(failed) == 4
    assert all(job["state"] == "FAILED" and job["name"].startswith("tiny-") for job in failed)
    ((outcome, runs),) = kept(taco)
    assert (outcome, sum(bool(run.why) for _position, run in runs)) == ("done", 4)


def test_without_a_head_there_is_nothing_to_go_on_with(taco: Taco, matrix: Path, tmp_path: Path) -> None:
    inventory = tmp_path / "dead.yaml"
    inventory.write_text("cluster: dead\nhosts: {gone: {address: 127.0.0.1, port: 9, slots: 2}}\n")
    done = taco("-i", str(inventory), "bench", "ladder", str(matrix))
    assert done.returncode == 5
    assert "error: gone: no TCP connection to 127.0.0.1:9" in done.stderr
    assert kept(taco) == [("the head was lost", ())]


RATES = """
import os
if os.environ["RANK"] == "0":
    n = int(os.environ["WORLD_SIZE"])
    print(f"Total img/sec on {n} CPU(s): {90.0 * n if n > 1 else 100.0:.1f} +-0.0")
"""


def test_bench_run_prints_how_it_scales(taco: Taco, tmp_path: Path) -> None:
    (tmp_path / "rates.py").write_text(RATES)
    (tmp_path / "scipy.py").write_text("raise ImportError('No module named scipy')")
    paths = taco.env.get("PYTHONPATH", "")
    taco.env["PYTHONPATH"] = f"{tmp_path}:{paths}"
    done = taco.ok("bench", "run", "--np", "2,1", "--chart", "--", "python3", str(tmp_path / "rates.py"))
    assert [line.split() for line in done.stdout.splitlines()] == [
        ["RANKS", "IMG/SEC", "IMG/SEC", "PER", "RANK", "LINEAR", "SPEEDUP"],
        ["1", "100.0", "100.0", "-"],
        ["2", "180.0", "90.00", "90.00%"],
        [],
        ["RANKS", "IMG/SEC", "LINEAR", "SPEEDUP"],
        ["1", "█" * 22 + "▎", "100.0", "-"],
        ["2", "█" * 40, "180.0", "90.00%"],
    ]
    refused = taco("bench", "run", "--np", "1", "--repeats", "2", "--", "true")
    assert refused.returncode == 1
    assert refused.stderr.count("\n") == 2
    assert "scipy" in refused.stderr
    assert "hint: pip install 'taco-launch[bench]'" in refused.stderr
    taco.env["PYTHONPATH"] = paths
    words = ("--np", "1,2", "--repeats", "2", "--json", "--", "python3", str(tmp_path / "rates.py"))
    several = taco("bench", "run", *words)
    rows = json.loads(several.stdout)["rows"]
    assert [(row["np"], row["values"], row["linear_speedup"]) for row in rows] == [
        (1, [100.0, 100.0], 1.0),
        (2, [180.0, 180.0], 0.9),
    ]
    script = "echo 'Total img/sec on 1 CPU(s): 5.0 +-0.0'; exit $RANK"
    wrong = taco("bench", "run", "--np", "1,2", "--", "sh", "-c", script)
    assert wrong.returncode == 1
    assert "error: 1 of 2 cells have no sample\n  2 ranks: job sh-" in wrong.stderr
    assert jobs_of(taco)[0]["state"] == "FAILED"


def test_bench_run_reads_a_program_of_ones_own(taco: Taco) -> None:
    line = "import os; os.environ['RANK'] == '0' and print('warm up: 1.0 it/s\\nthroughput:', 800 * int(os.environ['WORLD_SIZE']), 'it/s')"
    words = ("bench", "run", "--np", "1,2", "-H", "localhost:2", "--json", "--pattern", "throughput: ([0-9.]+)")
    done = taco.ok(*words, "--", "python3", "-c", line)
    rows = json.loads(done.stdout)["rows"]
    assert [(row["rate"], row["unit"], row["linear_speedup"]) for row in rows] == [
        (800, "value", 1),
        (1600, "value", 1),
    ]
    missing = taco("bench", "run", "--np", "1", "-H", "localhost:1", "--", "python3", "-c", line)
    assert missing.returncode == 1
    assert "--pattern" in missing.stderr
    slow = taco.start("bench", "run", "--np", "1", "--", "sleep", "100")
    eventually(lambda: any(job["state"] == "RUNNING" for job in jobs_of(taco)), 40)
    slow.send_signal(signal.SIGINT)
    _out, err = (text.decode() for text in slow.communicate(timeout=patience(40)))
    assert err.endswith(
        "interrupted: 0 of 1 runs are done\n  running the same command again measures everything from the start\n"
    )
