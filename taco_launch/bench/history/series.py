"""What cells measured over time: one point for each ladder, cell, hosts and metric."""

import json
import sqlite3
from collections.abc import Callable, Iterator, Mapping, Sequence
from statistics import fmean
from typing import Any

from taco_launch.bench.model.runs import Cell, Metric, Run
from taco_launch.core.frozen import dataclass


@dataclass(frozen=True)
class SeriesQuery:
    """Which points are wanted; None and () are any. `hosts` have to be among those of a point, all of them.

    `last` is from how many ladders, the newest of those that hold such a point.
    """

    workload: str | None = None
    variant: str | None = None
    ranks: int | None = None
    matrix: str | None = None
    metric: str | None = None
    hosts: tuple[str, ...] = ()
    last: int = 10


@dataclass(frozen=True)
class Point:
    """What a cell measured in one ladder: the number, mean, least and greatest of the values that count.

    `started` is the ladder's, in seconds since the epoch; `hosts` are sorted.
    """

    ladder: str
    matrix: str
    kind: str
    started: float
    accepted: bool
    cell: Cell
    hosts: tuple[str, ...]
    gpu: str
    metric: Metric
    count: int
    mean: float
    least: float
    greatest: float


def newest_ladders(db: sqlite3.Connection, query: SeriesQuery) -> tuple[Any, ...]:
    """Return the rows of the ladders whose points are wanted, the oldest first."""
    cells = [
        row["id"]
        for row in db.execute("SELECT * FROM cell")
        if _wanted(query, Cell(row["workload"], row["variant"], row["ranks"]), json.loads(row["hosts"]))
    ]
    found = db.execute(
        """WITH wanted AS (SELECT value AS id FROM json_each(?1))
        SELECT * FROM ladder WHERE (?2 IS NULL OR matrix = ?2) AND EXISTS (
            SELECT 1 FROM run JOIN reading ON reading.run = run.id JOIN metric ON metric.id = metric
            WHERE run.ladder = ladder.id AND NOT warm_up AND cell IN wanted AND (?3 IS NULL OR name = ?3))
        ORDER BY started DESC, id DESC LIMIT ?4""",
        (json.dumps(cells), query.matrix, query.metric, query.last),
    )
    return tuple(reversed(found.fetchall()))


def points(
    query: SeriesQuery, of_ladder: Mapping[str, Any], place: Callable[[Cell], tuple[Any, ...]], runs: Sequence[Run]
) -> Iterator[Point]:
    """Yield the points that are wanted of a ladder, in the order of its tables; warm-ups do not count.

    `of_ladder` has the fields that all of its points share; `place` gives where a cell stands in the tables.
    """
    measured: dict[tuple[Cell, tuple[str, ...], str, Metric], list[float]] = {}
    for run in runs:
        if not run.warm_up and _wanted(query, run.cell, run.hosts):
            for reading in run.readings:
                if query.metric in (None, reading.metric.name):
                    of = (run.cell, tuple(sorted(run.hosts)), run.gpu, reading.metric)
                    measured.setdefault(of, []).append(reading.value)
    # stable: within a cell and its hosts, metrics stay in the order in which they came up
    for cell, hosts, gpu, metric in sorted(measured, key=lambda of: (place(of[0]), *of[1:3])):
        values = measured[cell, hosts, gpu, metric]
        yield Point(
            **of_ladder,
            cell=cell,
            hosts=hosts,
            gpu=gpu,
            metric=metric,
            count=len(values),
            mean=fmean(values),
            least=min(values),
            greatest=max(values),
        )


def _wanted(query: SeriesQuery, cell: Cell, hosts: Sequence[str]) -> bool:
    named = ((query.workload, cell.workload), (query.variant, cell.variant), (query.ranks, cell.ranks))
    return all(wanted in (None, given) for wanted, given in named) and set(query.hosts) <= set(hosts)
