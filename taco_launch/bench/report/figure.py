"""The tables of a sweep as a figure: rate and linear speedup over ranks, with intervals; cells over time."""

import io
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Any

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from taco_launch.bench.compare.tables import Table, firsts
from taco_launch.bench.model.runs import Cell
from taco_launch.bench.report.sweep_report import Trend
from taco_launch.bench.stats.estimates import Interval
from taco_launch.core.frozen import dataclass

# A page draws text and axes in the colour of its text, which depends on light and dark.
_INK = "#010203"
# Okabe and Ito's colours: readers who do not see all colours tell them apart.
_COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9")
_MARKERS = "osD^vP"
_WIDTH, _HEIGHT = 9.0, 3.6  # inches
# How the name of a figure's file ends, and what of its metadata is left out: the same sweep gives the same file.
FORMATS: dict[str, dict[str, None]] = {".svg": {"Date": None}, ".png": {}, ".pdf": {"CreationDate": None}}
# Text stays text, also with dollar signs.
_STYLE: Any = {"svg.fonttype": "none", "text.parse_math": False, "svg.hashsalt": "taco-launch", "font.size": 10}


@dataclass(frozen=True)
class _Line:
    """A variant's values over ranks: those of `Interval`, as many as ranks."""

    ranks: tuple[int, ...]
    values: tuple[Interval, ...]


@dataclass(frozen=True)
class Panel:
    """Values over time: the points (seconds since the epoch, value) of each line, by its name."""

    title: str
    lines: tuple[tuple[str, tuple[tuple[float, float], ...]], ...]
    # Whether the axis starts at 0.
    from_zero: bool = True


def drawn(tables: Sequence[Table], noun: str, form: str) -> bytes:
    """Return the figure of a sweep as a file of one of FORMATS."""
    out = io.BytesIO()
    with mpl.rc_context(_STYLE):
        _of_tables(tables, noun, "black").savefig(
            out, format=form[1:], bbox_inches="tight", dpi=200, metadata=FORMATS[form]
        )
    return out.getvalue()


def svg(tables: Sequence[Table], noun: str) -> str:
    """Return the figure of a sweep for a page: without a background, and its text in the colour of the page's."""
    return _svg(lambda: _of_tables(tables, noun, _INK))


def svg_of_trends(trends: Sequence[Trend], marks: Sequence[float], baselines: Mapping[tuple[Cell, str], float]) -> str:
    """Return the cells over time, as `svg` does, with a line where something changed and one at each cell's baseline."""
    return _svg(lambda: _of_trends(trends, marks, baselines, _INK))


def _svg(draw: Callable[[], Figure]) -> str:
    with mpl.rc_context(_STYLE):
        out = io.StringIO()
        draw().savefig(out, format="svg", bbox_inches="tight", transparent=True, metadata={"Date": None})
    text = out.getvalue()
    return text[text.index("<svg") :].replace(_INK, "currentColor")


def _of_tables(tables: Sequence[Table], noun: str, ink: str) -> Figure:
    """Draw the first metric of each workload: one row each, the rate on the left and linear speedup on the right."""
    mine = firsts(tables)
    figure = Figure(figsize=(_WIDTH, _HEIGHT * max(1, len(mine))), layout="constrained")
    for row, table in enumerate(mine):
        is_linear = any(entry.linear for entry in table.entries)
        columns = 2 if is_linear else 1
        rate = figure.add_subplot(len(mine), columns, row * columns + 1)
        unit = table.metric.unit if table.metric.higher_is_better else f"{table.metric.unit}, less is better"
        _draw(rate, _lines(table, linear=False), (table.workload, noun, unit), ink)
        if is_linear:
            speedup = figure.add_subplot(len(mine), columns, row * columns + 2)
            _draw(speedup, _lines(table, linear=True), ("linear speedup", noun, "%"), ink)
            speedup.axhline(100, color=ink, linewidth=0.8, linestyle="--")
    return figure


def _lines(table: Table, *, linear: bool) -> dict[str, _Line]:
    lines = {}
    for variant in table.variants:
        entries = [entry for ranks in table.ranks if (entry := table.entry(variant, ranks)) is not None]
        values = [_percent(entry.linear or Interval(1.0, None, None)) if linear else entry.rate for entry in entries]
        lines[variant] = _Line(tuple(entry.cell.ranks for entry in entries), tuple(values))
    return lines


