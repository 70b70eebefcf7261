"""nightly report: a nightly run as a page, and the page of all."""

import json
import os
from pathlib import Path

import click

from taco_launch.bench.nightly import record
from taco_launch.bench.report import read_history
from taco_launch.bench.report.extra import load
from taco_launch.bench.report.night_summaries import INDEX, summaries
from taco_launch.cli.bench import ladder_output
from taco_launch.cli.bench.history import opened
from taco_launch.cli.bench.report import format_option, language_option, report_format, to_option, write
from taco_launch.cli.options.common import add_option, settings_of, verb
from taco_launch.core.errors import UsageError
from taco_launch.hosts.inventory.schema import names

_LAST = "last"


@verb("report")
@click.argument("name", metavar="NAME")
@ladder_output.db_option
@add_option(
    "--night",
    default=_LAST,
    show_default=True,
    metavar="DATE|SWEEP",
    help="Which run: its date, such as 2026-11-30, or the id of its sweep.",
)
@to_option
@format_option
@language_option
def report(
    ctx: click.Context,
    /,
    *,
    name: str,
    db: Path | None,
    night: str,
    to: Path | None,
    format_: str | None,
    language: str,
) -> None:
    """Write the report of a nightly run as one page.

    The verdict comes first, then what to do, what changed since the last accepted run, and each cell over time with its
    baseline. `nightly run` writes this page beside its summary, and index.html, which lists all runs.

    \b
    Examples:
      taco-launch nightly report taco
      taco-launch nightly report taco --night 2026-11-30 --to night.html
      taco-launch nightly report taco --format md
    """
    format_ = report_format(format_, to)
    pages = load("night_page") if format_ == "html" else None
    folder = record.folder(os.environ, os.geteuid(), name)
    nights = summaries(folder)
    if not nights:
        raise UsageError(
            f"{name}: no nightly run of this name has finished on this machine",
            hint=names.did_you_mean(name, [each.name for each in folder.parent.glob("*")])
            or "taco-launch nightly status lists the installed ones; taco-launch nightly run MATRIX measures one",
        )
    matching = [(path, summary) for path, summary in nights if night == _LAST or night in path.stem]
    if not matching:
        dates = ", ".join(path.stem for path, _summary in nights[:3])
        raise UsageError(f"--night {night}: {name} has no such run", hint=f"the last ones are {dates}")
    path, summary = matching[0]
    if pages is not None:
        measured = None
        with opened(db) as history:
            ladder = history.ladder(summary["ladder"])
            if ladder is not None:
                measured = read_history.read(history, ladder, nights=True)
        text = pages.html(summary, measured, language)
    else:
        text = json.dumps(summary, indent=2) + "\n" if format_ == "json" else path.with_suffix(".md").read_text("utf-8")
    if to is None and format_ != "html":
        click.echo(text, nl=False)
        return
    target = to or Path(f"{path.stem}.html" if name in path.stem else f"{name}-{path.stem}.html")
    write(target, text.encode())
    settings = settings_of(ctx)
    settings.talk(f"wrote {target}")
    if (folder / INDEX).exists():
        settings.talk(f"all nightly runs: {folder / INDEX}")
