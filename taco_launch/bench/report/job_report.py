"""What the report of a job shows, also as Markdown and as JSON."""

from collections.abc import Mapping
from typing import Any

from taco_launch.bench.report.words import row, words_in
from taco_launch.core.frozen import dataclass
from taco_launch.core.model.codec import to_json
from taco_launch.core.model.job_view import Usage
from taco_launch.jobs.progress_curve import Point

# What the values of a row are called in JSON, by its field.
_NAMES = {
    "facts": ("label", "value"),
    "hosts": ("host", "ranks", "slots"),
    "events": ("time", "kind", "reason"),
    "points": Point._fields,
    "about": ("label", "value"),
}


@dataclass(frozen=True)
class JobReport:
    """All that the page of a job shows, without secrets."""

    name: str
    state: str
    # label and value of each, the reason first
    facts: tuple[tuple[str, str], ...]
    # seconds by what the job did in them
    spent: Mapping[str, float]
    # blocks of text: what it waits for, the last lines of the rank that failed
    blocks: tuple[str, ...]
    # name, ranks and slots of each
    hosts: tuple[tuple[str, str, str], ...]
    # time, kind and reason of each
    events: tuple[tuple[str, str, str], ...]
    points: tuple[Point, ...]
    usage: tuple[Usage, ...]
    # label and value of what it is
    about: tuple[tuple[str, str], ...]


def as_json(report: JobReport) -> dict[str, Any]:
    """Return the report as JSON values, each with a name."""
    values: dict[str, Any] = to_json(report)
    named = {field: [dict(zip(names, each, strict=True)) for each in values[field]] for field, names in _NAMES.items()}
    return {**values, **named}


def markdown(report: JobReport, language: str) -> str:
    """Return the report as Markdown, without the figures."""
    words = words_in(language)
    lines = [f"# {report.name}: {report.state}", "", *(f"- {label}: {value}" for label, value in report.facts)]
    if report.spent:
        lines += ["", f"## {words.time_spent}", ""]
        lines += [f"- {word}: {seconds:.0f} s" for word, seconds in report.spent.items() if seconds >= 1]
    for block in report.blocks:
        lines += ["", "```text", block, "```"]
    if report.hosts:
        lines += ["", f"## {words.hosts}", "", row((words.host, words.ranks, words.slots)), row(["---"] * 3)]
        lines += [row(host) for host in report.hosts]
    lines += ["", f"## {words.events}", "", row((words.time, words.event, words.why)), row(["---"] * 3)]
    lines += [row(event) for event in report.events]
    lines += ["", f"## {words.about_job}", "", *(f"- {label}: {value}" for label, value in report.about)]
    return "\n".join((*lines, ""))
