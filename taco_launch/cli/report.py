"""report: a job as one page."""

import json
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from taco_launch.bench.report.extra import load
from taco_launch.bench.report.job_report import JobReport, as_json, markdown
from taco_launch.cli.bench.report import format_option, language_option, report_format, to_option, write
from taco_launch.cli.options.common import access_of, settings_of, verb
from taco_launch.cli.options.completion import complete_job
from taco_launch.cli.output import job_tables
from taco_launch.core.launch.masking import Masker
from taco_launch.core.lifecycle.goodput import time_spent
from taco_launch.core.model.job_view import JobView
from taco_launch.core.model.plans import numbered
from taco_launch.core.model.stalls import shown_time
from taco_launch.jobs.backend import Backend
from taco_launch.jobs.progress_curve import curve


@verb(access=True)
@click.argument("name", shell_complete=complete_job)
@to_option
@format_option
@language_option
def report(
    ctx: click.Context, /, *, name: str, to: Path | None, format_: str | None, language: str, **access: Any
) -> None:
    """Write the report of a job as one page.

    It shows the state and the reason first, then where the time went, loss, rate and steps over time, how much of GPUs, CPUs and network was
    used, ranks and hosts, and events. The page opens in any browser, without a network. Secrets are masked as in `support`.

    \b
    Examples:
      taco-launch report vgg16
      taco-launch report vgg16 --to run.html
      taco-launch report vgg16 --format md
    """
    format_ = report_format(format_, to)
    settings = settings_of(ctx)
    page = load("job_page") if format_ == "html" else None
    data = _collected(settings.backend(access_of(access)), name)
    if page is not None:
        text = page.html(data, language)
    else:
        text = f"{json.dumps(as_json(data), indent=2)}\n" if format_ == "json" else markdown(data, language)
    if to is None and format_ != "html":
        click.echo(text, nl=False)
        return
    path = to or Path(f"{name}.html")
    write(path, text.encode())
    settings.talk(f"wrote {path}")


def _collected(backend: Backend, name: str) -> JobReport:
    """Ask the head for all that the page of a job shows."""
    job, usage = backend.get(name), backend.used(name)
    mask = Masker(job.spec, os.environ).text

    def masked(text: str) -> str:
        return mask(click.unstyle(text))

    rank = None if job.progress is None else job.progress.rank
    points = () if rank is None else tuple(curve(backend, name, rank, job.spec.policy.progress))
    now = time.time()
    return JobReport(
        name=name,
        state=job.record.state.value,
        facts=_masked(job_tables.state(job, now, wide=True), masked),
        about=_masked(job_tables.about(job), masked),
        spent=time_spent(job.record, job.events, now, job.first_step),
        blocks=tuple(masked(block) for block in job_tables.below(job, now) if block),
        hosts=tuple(_hosts(job)),
        events=tuple((shown_time(each.time), each.kind, masked(each.reason)) for each in job.events),
        points=points,
        usage=() if usage is None else usage.series,
    )


def _masked(facts: list[tuple[str, str]], masked: Callable[[str], str]) -> tuple[tuple[str, str], ...]:
    return tuple((label, masked(value)) for label, value in facts if value)


def _hosts(job: JobView) -> list[tuple[str, str, str]]:
    return [
        (share.host, "-".join(str(rank) for rank in dict.fromkeys((ranks[0], ranks[-1]))), ", ".join(share.slots))
        for share, ranks in numbered(job.record.shares)
    ]


VERBS = (report,)
