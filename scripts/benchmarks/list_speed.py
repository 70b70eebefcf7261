#!/usr/bin/env python3
"""Measures `taco-launch list` with no job, with thousands that have ended, and with many that are suspended.

The folders of the jobs are made by hand, below temporary state folders; no process is started for any of them. The
first call, which makes the index of the jobs that have ended, is the round to warm up.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from pathlib import Path

import pairing
import verdicts

from taco_launch.agent.store import records
from taco_launch.agent.store.folders import JobFolder
from taco_launch.core.lifecycle import state
from taco_launch.core.model.codec import to_json
from taco_launch.core.model.host.hosts import Host
from taco_launch.core.model.jobs import Event, JobSpec

_HOSTS = tuple(Host(f"gpu{number}", f"10.0.0.{number}", slots=8) for number in range(1, 5))
_BAR_SECONDS = 1.0


def main(arguments: list[str]) -> int:
    """Measure, print, give the exit code."""
    asked = _arguments(arguments)
    finished = f"list, {asked.finished} finished jobs"
    with tempfile.TemporaryDirectory(prefix="taco-launch-", ignore_cleanup_errors=True) as scratch:
        environ = pairing.environment()
        verdicts.need("taco-launch", environ)
        sizes = (
            ("list, no job", 0, 0),
            (finished, asked.finished, 0),
            (f"list, {asked.suspended} suspended jobs", 0, asked.suspended),
        )
        contenders = [_contender(Path(scratch, str(number)), *size) for number, size in enumerate(sizes)]
        found = pairing.interleave(contenders, environ, runs=asked.runs, timeout=asked.timeout, tell=verdicts.tell)
    samples = found[finished].samples
    spread = pairing.spread([sample.wall for sample in samples]) if samples else None
    verdict = verdicts.Verdict(finished, spread, _BAR_SECONDS, "s", missing=found[finished].missing)
    table = verdicts.rows(found, (), lambda _name: ())
    report = verdicts.Report("list_speed", asked.runs, (table,), (verdict,), {"commands": verdicts.commands(found)})
    return verdicts.finish(report, as_json=asked.json, strict=asked.strict)


def _arguments(arguments: list[str]) -> argparse.Namespace:
    parser = verdicts.parser(
        "How long `taco-launch list` takes, whole calls, by the number of jobs.",
        "example:\n  .venv/bin/python scripts/benchmarks/list_speed.py --finished 10000 --runs 5",
        timeout=120.0,
    )
    parser.add_argument("--finished", type=verdicts.count, default=10_000, metavar="N", help="default: 10000")
    parser.add_argument("--suspended", type=verdicts.count, default=1_000, metavar="N", help="default: 1000")
    return parser.parse_args(arguments)


def _contender(folder: Path, name: str, finished: int, suspended: int) -> pairing.Contender:
    """Make a state folder with so many jobs, and the command that lists them."""
    now = time.time()
    for number in range(finished + suspended):
        job = JobFolder(folder / "jobs" / f"vgg16-night-{number:05}")
        job.logs.mkdir(parents=True)
        spec = JobSpec(job.name, ("python3", "train.py"), _HOSTS, np=32, head="gpu1", owner="alice")
        records.write_json(job.spec, {"schema": records.SCHEMA, "spec": to_json(spec)})
        begin = now - finished - suspended + number
        events = _finished(begin) if number < finished else [_submitted(begin)]
        lines = (json.dumps({"schema": records.SCHEMA, **to_json(event)}) for event in events)
        job.events.write_text("".join(f"{line}\n" for line in lines), encoding="ascii")
    return pairing.Contender(name, ("env", f"TACO_LAUNCH_STATE={folder}", "taco-launch", "list"))


def _submitted(begin: float) -> Event:
    return Event(begin, state.SUBMITTED, "waiting for its supervisor", {"id": 32 * "a", "suspend": True})


def _finished(begin: float) -> list[Event]:
    hosts = [host.name for host in _HOSTS]
    shares = [{"host": name, "ranks": 8, "slots": [f"GPU-{slot}" for slot in range(8)]} for name in hosts]
    line = f"mpirun -np 32 {60 * '-x NAME '}python3 train.py"
    roots = {"boot": "b", "roots": [[4711, 815]] * 8}
    return [
        _submitted(begin),
        Event(
            begin + 1, state.PLACED, "in inventory order", {"np": 32, "hosts": hosts, "line": line, "shares": shares}
        ),
        Event(begin + 1, state.LAUNCHED, "mpirun is process 4711", roots),
        Event(begin + 2, state.RUNNING, "every rank has started", roots),
        Event(begin + 60, state.ENDED, "every rank exited with 0", {"state": "SUCCEEDED", "exit_code": 0}),
    ]


if __name__ == "__main__":
    verdicts.start(main)
