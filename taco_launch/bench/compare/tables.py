"""What a ladder has measured, as tables: rates with their intervals, linear speedup, ratios, a sentence per layer: pure."""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from taco_launch.bench.compare.causes import KNOB
from taco_launch.bench.model.runs import Cell, Metric, Run
from taco_launch.bench.stats.estimates import Interval, interval, percent, ratio
from taco_launch.core.frozen import dataclass

NO_SAMPLE = "no sample"
# What a pattern finds has no unit unless one is named; it is then held for a rate of work, as those below.
UNNAMED = "value"
# Of work that all ranks do together, n ranks are to do n times as much: img/sec, not the bytes of a bus.
_OF_WORK = re.compile(rf"(?![KMGT]?i?B/).+/s(ec)?|{UNNAMED}")
_PERCENT = 100
_THREADS = f"{KNOB} OMP_NUM_THREADS"
# The unit of benchmarks that know it by themselves.
_IMAGES = "img/sec"
# Of the longest bar, in cells of a terminal.
_WIDTH = 40
_EIGHTHS = 8
# Unicode 2588 to 258F: a whole cell, and its eighths from one to seven.
_WHOLE, _PARTS = "\u2588", "\u258f\u258e\u258d\u258c\u258b\u258a\u2589"


@dataclass(frozen=True)
class MetricSummary:
    """One metric of a cell: its `values`, one of each run that counts, and what these amount to.

    `rate` is their mean. `linear` is that over n times the mean of the same variant with one rank (of the first variant
    where it has none: with one rank nothing is exchanged that variants differ in), `to_first` and
    `to_before` are its ratio to the first variant and to the one before it in the matrix, with as many ranks; None where
    there is nothing to compare with. Bounds are those of 95 %, None with less than two values on a side.
    """

    cell: Cell
    values: tuple[float, ...]
    rate: Interval
    linear: Interval | None
    to_first: Interval | None
    to_before: Interval | None
    before: str


@dataclass(frozen=True)
class Table:
    """One metric of a workload; `variants` and `ranks` are those of the ladder, `entries` the cells that have a sample."""

    workload: str
    metric: Metric
    variants: tuple[str, ...]
    ranks: tuple[int, ...]
    entries: tuple[MetricSummary, ...]

    def entry(self, variant: str, ranks: int) -> MetricSummary | None:
        """Return a cell's entry, None without a sample."""
        return next((each for each in self.entries if (each.cell.variant, each.cell.ranks) == (variant, ranks)), None)


@dataclass(frozen=True)
class MissingCell:
    """A cell of which `failed` of `runs` runs gave no sample; `why` is that of the last of these."""

    cell: Cell
    failed: int
    runs: int
    why: str


@dataclass(frozen=True)
class Grid:
    """A table as text: `numbers` of the columns of `header` are flush right."""

    title: str
    header: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    numbers: tuple[str, ...]


def tables(cells: Sequence[Cell], runs: Sequence[Run]) -> tuple[Table, ...]:
    """Return a table for each metric of each workload, in the order of `cells`; warm-ups do not count."""
    found: dict[tuple[str, Metric], dict[Cell, list[float]]] = {}
    for workload in dict.fromkeys(cell.workload for cell in cells):
        for run in runs:
            if run.cell.workload == workload and not run.warm_up:
                for reading in run.readings:
                    values = found.setdefault((workload, reading.metric), {})
                    values.setdefault(run.cell, []).append(reading.value)
    return tuple(
        _table(cells, *key, {cell: tuple(each) for cell, each in values.items()}) for key, values in found.items()
    )


