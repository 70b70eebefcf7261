"""A job as a page of HTML that loads nothing: its state, where the time went, progress, use, hosts and events."""

from collections.abc import Iterator, Sequence

from markupsafe import Markup

from taco_launch.bench.report import figure, page
from taco_launch.bench.report.figure import Panel
from taco_launch.bench.report.job_report import JobReport
from taco_launch.core.model.job_view import Usage
from taco_launch.jobs.progress_curve import Point

_COLOURS = {"SUCCEEDED": "green", "FAILED": "red", "LOST": "red"}
_MANY = 2  # points make a curve
_MEGA = 1e6


def html(report: JobReport, language: str) -> str:
    """Return the page in one of words.LANGUAGES."""
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
