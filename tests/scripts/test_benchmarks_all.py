"""scripts/benchmarks/all: which there are, what one table says of them, and what it says beside an earlier one."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ALL = Path(__file__).parents[2] / "scripts" / "benchmarks" / "all"


def call(*words: str, path: str | None = None) -> "subprocess.CompletedProcess[str]":
    environ = {**os.environ, **({} if path is None else {"PATH": path})}
    argv = [sys.executable, str(ALL), *words]
    return subprocess.run(argv, env=environ, capture_output=True, text=True, timeout=100, check=False)


def test_every_benchmark_is_listed() -> None:
    listed = call("--list").stdout.split()
    assert {"cli_latency", "launch_overhead", "submit", "log_throughput", "plan_speed"} <= set(listed)
    assert not {"pairing", "verdicts", "one_lab", "one_sshd", "peaks", "best_effort"} & set(listed)
    assert os.access(ALL, os.X_OK)


def figure(least: float, most: float) -> dict[str, Any]:
    value = {"median": (least + most) / 2, "least": least, "most": most}
    name = "10 hosts x 8 slots"
    return {"benchmark": "plan_speed", "name": name, "value": value, "unit": "ms", "bar": "<= 1", "state": "within"}


@pytest.mark.parametrize(("least", "most", "said"), [(0.0, 1e9, "within the spread"), (1e8, 1e9, "beyond the spread")])
def test_a_run_is_compared(tmp_path: Path, least: float, most: float, said: str) -> None:
    old, new = tmp_path / "old.json", tmp_path / "new.json"
    ran = call("--only", "plan_speed", "--runs", "1", "--json", str(new))
    assert "plan_speed  1000 hosts x 8 slots" in ran.stdout
    known = json.loads(new.read_text())
    assert {one["benchmark"] for one in known} == {"plan_speed"}
    gone = figure(least, most)
    old.write_text(json.dumps([gone, *({**one, "value": gone["value"]} for one in known)]))
    table = call("--only", "plan_speed", "--runs", "1", "--compare", str(old)).stdout.splitlines()
    assert "not run now" in next(line for line in table if "10 hosts x 8 slots" in line)
    assert all(said in line for line in table if "1000 hosts x 8 slots" in line)


def test_what_cannot_run_here_is_said(tmp_path: Path) -> None:
    done = call("--only", "queue_load", path=str(tmp_path))
    assert done.returncode == 1
    (row,) = [line for line in done.stdout.splitlines() if line.startswith("queue_load")]
    assert "not run: mpirun is neither beside" in row


def test_a_file_that_is_none_of_ours(tmp_path: Path) -> None:
    (tmp_path / "old.json").write_text("{}x")
    done = call("--only", "plan_speed", "--compare", str(tmp_path / "old.json"))
    assert (done.returncode, done.stdout) == (2, "")
