"""What cells measured over time: one point for each ladder, cell, hosts and metric."""

import json
import sqlite3

from taco_launch.bench.model.runs import Cell, Metric
from taco_launch.core.frozen import dataclass

# Fields of a point that the query gives by their names.
_AS_FOUND = ("ladder", "matrix", "kind", "started", "count", "mean", "least", "greatest")


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


def series(db: sqlite3.Connection, asked: SeriesQuery) -> tuple[Point, ...]:
    """Return the points that are wanted, cell by cell, the oldest first."""
    cells = {}
    for row in db.execute("SELECT * FROM cell"):
        cell, hosts = Cell(row["workload"], row["variant"], row["ranks"]), tuple(json.loads(row["hosts"]))
        named = ((asked.workload, cell.workload), (asked.variant, cell.variant), (asked.ranks, cell.ranks))
        if all(wanted in (None, given) for wanted, given in named) and set(asked.hosts) <= set(hosts):
            cells[row["id"]] = (cell, hosts, row["gpu"])
    found = db.execute(
        """WITH wanted AS (SELECT value AS id FROM json_each(?1)),
        newest AS MATERIALIZED (
            SELECT * FROM ladder WHERE (?2 IS NULL OR matrix = ?2) AND EXISTS (
                SELECT 1 FROM run JOIN reading ON reading.run = run.id JOIN metric ON metric.id = metric
                WHERE run.ladder = ladder.id AND NOT warm_up AND cell IN wanted AND (?3 IS NULL OR name = ?3))
            ORDER BY started DESC, id DESC LIMIT ?4)
        SELECT newest.id AS ladder, matrix, kind, newest.started, accepted, cell, name, unit, higher_is_better,
            count(*) AS count, avg(value) AS mean, min(value) AS least, max(value) AS greatest
        FROM newest CROSS JOIN run ON run.ladder = newest.id CROSS JOIN reading ON reading.run = run.id
            JOIN metric ON metric.id = metric
        WHERE NOT warm_up AND cell IN wanted AND (?3 IS NULL OR name = ?3)
        GROUP BY newest.id, cell, metric ORDER BY newest.started, newest.id, min(position), min(place)""",
        (json.dumps(list(cells)), asked.matrix, asked.metric, asked.last),
    )
    points = []
    for row in found:
        cell, hosts, gpu = cells[row["cell"]]
        points.append(
            Point(
                accepted=bool(row["accepted"]),
                cell=cell,
                hosts=hosts,
                gpu=gpu,
                metric=Metric(row["name"], row["unit"], bool(row["higher_is_better"])),
                **{name: row[name] for name in _AS_FOUND},
            )
        )
    # stable: within a cell, hosts and metrics stay in the order in which they came up
    return tuple(sorted(points, key=lambda point: (point.matrix, point.cell, point.hosts, point.gpu, point.metric)))
