#!/usr/bin/env python3
"""Measures how long taco-launch takes to say something, beside `import click` and the tools that people know.

The clock counts the whole process, the start of Python included.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Mapping

import pairing
import verdicts

_IMPORT = "python -c 'import click'"
_DRY_RUN = "taco-launch run --dry-run, asking nobody"
_ASKING = "taco-launch run --dry-run, asking the agent"
_CONTENDERS = (
    pairing.Contender(_IMPORT, (sys.executable, "-c", "import click")),
    pairing.Contender("taco-launch --version", ("taco-launch", "--version")),
    pairing.Contender("taco-launch --help", ("taco-launch", "--help")),
    pairing.Contender(
        _DRY_RUN,
        (
            "taco-launch",
            "run",
            "-H",
            "gpu1:8,gpu2:8",
            "--interface",
            "eth0",
            "--profile",
            "ack",
            "--dry-run",
            "--",
            "true",
        ),
    ),
    pairing.Contender(_ASKING, ("taco-launch", "run", "--np", "2", "--dry-run", "--", "true")),
    pairing.Contender("horovodrun --version", ("horovodrun", "--version")),
    pairing.Contender("ansible --version", ("ansible", "--version")),
)
# Times `import click`, the least that a click program costs.
_BARS = (("taco-launch --help", 2.0), (_DRY_RUN, 3.0), (_ASKING, 4.0))


def main(arguments: list[str]) -> int:
    """Measure, print, give the exit code."""
    asked = verdicts.parser(
        "How long taco-launch takes to answer: whole commands, against `python -c 'import click'`.",
        "example:\n  .venv/bin/python scripts/benchmarks/cli_latency.py --runs 3",
        timeout=60.0,
    ).parse_args(arguments)
    with tempfile.TemporaryDirectory(prefix="taco-launch-", ignore_cleanup_errors=True) as scratch:
        environ = pairing.environment(TACO_LAUNCH_STATE=scratch)
        verdicts.need("taco-launch", environ)
        found = pairing.interleave(_CONTENDERS, environ, runs=asked.runs, timeout=asked.timeout, tell=verdicts.tell)
    bars = [_verdict(found, name, bar) for name, bar in _BARS]
    report = verdicts.Report("cli_latency", asked.runs, (_rows(found),), bars, {"commands": verdicts.commands(found)})
    return verdicts.finish(report, as_json=asked.json, strict=asked.strict)


def _ratio(found: Mapping[str, pairing.Measured], name: str) -> pairing.Spread | None:
    return pairing.paired(found[name], found[_IMPORT], lambda one, other: one.wall / other.wall)


def _times(found: Mapping[str, pairing.Measured], name: str) -> tuple[str, ...]:
    ratio = _ratio(found, name)
    return ("" if ratio is None else f"{ratio.median:.2f}",)


def _verdict(found: Mapping[str, pairing.Measured], name: str, bar: float) -> verdicts.Verdict:
    missing = found[name].missing or found[_IMPORT].missing
    return verdicts.Verdict(name, _ratio(found, name), bar, "x import click", missing=missing)


def _rows(found: Mapping[str, pairing.Measured]) -> list[tuple[str, ...]]:
    return verdicts.rows(found, ("x import click",), lambda name: _times(found, name))


if __name__ == "__main__":
    verdicts.start(main)
