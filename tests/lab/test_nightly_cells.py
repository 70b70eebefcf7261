"""A nightly run whose cells go over two hosts: it is judged, told in one line, and in the history with where each run was."""

import json
from pathlib import Path

import pytest

from taco_launch.bench.history.history import LadderKind, open_history
from tests.lab.rig import Cluster

pytest.importorskip("scipy")
pytestmark = [pytest.mark.lab, pytest.mark.timeout(600)]

# Every rank takes part, and the first one prints a number that differs a little from run to run.
RANK = "import os, time; os.environ['RANK'] == '0' and print('rate', 100 * (1 + time.time_ns() % 101 / 20000))"
MATRIX = {
    "name": "cells",
    "workloads": {
        "loop": {"kind": "regex", "command": ["python3", "-c", RANK], "pattern": "rate ([0-9.]+)", "unit": "steps/sec"}
    },
    "sizes": [1, 4],
    "variants": {"base": {}},
    "repeats": 3,
    "warmUps": 0,
    "minEffect": "5%",
}


def test_a_nightly_run_over_two_hosts(cluster: Cluster, tmp_path: Path) -> None:
    matrix = tmp_path / "cells.yaml"
    matrix.write_text(json.dumps(MATRIX))
    line = cluster.ok("nightly", "run", str(matrix), seconds=400)
    told, _, path = line.partition("summary: ")
    assert told.startswith("nightly cells: "), line
    summary = json.loads(Path(path.strip()).with_suffix(".json").read_text())
    assert {each["ranks"] for each in summary["judged"]} == {1, 4}
    assert cluster.state is not None
    with open_history(cluster.state / "history.db") as history:
        (one,) = history.ladders(LadderKind.NIGHT)
        runs = [run for _at, run in history.runs(one.id)]
    assert one.outcome == summary["outcome"]
    assert all(run.readings for run in runs)
    assert {run.cell.ranks: run.hosts for run in runs} == {1: ("gpu1",), 4: ("gpu1", "gpu2")}
    assert cluster.jobs() == []
