"""Two measurings side by side: what differs in their circumstances, and how their readings changed."""

from collections.abc import Mapping, Sequence

from taco_launch.bench.compare.differences import Difference, differences, merged, order
from taco_launch.bench.model.runs import Cell, Metric, Run
from taco_launch.bench.stats.estimates import Interval, ratio
from taco_launch.core.frozen import dataclass


@dataclass(frozen=True)
class CellDifference:
    """A difference, and the cells that it is between: `everywhere` says that those are all that are compared."""

    difference: Difference
    cells: tuple[Cell, ...]
    everywhere: bool


@dataclass(frozen=True)
class MetricChange:
    """How a metric of a cell changed: the values of each side, and the mean of `after` by that of `before`.

    `ratio` is None where a side has no value.
    """

    before_cell: Cell
    after_cell: Cell
    metric: Metric
    before: tuple[float, ...]
    after: tuple[float, ...]
    ratio: Interval | None


@dataclass(frozen=True)
class Comparison:
    """`differs` has the largest suspects first, `changed` is in the order of the cells."""

    differs: tuple[CellDifference, ...]
    changed: tuple[MetricChange, ...]


def compare(before: Sequence[Run], after: Sequence[Run]) -> Comparison:
    """Compare the runs of cells that both sides have; one cell on each side is compared whatever they are.

    Warm-ups count for nothing beside others; runs that failed for circumstances alone.

    Raises:
        ValueError: no cell is on both sides.
    """
    old, new = _by_cell(before), _by_cell(after)
    pairs = [(cell, cell) for cell in old if cell in new]
    if len(old) == len(new) == 1:
        pairs = [(next(iter(old)), next(iter(new)))]
    if not pairs:
        raise ValueError("no cell was measured in both")
    found: dict[tuple[str, str, str], tuple[dict[str, None], list[Cell]]] = {}
    changed: list[MetricChange] = []
    for one, other in pairs:
        sides = (merged(run.circumstances for run in runs) for runs in (old[one], new[other]))
        for difference in differences(*sides):
            told = (difference.what, difference.before, difference.after)
            hosts, cells = found.setdefault(told, ({}, []))
            hosts.update(dict.fromkeys(difference.hosts))
            cells.append(other)
        changed += _changed(one, other, old[one], new[other])
    differs = [
        CellDifference(
            Difference(what, tuple(sorted(hosts)), one, other), tuple(dict.fromkeys(cells)), len({*cells}) == len(pairs)
        )
        for (what, one, other), (hosts, cells) in found.items()
    ]
    return Comparison(tuple(sorted(differs, key=lambda each: order(each.difference))), tuple(changed))


def _by_cell(runs: Sequence[Run]) -> dict[Cell, list[Run]]:
    found: dict[Cell, list[Run]] = {}
    counted = [run for run in runs if not run.warm_up] or runs  # a warm-up that was named by itself
    for run in sorted(counted, key=lambda run: run.cell):
        found.setdefault(run.cell, []).append(run)
    return found


def _changed(one: Cell, other: Cell, before: Sequence[Run], after: Sequence[Run]) -> list[MetricChange]:
    old, new = _values(before), _values(after)
    return [
        MetricChange(
            one,
            other,
            metric,
            old.get(metric, ()),
            new.get(metric, ()),
            ratio(new[metric], old[metric]) if metric in old and metric in new else None,
        )
        for metric in dict.fromkeys((*old, *new))
    ]


def _values(runs: Sequence[Run]) -> Mapping[Metric, tuple[float, ...]]:
    found: dict[Metric, tuple[float, ...]] = {}
    for run in runs:
        for reading in run.readings:
            found[reading.metric] = (*found.get(reading.metric, ()), reading.value)
    return found
