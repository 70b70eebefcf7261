"""Runs that measured some values, and the tables of them."""

from collections.abc import Sequence

from taco_launch.bench.compare import tables
from taco_launch.bench.model.runs import Cell, Measurement, Metric, Run
from tests.support.ladders import RATE


def run(cell: Cell, *values: float, metric: Metric = RATE, warm_up: bool = False, why: str = "") -> Run:
    readings = tuple(Measurement(metric, value) for value in values)
    return Run(cell, 0, warm_up, "j", 0.0, 1.0, ("h",), "", readings, why, "")


def made(values: dict[tuple[str, int], Sequence[float]], metric: Metric = RATE) -> tuple[tables.Table, ...]:
    cells = tuple(Cell("resnet50", *key) for key in values)
    return tables.tables(
        cells, [run(cell, one, metric=metric) for cell in cells for one in values[cell.variant, cell.ranks]]
    )