def _percent(share: Interval) -> Interval:
    low, high = (bound and 100 * bound for bound in (share.low, share.high))
    return Interval(100 * share.value, low, high)


def _draw(axes: Axes, lines: dict[str, _Line], words: tuple[str, str, str], ink: str) -> None:
    title, across, up = words
    every = sorted({ranks for line in lines.values() for ranks in line.ranks})
    for number, (variant, line) in enumerate(lines.items()):
        middle = [each.value for each in line.values]
        errors = [
            [0.0 if each.low is None else each.value - each.low for each in line.values],
            [0.0 if each.high is None else each.high - each.value for each in line.values],
        ]
        colour, marker = _COLOURS[number % len(_COLOURS)], _MARKERS[number % len(_MARKERS)]
        axes.errorbar(
            [every.index(ranks) for ranks in line.ranks],
            middle,
            yerr=errors,
            label=variant,
            color=colour,
            marker=marker,
            capsize=3,
        )
    axes.set_xticks(range(len(every)), [str(ranks) for ranks in every])
    tops = [each.value if each.high is None else each.high for line in lines.values() for each in line.values]
    axes.set_ylim(0, 1.1 * max(tops))
    axes.set_title(title, color=ink)
    axes.set_xlabel(across, color=ink)
    axes.set_ylabel(up, color=ink)
    axes.legend(frameon=False, labelcolor=ink)
    _ink(axes, ink)


def _of_trends(
    trends: Sequence[Trend], marks: Sequence[float], baselines: Mapping[tuple[Cell, str], float], ink: str
) -> Figure:
    figure = Figure(figsize=(_WIDTH, 2.2 * ((len(trends) + 1) // 2)), layout="constrained")
    for number, trend in enumerate(trends):
        axes = figure.add_subplot((len(trends) + 1) // 2, 2, number + 1)
        when = [_moment(start) for start, *_values in trend.points]
        means, lows, highs = zip(*(values for _start, *values in trend.points), strict=True)
        axes.fill_between(when, lows, highs, color=_COLOURS[0], alpha=0.2, linewidth=0)  # type: ignore[arg-type]
        axes.plot(when, means, color=_COLOURS[0], marker="o", markersize=4)  # type: ignore[arg-type]
        for mark in marks:
            axes.axvline(_moment(mark), color=_COLOURS[1], linewidth=1, linestyle=":")  # type: ignore[arg-type]
        baseline = baselines.get((trend.cell, trend.metric.name))
        if baseline is not None:
            axes.axhline(baseline, color=ink, linewidth=0.8, linestyle="--")
        axes.set_title(f"{trend.cell.name}, {trend.metric.unit}", color=ink, fontsize=9)
        axes.tick_params(axis="x", labelrotation=30, labelsize=8)
        levels = [*lows, *highs, *(() if baseline is None else (baseline,))]
        axes.set_ylim(min(levels) * 0.9, max(levels) * 1.1)
        _ink(axes, ink)
    return figure


def svg_of_times(panels: Sequence[Panel]) -> str:
    """Return values over time, as `svg` does: a panel each, below each other."""
    return _svg(lambda: _of_times(panels))


def _of_times(panels: Sequence[Panel]) -> Figure:
    figure = Figure(figsize=(_WIDTH, 2.0 * len(panels)), layout="constrained")
    grid = figure.subplots(len(panels), 1, sharex=True, squeeze=False)
    for panel, axes in zip(panels, grid[:, 0], strict=True):
        for at, (name, points) in enumerate(panel.lines):
            when = [_moment(moment) for moment, _value in points]
            values = [value for _moment, value in points]
            axes.plot(when, values, color=_COLOURS[at % len(_COLOURS)], label=name)
        axes.set_title(panel.title, color=_INK, fontsize=9)
        axes.set_ylim(bottom=0 if panel.from_zero else None)
        if len(panel.lines) > 1:
            axes.legend(frameon=False, labelcolor=_INK, fontsize=8, loc="upper left", bbox_to_anchor=(1, 1))
        axes.tick_params(labelsize=8)
        _ink(axes, _INK)
    return figure


def _moment(seconds: float) -> datetime:
    return datetime.fromtimestamp(seconds).astimezone()


def _ink(axes: Axes, ink: str) -> None:
    axes.tick_params(colors=ink)
    for side in axes.spines.values():
        side.set_color(ink)
    axes.spines[["top", "right"]].set_visible(False)
