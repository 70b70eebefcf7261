#!/usr/bin/env python3
"""Measures `taco-launch bench history` of one cell with 100,000 samples in the database, beside plain readers of it.

Two databases of as many samples are made below a temporary folder: one of 20 cells, one whose samples are all of one
cell. The readers read the same cell's rows, with its ladders and metrics, and add nothing up: Python's sqlite3 module
and, where it is here, the sqlite3 program.
"""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
from pathlib import Path

import pairing
import verdicts

from taco_launch.bench.history.history import Ladder, LadderKind, open_history
from taco_launch.bench.model.runs import Cell, Measurement, Metric, Run, RunEnvironment

_BAR_SECONDS = 0.3
_RUNS_EACH = 100
_HOSTS = ("gpu1", "gpu2", "gpu3", "gpu4")
_METRIC = Metric("img/sec", "img/sec")
_FACTS = tuple(
    (host, what, value)
    for host in _HOSTS
    for what, value in (
        ("driver", "535.104.05"),
        ("kernel", "5.15.0-91-generic"),
        ("NIC rate bond0", "100 Gb/s, MTU 9000"),
    )
)
_QUERY = (
    "SELECT ladder.id, ladder.started, run.started, name, unit, value FROM cell JOIN run ON run.cell = cell.id"
    " JOIN ladder ON ladder.id = run.ladder JOIN reading ON reading.run = run.id JOIN metric ON metric.id = metric"
    " WHERE variant = 'variant-0' AND ranks = 32"
)
_PYTHON = "import sqlite3, sys; print(len(sqlite3.connect(sys.argv[1]).execute(sys.argv[2]).fetchall()))"


def main(arguments: list[str]) -> int:
    """Measure, print, give the exit code."""
    asked = _arguments(arguments)
    with tempfile.TemporaryDirectory(prefix="taco-launch-", ignore_cleanup_errors=True) as scratch:
        environ = pairing.environment(TACO_LAUNCH_STATE=scratch)
        verdicts.need("taco-launch", environ)
        contenders, ours, peers = [], [], []
        for cells in (20, 1):
            path = Path(scratch, f"{cells}.db")
            verdicts.tell(f"writing {asked.samples} samples of {cells} cell{'s' if cells > 1 else ''}")
            _fill(path, asked.samples, cells)
            of = f"{asked.samples} samples, {cells} cell{'s' if cells > 1 else ''}"
            command = ("taco-launch", "bench", "history", "--db", str(path), "--variant", "variant-0", "--np", "32")
            made = [
                pairing.Contender(f"bench history, {of}", command),
                pairing.Contender(f"bench history --last 1000, {of}", (*command, "--last", "1000")),
                pairing.Contender(
                    f"python -c 'import sqlite3 ...', {of}", (sys.executable, "-c", _PYTHON, str(path), _QUERY)
                ),
                pairing.Contender(f"sqlite3, {of}", ("sqlite3", str(path), _QUERY)),
            ]
            contenders += made
            ours += [made[0].name, made[1].name]
            peers += [(contender.name, made[2].name) for contender in made]
        found = pairing.interleave(contenders, environ, runs=asked.runs, timeout=asked.timeout, tell=verdicts.tell)

    def ratio(name: str) -> tuple[str, ...]:
        times = pairing.paired(found[name], found[dict(peers)[name]], lambda one, other: one.wall / other.wall)
        return ("" if times is None else f"{times.median:.2f}",)

    bars = []
    for name in ours:
        walls = [sample.wall for sample in found[name].samples]
        spread = pairing.spread(walls) if walls else None
        bars.append(verdicts.Verdict(name, spread, _BAR_SECONDS, "s", missing=found[name].missing))
    table = verdicts.rows(found, ("x python -c",), ratio)
    report = verdicts.Report("bench_db", asked.runs, (table,), tuple(bars), {"commands": verdicts.commands(found)})
    return verdicts.finish(report, as_json=asked.json, strict=asked.strict)


def _arguments(arguments: list[str]) -> argparse.Namespace:
    parser = verdicts.parser(
        "How long `taco-launch bench history` of one cell takes, whole commands, against plain readers of SQLite.",
        "example:\n  .venv/bin/python scripts/benchmarks/bench_db.py --runs 5",
        timeout=60.0,
    )
    parser.add_argument("--samples", type=verdicts.count, default=100_000, metavar="N", help="default: 100000")
    return parser.parse_args(arguments)


def _fill(path: Path, samples: int, cells: int) -> None:
    """Write so many samples: ladders of 100 runs each, in turn of each cell."""
    noise = random.Random(7)  # noqa: S311 - the same samples each time
    on = RunEnvironment(tuple(sorted(_FACTS)))
    with open_history(path) as history:
        for number in range(-(-samples // _RUNS_EACH)):
            begin = 1.75e9 + 86400.0 * number
            name = f"night-{number:06x}"
            ladder = Ladder(
                name, "night", LadderKind.NIGHTLY_RUN, "digest", number, "hcc", begin, begin + 7200, "ok", accepted=True
            )
            runs = []
            for position in range(min(_RUNS_EACH, samples - _RUNS_EACH * number)):
                reading = Measurement(_METRIC, 4000 * noise.gauss(1, 0.02))
                job, repeat = f"{name}-r{position + 1}", position // cells
                run = Run(
                    Cell("horovod", f"variant-{position % cells}", 32),
                    *(repeat, False, job, begin + 60 * position, 55.0, _HOSTS, "A100", (reading,), ""),
                    f"/var/lib/taco-launch/ladders/{name}/{job}.log",
                    on,
                )
                runs.append((position, run))
            history.merge(ladder, runs)


if __name__ == "__main__":
    verdicts.start(main)
