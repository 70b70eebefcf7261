"""The runs of a sweep, and those before it -> what its report shows: pure."""

import itertools
from collections import defaultdict
from collections.abc import Sequence
from statistics import fmean, median

from taco_launch.bench.compare import tables
from taco_launch.bench.compare.compare import compare
from taco_launch.bench.compare.tables import Grid, MissingCell, Table
from taco_launch.bench.history.history import Ladder
from taco_launch.bench.model.runs import Cell, Metric, Run
from taco_launch.bench.stats.verdicts import Verdict, VerdictKind
from taco_launch.core.frozen import dataclass

# A host whose runs are slower than those of the same cells elsewhere by less is not worth a look.
_NOTABLE = 0.01
_MOST_CHANGES = 12
# Of a page, the most cells over time: each is a figure of its own.
MOST_TRENDS = 24
_RED = (VerdictKind.REGRESSION, VerdictKind.DRIFT)


@dataclass(frozen=True)
class Sweep:
    """A sweep with what it measured."""

    ladder: Ladder
    runs: tuple[Run, ...]


@dataclass(frozen=True)
class SlowHost:
    """A host with its rate, as a share of the median rate of the same cells, over so many runs."""

    host: str
    share: float
    runs: int


@dataclass(frozen=True)
class Changes:
    """The differences between the environment of a sweep and of the one before it: (what, before, after)."""

    ladder: str
    started: float
    differs: tuple[tuple[str, str, str], ...]


@dataclass(frozen=True)
class Trend:
    """The means of a cell's first metric, over sweeps of one matrix: (start of the sweep, mean, lowest, highest)."""

    cell: Cell
    metric: Metric
    points: tuple[tuple[float, float, float, float], ...]


@dataclass(frozen=True)
class SweepReport:
    """All that a report shows."""

    ladder: Ladder
    # What ranks are called: `GPUs` or `ranks`.
    noun: str
    # The first is the verdict.
    sentences: tuple[str, ...]
    legend: str
    grids: tuple[Grid, ...]
    measured: tuple[Table, ...]
    missing: tuple[MissingCell, ...]
    verdicts: tuple[Verdict, ...]
    hosts: tuple[str, ...]
    gpu: str
    trends: tuple[Trend, ...]
    changes: tuple[Changes, ...]
    slow: tuple[SlowHost, ...]
    # (cell, log) of each run that counts.
    logs: tuple[tuple[str, str], ...]


def report(sweep: Sweep, before: Sequence[Sweep], verdicts: Sequence[Verdict], baseline: str = "") -> SweepReport:
    """Return the report of a sweep; `before` are earlier ones of its matrix, the oldest first.

    `baseline` is the variant that the others are compared with; "" keeps the order of the matrix.
    """
    runs = sweep.runs
    one = sweep.ladder
    cells = sorted(
        {run.cell for run in runs}, key=lambda cell: (cell.workload, cell.variant != baseline, one.place(cell))
    )
    measured = tables.tables(cells, runs)
    noun = tables.noun(runs)
    gpus = {run.gpu for run in runs if run.gpu}
    return SweepReport(
        sweep.ladder,
        noun,
        (*_judged(verdicts), *tables.sentences(measured, noun)),
        tables.legend(measured) if measured else "",
        tables.grids(measured, noun),
        measured,
        tables.missing(cells, runs),
        tuple(verdicts),
        tuple(sorted({host for run in runs for host in run.hosts})),
        ", ".join(sorted(gpus)),
        tuple(_trends(measured, (*before, sweep))),
        tuple(_changes((*before, sweep))),
        tuple(_slow_hosts(runs)),
        tuple((run.cell.name, run.log) for run in runs if run.log and not run.warm_up),
    )


def _judged(verdicts: Sequence[Verdict]) -> list[str]:
    """Return what a nightly run measured, the regressions first; [] for other sweeps."""
    return [
        f"{verdict.kind.value.upper()}: {verdict.key.workload}, {verdict.key.variant}, {verdict.key.ranks} rank{'' if verdict.key.ranks == 1 else 's'}: {verdict.why}"
        for verdict in sorted(verdicts, key=lambda each: each.kind not in _RED)
    ]


def _trends(measured: Sequence[Table], sweeps: Sequence[Sweep]) -> list[Trend]:
    trends = []
    for table in tables.firsts(measured):
        for entry in table.entries:
            points = []
            for sweep in sweeps:
                values = [
                    reading.value
                    for run in sweep.runs
                    if run.cell == entry.cell and not run.warm_up
                    for reading in run.readings
                    if reading.metric == table.metric
                ]
                if values:
                    points.append((sweep.ladder.started, fmean(values), min(values), max(values)))
            if len(points) > 1:
                trends.append(Trend(entry.cell, table.metric, tuple(points)))
    return trends


def _changes(sweeps: Sequence[Sweep]) -> list[Changes]:
    changes = []
    for one, other in itertools.pairwise(sweeps):
        try:
            differs = compare(one.runs, other.runs).differs
        except ValueError:  # no cell in common
            continue
        differences = dict.fromkeys(
            (each.difference.what, each.difference.before, each.difference.after) for each in differs
        )
        if differences:
            shown, count = tuple(differences)[:_MOST_CHANGES], len(differences)
            more = (f"{count - len(shown)} more", "", f"taco-launch bench diff {one.ladder.id} {other.ladder.id}")
            rows = shown if count == len(shown) else (*shown, more)
            changes.append(Changes(other.ladder.id, other.ladder.started, rows))
    return changes


def _slow_hosts(runs: Sequence[Run]) -> list[SlowHost]:
    """Return the hosts whose runs are slower than those of the same cells on other hosts, the slowest first."""
    by_cell: dict[Cell, list[Run]] = defaultdict(list)
    for run in runs:
        if run.readings and not run.warm_up:
            by_cell[run.cell].append(run)
    shares: dict[str, list[float]] = defaultdict(list)
    for mine in by_cell.values():
        if len({run.hosts for run in mine}) > 1:
            usual = median(run.readings[0].value for run in mine)
            for run in mine:
                share = run.readings[0].value / usual
                for host in run.hosts:
                    shares[host].append(share if run.readings[0].metric.higher_is_better else 1 / share)
    slow = [SlowHost(host, fmean(each), len(each)) for host, each in shares.items() if fmean(each) < 1 - _NOTABLE]
    return sorted(slow, key=lambda host: host.share)
