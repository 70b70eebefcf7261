"""Runs as rows of the history's tables, and back."""

import functools
import json
import sqlite3
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from taco_launch.bench.model.runs import Cell, Measurement, Metric, Run, RunEnvironment

# Fields of a run that are columns of their names.
_AS_FOUND = ("repeat", "job", "started", "seconds", "gpu", "why", "log")


def add(db: sqlite3.Connection, ladder_id: str, position: int, run: Run) -> None:
    """Add a run with its readings, within the caller's transaction.

    Raises:
        sqlite3.IntegrityError: its place is taken, or there is no such ladder.
    """
    times = (run.started, run.seconds)
    place = (ladder_id, position)
    of = cell(db, run.cell, run.hosts, run.gpu)
    on = _number(db, "circumstances", {"facts": text(run.circumstances.facts)})
    added = db.execute(
        "INSERT INTO run (ladder, position, cell, repeat, warm_up, job, started, seconds, hosts, why, log,"
        " circumstances) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
        (*place, of, run.repeat, run.warm_up, run.job, *times, text(run.hosts), run.why, run.log, on),
    )
    for number, reading in enumerate(run.readings):
        db.execute(
            "INSERT INTO reading (run, place, metric, value) VALUES (?, ?, ?, ?)",
            (added.lastrowid, number, _number(db, "metric", asdict(reading.metric)), reading.value),
        )


def runs(db: sqlite3.Connection, ladder_id: str) -> tuple[tuple[int, Run], ...]:
    """Return the runs of a ladder as (position, run), in that order."""
    readings: dict[int, list[Measurement]] = {}
    for row in db.execute(
        "SELECT run.id, value, name, unit, higher_is_better FROM run JOIN reading ON reading.run = run.id"
        " JOIN metric ON metric.id = metric WHERE ladder = ? ORDER BY run.id, place",
        (ladder_id,),
    ):
        metric = Metric(row["name"], row["unit"], bool(row["higher_is_better"]))
        readings.setdefault(row["id"], []).append(Measurement(metric, row["value"]))
    found = db.execute("SELECT * FROM whole_run WHERE ladder = ? ORDER BY position", (ladder_id,))
    return tuple((row["position"], _run(row, readings.get(row["id"], ()))) for row in found)


def cell(db: sqlite3.Connection, of: Cell, hosts: Sequence[str], gpu: str) -> int:
    """Return the number of a cell on hosts, whose order is all one; added where it is new."""
    return _number(db, "cell", {**asdict(of), "hosts": text(sorted(hosts)), "gpu": gpu})


def text(value: Any) -> str:
    """Return a list as the tables have it: JSON without blanks."""
    return json.dumps(value, separators=(",", ":"))


def _number(db: sqlite3.Connection, table: str, row: Mapping[str, Any]) -> int:
    """Return the number of what a table has once, added where it is new; `row` is its columns."""
    columns, marks, values = ", ".join(row), ", ".join("?" * len(row)), tuple(row.values())
    found = db.execute(f"SELECT id FROM {table} WHERE ({columns}) = ({marks})", values).fetchone()  # noqa: S608 - names of ours
    if found is not None:
        return int(found[0])
    added = db.execute(f"INSERT INTO {table} ({columns}) VALUES ({marks})", values).lastrowid  # noqa: S608
    assert added is not None
    return added


def _run(row: Mapping[str, Any], readings: Sequence[Measurement]) -> Run:
    return Run(
        cell=Cell(row["workload"], row["variant"], row["ranks"]),
        warm_up=bool(row["warm_up"]),
        hosts=tuple(json.loads(row["hosts"])),
        readings=tuple(readings),
        circumstances=_facts(row["facts"]),
        **{name: row[name] for name in _AS_FOUND},
    )


@functools.lru_cache(maxsize=1000)
def _facts(told: str) -> RunEnvironment:
    return RunEnvironment(tuple((host, what, value) for host, what, value in json.loads(told)))
