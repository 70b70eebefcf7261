"""A job as a page of HTML that loads nothing, or as Markdown: its state, where the time went, progress, use, hosts and events."""

from collections.abc import Iterator, Mapping, Sequence

from markupsafe import Markup

from taco_launch.bench.report import figure, page
from taco_launch.bench.report.figure import Panel
from taco_launch.core.frozen import dataclass
from taco_launch.core.model.job_view import Usage
from taco_launch.jobs.progress_curve import Point

_COLOURS = {"SUCCEEDED": "green", "FAILED": "red", "LOST": "red"}
_MANY = 2  # points make a curve
_MEGA = 1e6


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


def html(report: JobReport, language: str) -> str:
    """Return the page in one of page.LANGUAGES."""
    total = sum(report.spent.values())
    panels = [*_progress(report.points), *_usage(report.usage)]
    return page.rendered(
        "job",
        language,
        report=report,
        colour=_COLOURS.get(report.state, ""),
        spent=[
            (word, seconds, 100 * seconds / total) for word, seconds in report.spent.items() if seconds > total / 200
        ],
        # matplotlib escapes the names in its SVG
        figure=Markup(figure.svg_of_times(panels)) if panels else "",  # noqa: S704
    )


def markdown(report: JobReport, language: str) -> str:
    """Return the report as Markdown, without the figures."""
    words = page.words_in(language)
    lines = [f"# {report.name}: {report.state}", "", *(f"- {label}: {value}" for label, value in report.facts)]
    if report.spent:
        lines += ["", f"## {words.time_spent}", ""]
        lines += [f"- {word}: {seconds:.0f} s" for word, seconds in report.spent.items() if seconds >= 1]
    for block in report.blocks:
        lines += ["", "```text", block, "```"]
    if report.hosts:
        lines += ["", f"## {words.hosts}", "", page.row((words.host, words.ranks, words.slots)), page.row(["---"] * 3)]
        lines += [page.row(host) for host in report.hosts]
    lines += ["", f"## {words.events}", "", page.row((words.time, words.event, words.why)), page.row(["---"] * 3)]
    lines += [page.row(event) for event in report.events]
    lines += ["", f"## {words.about_job}", "", *(f"- {label}: {value}" for label, value in report.about)]
    return "\n".join((*lines, ""))


def _progress(points: Sequence[Point]) -> Iterator[Panel]:
    for title, values in (
        ("loss", [(point.time, point.loss) for point in points]),
        (next((point.unit for point in points if point.unit), "rate"), [(point.time, point.rate) for point in points]),
        ("step", [(point.time, point.step) for point in points]),
    ):
        line = _known(values)
        if len(line) >= _MANY:
            yield Panel(title, ((title, line),), from_zero=title != "loss")


def _usage(series: Sequence[Usage]) -> Iterator[Panel]:
    shares = (("GPU", "gpu"), ("GPU memory", "gpu_memory"), ("CPU", "cpu"), ("IO wait", "iowait"))
    own = (("CPUs", "job_cpus"),)
    rates = (("received", "received"), ("sent", "sent"))
    for title, factor, fields in (
        ("hosts, %", 100.0, shares),
        ("network of the hosts, MB/s", 1 / _MEGA, rates),
        ("CPUs that the job uses on a host", 1.0, own),
    ):
        lines = []
        for name, field in fields:
            values = [(usage.time, getattr(usage, field)) for usage in series]
            line = _known([(time, None if value is None else factor * value) for time, value in values])
            if len(line) >= _MANY:
                lines.append((name, line))
        if lines:
            yield Panel(title, tuple(lines))


def _known(values: Sequence[tuple[float, float | None]]) -> tuple[tuple[float, float], ...]:
    return tuple((time, value) for time, value in values if value is not None)
