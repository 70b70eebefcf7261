#!/usr/bin/env python3
"""Runs a section of scripts/test again and again, beside processes that keep the CPU busy, and prints a table.

A test that fails in any of the runs is flaky, or broken.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import re
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

_ROOT = Path(__file__).resolve().parent.parent
_TEST = Path("scripts", "test")
_BUSY = (sys.executable, "-c", "while True: pass")
_COUNT = re.compile(r"\b(\d+) (passed|failed|error|errors)\b")
_LAST_LINE = re.compile(r"^=* ?(?=\d+ (?:passed|failed|error)).* in [\d.]+s", re.MULTILINE)
_FAILED = re.compile(r"^(?:FAILED|ERROR) (\S+)", re.MULTILINE)


@dataclass(frozen=True)
class Run:
    """One run of a section: its seconds and exit code, its counts, and the tests that failed."""

    seconds: float
    load: float
    exit_code: int
    passed: int
    failed: int
    tests: tuple[str, ...]


def main(arguments: list[str]) -> int:
    """Run, print the table, return 1 if a run failed."""
    asked = _parser().parse_args(arguments)
    runs = []
    with _busy(asked.busy):
        print(f"{'run':>4}{'seconds':>9}{'load':>7}{'passed':>8}{'failed':>8}  exit", flush=True)
        for number in range(1, asked.runs + 1):
            run = _once(asked.section, asked.logs, number)
            runs.append(run)
            numbers = f"{number:>4}{run.seconds:>9.0f}{run.load:>7.1f}{run.passed:>8}{run.failed:>8}"
            print(f"{numbers}{run.exit_code:>6}", flush=True)
    failures = Counter(test for run in runs for test in run.tests)
    for test, times in failures.most_common():
        print(f"failed in {times} of {len(runs)} runs: {test}")
    good = sum(run.exit_code == 0 for run in runs)
    print(f"{asked.section}: {good} of {len(runs)} runs passed beside {asked.busy} busy processes; logs: {asked.logs}")
    return 0 if good == len(runs) else 1


def _parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(
        prog="scripts/repeat.py",
        description="Run a section of scripts/test several times, beside processes that keep the CPU busy.",
        epilog="examples:\n  scripts/repeat.py e2e --runs 10 --busy 2\n  scripts/repeat.py lab --runs 3 --busy 2",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    made.add_argument("section", choices=("fast", "e2e", "lab", "docs"), help="section of scripts/test")
    made.add_argument("--runs", type=_count, default=3, metavar="N", help="number of runs (default: 3)")
    made.add_argument("--busy", type=_count, default=0, metavar="N", help="busy processes beside them (default: 0)")
    made.add_argument(
        "--logs",
        type=Path,
        default=_ROOT / ".cache" / "repeat",
        metavar="DIR",
        help="where the output of each run goes",
    )
    return made


def _count(text: str) -> int:
    number = int(text)
    if not 0 <= number <= 1000:
        raise argparse.ArgumentTypeError("expected a number from 0 to 1000")
    return number


@contextlib.contextmanager
def _busy(count: int) -> Iterator[None]:
    """Keep `count` cores busy while the block runs."""
    processes = [subprocess.Popen(_BUSY) for _ in range(count)]
    try:
        yield
    finally:
        for process in processes:
            process.kill()
            process.wait()


def _once(section: str, logs: Path, number: int) -> Run:
    logs.mkdir(parents=True, exist_ok=True)
    log = logs / f"{section}-{number}.log"
    begin = time.monotonic()
    with log.open("wb") as output:
        code = subprocess.run((_TEST, section), cwd=_ROOT, stdout=output, stderr=output, check=False).returncode
    seconds = time.monotonic() - begin
    text = log.read_text("utf-8", "replace")
    lines = _LAST_LINE.findall(text)
    counts: Counter[str] = Counter()
    for amount, what in _COUNT.findall(lines[-1] if lines else ""):
        counts["passed" if what == "passed" else "failed"] += int(amount)
    tests = tuple(dict.fromkeys(_FAILED.findall(text)))
    return Run(seconds, os.getloadavg()[0], code, counts["passed"], counts["failed"], tests)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
