"""Nightly runs as pages of HTML that load nothing: a page for each, from its summary in JSON, and a page that lists all."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from taco_launch.bench.model.runs import Cell, when
from taco_launch.bench.report import page
from taco_launch.bench.report.night_summaries import summaries
from taco_launch.bench.report.sweep_report import SweepReport
from taco_launch.bench.report.words import words_in

# A page that lists more is slow to open; the summaries stay.
_MOST_NIGHTS = 400
_COLOURS = {"ok": "green", "drift": "amber", "unsure": "amber", "pending": "amber", "interrupted": ""}


def html(
    night: Mapping[str, Any], measured: SweepReport | None, language: str, *, is_beside_index: bool = False
) -> str:
    """Return the page of a nightly run: `night` is its summary as JSON, `measured` what the history has of it, None for nothing."""
    words = words_in(language)
    baselines = {
        (Cell(one["workload"], one["variant"], one["ranks"]), one["metric"]): one["baseline"]
        for one in night["judged"]
        if one["baseline"] is not None
    }
    shown = {} if measured is None else page.measured(measured, words, baselines)
    return page.rendered(
        "night",
        language,
        night=night,
        began=when(night["started"]),
        colour=_colour(night),
        notes=[*night["host_notes"], *filter(None, (night["lost"],)), *night["notes"]],
        steps=night["next"],
        verdicts=[_row(one) for one in night["judged"]],
        measured=measured is not None,
        is_beside_index=is_beside_index,
        **shown,
    )


def index(folder: Path, name: str, language: str) -> str:
    """Return the page that lists the nightly runs whose summaries are in a folder, the newest first."""
    nights = [
        {
            "began": when(night["started"]),
            "outcome": night["outcome"],
            "headline": night["headline"],
            "colour": _colour(night),
            "page": path.with_suffix(".html").name if path.with_suffix(".html").exists() else "",
        }
        for path, night in summaries(folder)[:_MOST_NIGHTS]
    ]
    return page.rendered("nights", language, name=name, nights=nights)


def _colour(night: Mapping[str, Any]) -> str:
    return _COLOURS.get(night["outcome"], "red")


def _row(one: Mapping[str, Any]) -> dict[str, str]:
    values = {key: "" if one[key] is None else f"{one[key]:,.6g} {one['unit']}" for key in ("tonight", "baseline")}
    metric = "" if one["metric"] == one["unit"] else f", {one['metric']}"
    cell = f"{Cell(one['workload'], one['variant'], one['ranks']).name}{metric}"
    return {"cell": cell, "verdict": one["verdict"], "why": one["why"], **values}
