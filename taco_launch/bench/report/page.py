"""A sweep's report as a page of HTML that loads nothing."""

from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

import jinja2
from markupsafe import Markup

from taco_launch.bench.compare.tables import Grid
from taco_launch.bench.model.runs import Cell, when
from taco_launch.bench.report import figure
from taco_launch.bench.report.markdown import about, gap_text
from taco_launch.bench.report.sweep_report import MOST_TRENDS, SweepReport
from taco_launch.bench.report.words import words_in
from taco_launch.bench.stats.verdicts import VerdictKind

_RED = (VerdictKind.REGRESSION, VerdictKind.DRIFT, VerdictKind.NO_SAMPLE)


def html(report: SweepReport, language: str) -> str:
    """Return the page in one of words.LANGUAGES."""
    words = words_in(language)
    return rendered(
        "sweep",
        language,
        started=when(report.ladder.started),
        red=any(verdict.kind in _RED for verdict in report.verdicts) or bool(report.missing),
        sentences=report.sentences,
        **measured(report, words),
    )


def rendered(template: str, language: str, **values: Any) -> str:
    """Return the page that a template makes, by its name without its end."""
    loader = jinja2.PackageLoader(__package__, "templates")
    environment = jinja2.Environment(autoescape=True, undefined=jinja2.StrictUndefined, loader=loader)
    return environment.get_template(f"{template}.html.j2").render(language=language, words=words_in(language), **values)


def measured(
    report: SweepReport, words: SimpleNamespace, baselines: Mapping[tuple[Cell, str], float] | None = None
) -> dict[str, Any]:
    """Return what `measured.html.j2` shows; `baselines` are the means that cells are compared with, by cell and metric."""
    marks = [each.started for each in report.changes]
    return {
        "ladder": report.ladder,
        "missing": [{"name": gap.cell.name, "text": gap_text(gap, words)} for gap in report.missing],
        # matplotlib escapes the names in its SVG
        "figure": Markup(figure.svg(report.measured, report.noun)) if report.measured else "",  # noqa: S704
        "grids": [_cells(grid) for grid in report.grids],
        "number": _number,
        "legend": report.legend,
        "more": max(0, len(report.trends) - MOST_TRENDS),
        "slow": report.slow,
        "trends": Markup(figure.svg_of_trends(report.trends[:MOST_TRENDS], marks, baselines or {}))  # noqa: S704
        if report.trends
        else "",
        "changes": [{"when": when(each.started), "differs": each.differs} for each in reversed(report.changes)],
        "about": about(report, words),
        "logs": report.logs,
    }


def _cells(grid: Grid) -> dict[str, Any]:
    rows = [list(zip(grid.header, row, strict=True)) for row in grid.rows]
    return {"title": grid.title, "header": grid.header, "rows": rows, "numbers": grid.numbers}


def _number(grid: dict[str, Any], name: str) -> str:
    return Markup(' class="number"') if name in grid["numbers"] else ""
