"""What a benchmark's numbers are held against, and how it tells them: arguments, table, verdict lines, JSON, exit code."""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import platform
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import NoReturn

import pairing

_NOT_JUDGED = 1
_USAGE = 2


@dataclass(frozen=True)
class Verdict:
    """A number, the most (or the least) that it may be, and `missing`: why there is no number."""

    name: str
    value: pairing.Spread | None
    bar: float
    unit: str
    at_least: bool = False
    missing: str = ""

    @property
    def within(self) -> bool | None:
        """Return whether the median keeps the bar; None without one."""
        if self.value is None:
            return None
        return self.value.median >= self.bar if self.at_least else self.value.median <= self.bar

    def line(self) -> str:
        """Return the verdict in words."""
        bar = f"bar {'at least ' if self.at_least else ''}{self.bar:g}"
        if self.value is None:
            return f"{self.name}: not measured ({self.missing}), {bar}"
        span = "" if self.value.least == self.value.most else f" ({self.value.least:.2f}..{self.value.most:.2f})"
        seen = f"{self.value.median:.2f} {self.unit}{span}"
        return f"{self.name}: {seen}, {bar}: {'within' if self.within else 'MISSED'}"


@dataclass(frozen=True)
class Report:
    """All that a benchmark found; a table's first row is its head, and `data` goes into the JSON as it is.

    `how` says how often it was measured, where that is not in interleaved rounds.
    """

    benchmark: str
    runs: int
    tables: Sequence[Sequence[Sequence[str]]]
    verdicts: Sequence[Verdict]
    data: Mapping[str, object]
    how: str = ""


def parser(description: str, examples: str, *, timeout: float) -> argparse.ArgumentParser:
    """Make a parser with the options of a benchmark that runs in rounds; `timeout` in seconds is the default of one."""
    made = plain_parser(description, examples)
    made.add_argument("--runs", type=count, default=7, metavar="N", help="rounds that count (default: 7)")
    made.add_argument(
        "--timeout",
        type=_seconds,
        default=timeout,
        metavar="S",
        help=f"most seconds for one run (default: {timeout:g})",
    )
    return made


def plain_parser(description: str, examples: str) -> argparse.ArgumentParser:
    """Make a parser with the options that every benchmark has."""
    made = argparse.ArgumentParser(
        description=description,
        epilog=f"{examples}\n\nexit codes: 0 measured (with --strict: and every bar kept), "
        f"{_NOT_JUDGED} not so, {_USAGE} usage, 130 Ctrl-C",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    made.add_argument("--json", action="store_true", help="print JSON instead of the table")
    made.add_argument("--strict", action="store_true", help="exit 1 when a bar is missed")
    return made


def need(program: str, environ: Mapping[str, str]) -> None:
    """Leave with a usage error when a program that the benchmark is about is not here."""
    if pairing.find(program, environ) is None:
        tell(f"{program} is neither beside {sys.executable} nor on PATH")
        tell("hint: scripts/quickstart installs it; then start this with .venv/bin/python")
        raise SystemExit(_USAGE)


def tell(text: str) -> None:
    """Talk: stdout holds the result only."""
    print(text, file=sys.stderr, flush=True)


def finish(report: Report, *, as_json: bool, strict: bool) -> int:
    """Print the report, give the exit code."""
    if as_json:
        verdicts = [{**dataclasses.asdict(entry), "within": entry.within} for entry in report.verdicts]
        machine = {"python": platform.python_version(), "cores": os.cpu_count(), "load": os.getloadavg()[0]}
        head = {"benchmark": report.benchmark, "runs": report.runs, "machine": machine}
        print(json.dumps({**head, **report.data, "verdicts": verdicts}, indent=2))
    else:
        print(_heading(report.how or f"medians of {report.runs} interleaved rounds after one to warm up"))
        for rows in report.tables:
            print(table(rows), end="\n\n")
        for entry in report.verdicts:
            print(entry.line())
    judged = [entry.within for entry in report.verdicts]
    return _NOT_JUDGED if None in judged or (strict and False in judged) else 0


def commands(found: Mapping[str, pairing.Measured]) -> list[dict[str, object]]:
    """Return what was measured as JSON values, every sample too."""
    return [
        {
            "name": name,
            "argv": entry.contender.argv,
            "missing": entry.missing,
            "samples": [dataclasses.asdict(sample) for sample in entry.samples],
        }
        for name, entry in found.items()
    ]


def seconds(value: pairing.Spread) -> tuple[str, str]:
    """Return the median and the range of seconds as two cells."""
    return f"{value.median:.3f}", f"{value.least:.3f}..{value.most:.3f}"


def count(text: str) -> int:
    """Read a whole number from 1 on, for argparse."""
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is no whole number from 1 on")
    return int(text)


def _heading(how: str) -> str:
    python, cores, load = platform.python_version(), os.cpu_count(), os.getloadavg()[0]
    return f"Python {python}, {cores} cores, load {load:.1f}; {how}"


def _seconds(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0 < value < float("inf"):
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of seconds above 0")
    return value


def table(rows: Sequence[Sequence[str]]) -> str:
    """Lay rows out in columns: the first to the left, numbers to the right; the last cell of a short row runs on."""
    columns = range(max(map(len, rows)))
    full = [row for row in rows if len(row) == len(rows[0])]
    widths = [max(len(row[column]) for row in (rows if column == 0 else full)) for column in columns]
    lines = []
    for row in rows:
        cells = [row[0].ljust(widths[0])]
        if len(row) == len(rows[0]):
            cells += [cell.rjust(width) for cell, width in zip(row[1:], widths[1:], strict=True)]
        else:
            cells += row[1:]
        lines.append("  ".join(cells).rstrip())
    return "\n".join(lines)


def rows(
    found: Mapping[str, pairing.Measured], header: tuple[str, ...], compared: Callable[[str], tuple[str, ...]]
) -> list[tuple[str, ...]]:
    """Return the table of the commands: wall and CPU seconds, then what `compared` gives of each under `header`."""
    made: list[tuple[str, ...]] = [("command", "wall s", "min..max", "CPU s", *header)]
    for name, entry in found.items():
        if entry.missing:
            made.append((name, entry.missing))
            continue
        cpu = pairing.spread([sample.cpu for sample in entry.samples]).median
        times = seconds(pairing.spread([sample.wall for sample in entry.samples]))
        made.append((name, *times, f"{cpu:.3f}", *compared(name)))
    return made


def start(main: Callable[[list[str]], int]) -> NoReturn:
    """Run a benchmark's `main` with the command line's arguments; Ctrl-C is exit code 130."""
    try:
        sys.exit(main(sys.argv[1:]))
    except KeyboardInterrupt:
        sys.exit(130)