def _table(cells: Sequence[Cell], workload: str, metric: Metric, values: Mapping[Cell, tuple[float, ...]]) -> Table:
    mine = [cell for cell in cells if cell.workload == workload]
    variants = tuple(dict.fromkeys(cell.variant for cell in mine))
    ranks = tuple(sorted({cell.ranks for cell in mine}))

    def entry(cell: Cell) -> MetricSummary:
        there = [variant for variant in variants if Cell(workload, variant, cell.ranks) in values]
        before = there[there.index(cell.variant) - 1] if cell.variant != there[0] else ""
        one = values.get(Cell(workload, cell.variant, 1)) or values.get(Cell(workload, variants[0], 1))
        linear = None
        if one is not None and cell.ranks > 1 and metric.higher_is_better and _OF_WORK.fullmatch(metric.unit):
            linear = _scaled(ratio(values[cell], one), 1 / cell.ranks)

        def compared(variant: str) -> Interval | None:
            other = values.get(Cell(workload, variant, cell.ranks))
            return ratio(values[cell], other) if other is not None and variant != cell.variant else None

        own = values[cell]
        return MetricSummary(cell, own, interval(own), linear, compared(variants[0]), compared(before), before)

    return Table(workload, metric, variants, ranks, tuple(entry(cell) for cell in mine if cell in values))


def _scaled(found: Interval, factor: float) -> Interval:
    low, high = (bound if bound is None else bound * factor for bound in (found.low, found.high))
    return Interval(found.value * factor, low, high)


def missing(cells: Sequence[Cell], runs: Sequence[Run]) -> tuple[MissingCell, ...]:
    """Return the cells that have no sample, or not of all their runs; warm-ups do not count, one never run has 0 runs."""
    found = []
    for cell in cells:
        mine = [run for run in runs if run.cell == cell and not run.warm_up]
        failed = [run for run in mine if not run.readings]
        if failed or not mine:
            found.append(MissingCell(cell, len(failed), len(mine), failed[-1].why if failed else "it was not run"))
    return tuple(found)


def grids(found: Sequence[Table], noun: str) -> tuple[Grid, ...]:
    """Return the tables of each workload as text: the rates, then the ratios to the first variant.

    `noun` is what ranks are called: `GPUs` or `ranks`.
    """
    return tuple(grid for mine in _by_workload(found) for grid in (_rates(mine, noun), *_ratios(mine, noun)))


def sentences(found: Sequence[Table], noun: str) -> tuple[str, ...]:
    """Return of each layer what it did to the rate at each size: each variant against the one before it.

    Of a workload with several metrics this is the first one's, which stands for it.
    """
    return tuple(
        sentence
        for mine in _by_workload(found)
        for variant in mine[0].variants
        for sentence in _layer(mine[0], variant, noun, alone=len(mine) == 1)
    )


def legend(found: Sequence[Table]) -> str:
    """Return what the intervals of some tables are, where there are none, and what linear speedups refer to."""
    counts = sorted({len(entry.values) for table in found for entry in table.entries})
    repeats = str(counts[0]) if len(counts) == 1 else f"{counts[0]} to {counts[-1]}"
    if counts[-1] < 2:
        lines = ["each number comes from one run: it has no interval and cannot show a difference"]
    else:
        alone = "" if counts[0] > 1 else "; a number without an interval comes from one run"
        lines = [f"± and [ ] show 95 % confidence intervals, for each number separately, from {repeats} repeats{alone}"]
    return "\n".join((*lines, *dict.fromkeys(line for table in found for line in _borrowed(table))))


def differing_threads(runs: Iterable[Run]) -> str:
    """Return the workloads and variants whose sizes had different OMP_NUM_THREADS, and what each size had; "" for none.

    A user sets one value for all sizes of a variant: different ones come from the launch profile, which divides a host's cores.
    """
    seen: dict[tuple[str, str], dict[int, str]] = {}
    for run in runs:
        value = next((value for _host, what, value in run.circumstances.facts if what == _THREADS), "")
        if value:
            seen.setdefault((run.cell.workload, run.cell.variant), {})[run.cell.ranks] = value
    alike: dict[str, list[str]] = {}
    for (workload, variant), sizes in sorted(seen.items()):
        if len(set(sizes.values())) > 1:
            words = (f"{value} for {ranks} rank{'s' * (ranks > 1)}" for ranks, value in sorted(sizes.items()))
            alike.setdefault(", ".join(words), []).append(f"{workload}, {variant}")
    if not alike:
        return ""
    is_all = len(alike) == 1 and len(seen) == len(next(iter(alike.values())))
    what = "; ".join(words if is_all else f"{words} ({'; '.join(cells)})" for words, cells in alike.items())
    return (
        f"the sizes had different numbers of threads per rank: OMP_NUM_THREADS was {what} (the cores of a host divided by its "
        "ranks); for equal threads, set OMP_NUM_THREADS to 1: with bench run -x OMP_NUM_THREADS=1, in a matrix job: {env: {OMP_NUM_THREADS: 1}}"
    )


