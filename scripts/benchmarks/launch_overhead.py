#!/usr/bin/env python3
"""Measures what a launcher adds to a job that does nothing: `taco-launch run` beside bare mpirun and its like."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Mapping

import pairing
import verdicts

_MPIRUN = "mpirun -np 2 true"
_OURS = "taco-launch run --np 2 -- true"
_HOROVODRUN = "horovodrun -np 2 true"
# Open MPI refuses to run as root unless it is told to.
_AS_ROOT = ("--allow-run-as-root",) if os.geteuid() == 0 else ()
_CONTENDERS = (
    pairing.Contender(_MPIRUN, ("mpirun", *_AS_ROOT, "-np", "2", "-H", "localhost:2", "true")),
    pairing.Contender(_OURS, ("taco-launch", "run", "--np", "2", "--", "true")),
    pairing.Contender(_HOROVODRUN, ("horovodrun", "-np", "2", "true")),
    pairing.Contender("torchrun --no-python true", ("torchrun", "--nproc-per-node", "2", "--no-python", "true")),
)
# What ours adds to mpirun, times what horovodrun adds.
_BAR = 0.20


def main(arguments: list[str]) -> int:
    """Measure, print, give the exit code."""
    asked = verdicts.parser(
        "What launchers add to a job of two ranks that does nothing, against bare mpirun.",
        "example:\n  .venv/bin/python scripts/benchmarks/launch_overhead.py --runs 3",
        timeout=60.0,
    ).parse_args(arguments)
    with tempfile.TemporaryDirectory(prefix="taco-launch-", ignore_cleanup_errors=True) as scratch:
        environ = pairing.environment(TACO_LAUNCH_STATE=scratch)
        verdicts.need("taco-launch", environ)
        verdicts.need("mpirun", environ)
        found = pairing.interleave(_CONTENDERS, environ, runs=asked.runs, timeout=asked.timeout, tell=verdicts.tell)
    missing = found[_OURS].missing or found[_MPIRUN].missing or found[_HOROVODRUN].missing
    ratio = pairing.added(found[_OURS], found[_HOROVODRUN], found[_MPIRUN])
    verdict = verdicts.Verdict(f"{_OURS}, over mpirun", ratio, _BAR, "x horovodrun", missing=missing)
    data = {"commands": verdicts.commands(found)}
    report = verdicts.Report("launch_overhead", asked.runs, (_rows(found),), (verdict,), data)
    return verdicts.finish(report, as_json=asked.json, strict=asked.strict)


def _over(found: Mapping[str, pairing.Measured], name: str) -> pairing.Spread | None:
    return pairing.paired(found[name], found[_MPIRUN], lambda one, other: one.wall - other.wall)


def _seconds_over(found: Mapping[str, pairing.Measured], name: str) -> tuple[str, ...]:
    over = _over(found, name)
    return ("", "") if over is None else verdicts.seconds(over)


def _rows(found: Mapping[str, pairing.Measured]) -> list[tuple[str, ...]]:
    return verdicts.rows(found, ("s over mpirun", "min..max"), lambda name: _seconds_over(found, name))


if __name__ == "__main__":
    verdicts.start(main)
