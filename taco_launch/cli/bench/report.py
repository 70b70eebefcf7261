"""bench report, bench plot: a sweep as a page for people, and as a figure."""

import json
import shlex
from pathlib import Path

import click

from taco_launch.bench.report.extra import load
from taco_launch.bench.report.markdown import markdown
from taco_launch.bench.report.read_history import read
from taco_launch.bench.report.sweep_report import SweepReport
from taco_launch.cli.bench import ladder_output
from taco_launch.cli.bench.history import complete_ladder, named_ladder, opened
from taco_launch.cli.options.common import add_option, complete_file, settings_of, verb
from taco_launch.core.errors import TacoLaunchError, UsageError
from taco_launch.core.model.codec import to_json

_FORMATS = ("html", "md", "json")


def _sweep_options(function: "click.decorators.FC") -> "click.decorators.FC":
    function = add_option(
        "--baseline",
        metavar="VARIANT",
        default="",
        help="Compare the other variants with this one. Default: the first one of the matrix.",
    )(function)
    return click.argument("sweep", metavar="[SWEEP]", default="last", shell_complete=complete_ladder)(function)


to_option = add_option(
    "--to",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE",
    shell_complete=complete_file,
    help="Write the report to FILE. Default: a page named after it here; Markdown and JSON are printed.",
)
format_option = add_option(
    "--format",
    "format_",
    type=click.Choice(_FORMATS),
    help="Format of the report. Default: the extension of FILE, else html.",
)
language_option = add_option(
    "--language", type=click.Choice(["en", "zh"]), default="en", show_default=True, help="Language of its headings."
)


@verb("report")
@ladder_output.db_option
@_sweep_options
@to_option
@format_option
@language_option
def report(
    ctx: click.Context,
    /,
    *,
    sweep: str,
    db: Path | None,
    baseline: str,
    to: Path | None,
    format_: str | None,
    language: str,
) -> None:
    """Write the report of SWEEP as one page.

    The page opens in any browser, without a network. It shows the verdict first, then rate and linear speedup over ranks as a figure and as tables, slow hosts, the same cells
    in earlier sweeps, and what changed between them. SWEEP is as in `bench show`.

    \b
    Examples:
      taco-launch bench report
      taco-launch bench report taco-88ab01 --to taco.html
      taco-launch bench report --format md >> results.md
    """
    format_ = report_format(format_, to)
    summary = _report(db, sweep, baseline)
    if format_ == "json":
        text = json.dumps(to_json(summary), indent=2) + "\n"
    else:
        text = load("page").html(summary, language) if format_ == "html" else markdown(summary, language)
    if to is None and format_ != "html":
        click.echo(text, nl=False)
        return
    path = to or Path(f"{summary.ladder.id}.html")
    write(path, text.encode())
    settings_of(ctx).talk(f"wrote {path}")


def report_format(given: str | None, to: Path | None) -> str:
    """Return the format of a report: the given one, else that of the file's ending.

    Raises:
        UsageError: the ending is no format.
    """
    ending = "" if to is None else to.suffix.removeprefix(".")
    if given is None and ending and ending not in _FORMATS:
        raise UsageError(
            f"--to {to}: .{ending} is not a format of a report",
            hint=f"use .html, .md or .json, or add --format html for the file {to}",
        )
    return given or ending or "html"


@verb("plot")
@ladder_output.db_option
@click.argument("file", type=click.Path(dir_okay=False, path_type=Path), shell_complete=complete_file)
@_sweep_options
def plot(ctx: click.Context, /, *, file: Path, sweep: str, db: Path | None, baseline: str) -> None:
    """Draw SWEEP as a figure.

    It shows rate and linear speedup over ranks, with intervals. The end of FILE is its format: .svg, .png or .pdf.

    \b
    Examples:
      taco-launch bench plot scaling.svg
      taco-launch bench plot scaling.pdf taco-88ab01
    """
    summary = _report(db, sweep, baseline)
    figure = load("figure")
    if file.suffix not in figure.FORMATS:
        raise UsageError(
            f"{file}: the end of the name is no format of a figure", hint=f"use {', '.join(figure.FORMATS)}"
        )
    if not summary.measured:
        raise TacoLaunchError(f"sweep {summary.ladder.id} has no samples to draw")
    write(file, figure.drawn(summary.measured, summary.noun, file.suffix))
    settings_of(ctx).talk(f"wrote {file}")


def _report(db: Path | None, name: str, baseline: str) -> SweepReport:
    with opened(db) as history:
        return read(history, named_ladder(history, name), baseline)


def write(path: Path, data: bytes) -> None:
    """Write a file that a user names.

    Raises:
        TacoLaunchError: it cannot be written.
    """
    try:
        path.write_bytes(data)
    except OSError as error:
        hint = None if path.parent.is_dir() else f"create its folder first: mkdir -p {shlex.quote(str(path.parent))}"
        raise TacoLaunchError(f"{path}: {error.strerror}", hint) from None


VERBS = (report, plot)