def _borrowed(table: Table) -> Iterator[str]:
    first = table.variants[0]
    for variant in table.variants[1:]:
        mine = [entry for entry in table.entries if entry.cell.variant == variant]
        if table.entry(variant, 1) is None and any(entry.linear for entry in mine):
            yield f"linear speedup of {variant}: relative to one rank of {first}, since {variant} was not measured with one rank"


def to_json(found: Sequence[Table]) -> list[dict[str, Any]]:
    """Return the tables as JSON values, each cell with its values and what they amount to."""
    return [
        {
            "workload": table.workload,
            "metric": asdict(table.metric),
            "rows": [
                {
                    "ranks": entry.cell.ranks,
                    "variant": entry.cell.variant,
                    "values": list(entry.values),
                    **asdict(entry.rate),
                    "linear_speedup": entry.linear and asdict(entry.linear),
                    "ratio_to_first": entry.to_first and asdict(entry.to_first),
                    "before": entry.before,
                    "ratio_to_before": entry.to_before and asdict(entry.to_before),
                }
                for entry in table.entries
            ],
        }
        for table in found
    ]


def row(entry: MetricSummary) -> tuple[str, ...]:
    """Return one size of one program as text: ranks, rate, rate of each rank, linear speedup."""
    ranks = entry.cell.ranks
    return str(ranks), _rate(entry.rate), _rate(_scaled(entry.rate, 1 / ranks)), _linear(entry)


def row_data(entry: MetricSummary, unit: str) -> dict[str, Any]:
    """Return the same as JSON values; bounds are there where several runs were made."""
    name = "img_per_sec" if unit == _IMAGES else "rate"
    linear = entry.linear or (Interval(1.0, None, None) if entry.cell.ranks == 1 else None)
    data = {
        "np": entry.cell.ranks,
        name: entry.rate.value,
        f"{name}_per_rank": entry.rate.value / entry.cell.ranks,
        "linear_speedup": linear and linear.value,
    } | ({} if unit == _IMAGES else {"unit": unit})
    if entry.rate.low is None:
        return data
    bounds = {"values": list(entry.values), "low": entry.rate.low, "high": entry.rate.high}
    return data | bounds | ({"linear_low": linear.low, "linear_high": linear.high} if linear else {})


def change(found: Interval) -> str:
    """Return a ratio as a change: `+31.2 % [28.4, 34.1]`."""
    low, high = (bound if bound is None else bound - 1 for bound in (found.low, found.high))
    return percent(Interval(found.value - 1, low, high))


def shows(found: Interval) -> bool:
    """Return whether a ratio's interval carries that there is a difference."""
    return found.low is not None and found.high is not None and not found.low <= 1 <= found.high


def number(value: float) -> str:
    """Return a rate with as many digits as are worth reading."""
    return f"{value:.{_decimals(value)}f}"


def firsts(measured: Sequence[Table]) -> tuple[Table, ...]:
    """Return the table of the first metric of each workload, which stands for it."""
    return tuple(mine[0] for mine in _by_workload(measured))


def noun(runs: Iterable[Run]) -> str:
    """Return what the ranks of runs are called."""
    return "GPUs" if any(run.gpu for run in runs) else "ranks"


def _by_workload(found: Sequence[Table]) -> list[list[Table]]:
    return [
        [table for table in found if table.workload == workload]
        for workload in dict.fromkeys(table.workload for table in found)
    ]


def _rates(mine: Sequence[Table], noun: str) -> Grid:
    several = len(mine) > 1
    linear = any(entry.linear for table in mine for entry in table.entries)
    first = mine[0]
    numbers = [noun.upper() if noun == "ranks" else noun]
    header = [*numbers, *(["METRIC"] if several else [])]
    for variant in first.variants:
        columns = [variant, *([f"{variant} LINEAR"] if linear else [])]
        header += columns
        numbers += columns
    rows = []
    for table in mine:
        for ranks in table.ranks:
            row = [str(ranks), *([table.metric.name] if several else [])]
            for variant in table.variants:
                entry = table.entry(variant, ranks)
                row += [NO_SAMPLE if entry is None else _rate(entry.rate)]
                row += [_linear(entry)] if linear else []
            rows.append(tuple(row))
    return Grid(f"{first.workload}, {_unit(first.metric)}", tuple(header), tuple(rows), tuple(numbers))


def _ratios(mine: Sequence[Table], noun: str) -> Iterator[Grid]:
    first, several = mine[0], len(mine) > 1
    if len(first.variants) < 2:
        return
    header = ("VARIANT", *(["METRIC"] if several else []), *(f"{ranks} {_one(noun, ranks)}" for ranks in first.ranks))
    rows = []
    for table in mine:
        for variant in table.variants[1:]:
            found = [table.entry(variant, ranks) for ranks in table.ranks]
            cells = [change(entry.to_first) if entry and entry.to_first else "-" for entry in found]
            rows.append((variant, *([table.metric.name] if several else []), *cells))
    if any(entry.to_first for table in mine for entry in table.entries):
        yield Grid(f"{first.workload}, ratio to {first.variants[0]}", header, tuple(rows), header[-len(first.ranks) :])


def _layer(table: Table, variant: str, noun: str, *, alone: bool) -> Iterator[str]:
    """Yield the sentence of one variant; variants that it follows may differ by size, where one has no sample."""
    found = [entry for entry in (table.entry(variant, ranks) for ranks in table.ranks) if entry and entry.to_before]
    for before in dict.fromkeys(entry.before for entry in found):
        parts = []
        for entry in found:
            if entry.before == before and entry.to_before:
                at = f"at {entry.cell.ranks} {_one(noun, entry.cell.ranks)} {change(entry.to_before)}"
                parts.append(at + _claim(entry.to_before))
        metric = "" if alone else f", {table.metric.name}"
        yield f"{table.workload}{metric}: {before} to {variant}: {'; '.join(parts)}"


def _claim(found: Interval) -> str:
    if found.low is None:
        return " (no interval)"
    return "" if shows(found) else ": no difference shown"


def _rate(found: Interval) -> str:
    if found.low is None or found.high is None:
        return number(found.value)
    half = (found.high - found.low) / 2
    return f"{number(found.value)} ±{half:.{_decimals(found.value)}f}"


def _linear(entry: MetricSummary | None) -> str:
    if entry is None or entry.linear is None:
        return "-"
    found = entry.linear
    share = f"{_PERCENT * found.value:.2f}%"
    if found.low is None or found.high is None:
        return share
    return f"{share} [{_PERCENT * found.low:.1f}, {_PERCENT * found.high:.1f}]"


def _unit(metric: Metric) -> str:
    return metric.unit if metric.higher_is_better else f"{metric.unit}, less is better"


def _one(noun: str, count: int) -> str:
    return noun.removesuffix("s") if count == 1 else noun


def _decimals(value: float) -> int:
    return 1 if value >= 100 else 2 if value >= 10 else 3 if value >= 1 else 6


def bars(table: Table) -> list[tuple[str, str, str, str]]:
    """Return ranks, variant, bar and value of each cell that has a sample; the highest value has the longest bar."""
    entries = sorted(table.entries, key=lambda entry: (entry.cell.ranks, table.variants.index(entry.cell.variant)))
    highest = max(entry.rate.value for entry in entries)
    return [
        (str(entry.cell.ranks), entry.cell.variant, _bar(entry.rate.value, highest), number(entry.rate.value))
        for entry in entries
    ]


def _bar(value: float, highest: float) -> str:
    whole, part = divmod(round(_EIGHTHS * _WIDTH * value / highest), _EIGHTHS)
    return _WHOLE * whole + (_PARTS[part - 1] if part else "")
