"""bench report, bench plot: a sweep as a page for people, and as a figure."""

import json
from pathlib import Path
from types import ModuleType

import click

from taco_launch.bench.history.history import History, Ladder
from taco_launch.bench.report.sweep_report import Sweep, SweepReport
from taco_launch.bench.report.sweep_report import report as report_of
from taco_launch.cli.bench import ladder_output
from taco_launch.cli.bench.history import complete_ladder, named_ladder, opened
from taco_launch.cli.options.common import add_option, complete_file, settings_of, verb
from taco_launch.core.errors import TacoLaunchError, UsageError
from taco_launch.core.model.codec import to_json

# So many sweeps of the same matrix are shown beside one.
_MOST_BEFORE = 30


def _sweep_options(function: "click.decorators.FC") -> "click.decorators.FC":
    function = add_option(
        "--baseline",
        metavar="VARIANT",
        default="",
        help="Compare the other variants with this one. Default: the first by name.",
    )(function)
    return click.argument("sweep", metavar="[SWEEP]", default="last", shell_complete=complete_ladder)(function)


@verb("report")
@ladder_output.db_option
@_sweep_options
@add_option(
    "--to",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE",
    shell_complete=complete_file,
    help="Write the report to FILE. Default: SWEEP.html here; Markdown and JSON are printed.",
)
@add_option(
    "--format",
    "format_",
    type=click.Choice(["html", "md", "json"]),
    default="html",
    show_default=True,
    help="Format of the report.",
)
@add_option(
    "--language", type=click.Choice(["en", "zh"]), default="en", show_default=True, help="Language of its headings."
)
def report(
    ctx: click.Context, /, *, sweep: str, db: Path | None, baseline: str, to: Path | None, format_: str, language: str
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
    summary = _report(db, sweep, baseline)
    if format_ == "json":
        text = json.dumps(to_json(summary), indent=2) + "\n"
    else:
        page = _drawing()
        text = page.html(summary, language) if format_ == "html" else page.markdown(summary, language)
    if to is None and format_ != "html":
        click.echo(text, nl=False)
        return
    path = to or Path(f"{summary.ladder.id}.html")
    _write(path, text.encode())
    settings_of(ctx).talk(f"wrote {path}")


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
    figure = _drawing().figure
    if file.suffix not in figure.FORMATS:
        raise UsageError(
            f"{file}: the end of the name is no format of a figure", hint=f"use {', '.join(figure.FORMATS)}"
        )
    if not summary.measured:
        raise TacoLaunchError(f"sweep {summary.ladder.id} has no samples to draw")
    _write(file, figure.drawn(summary.measured, summary.noun, file.suffix))
    settings_of(ctx).talk(f"wrote {file}")


def _report(db: Path | None, name: str, baseline: str) -> SweepReport:
    with opened(db) as history:
        ladder = named_ladder(history, name)
        earlier = [one for one in history.ladders() if one.matrix == ladder.matrix and one.started < ladder.started]
        before = sorted(earlier, key=lambda one: one.started)[-_MOST_BEFORE:]
        sweep = _sweep(history, ladder)
        variants = {run.cell.variant for run in sweep.runs}
        if baseline and baseline not in variants:
            raise UsageError(
                f"--baseline {baseline}: not in sweep {ladder.id}", hint=f"it has {', '.join(sorted(variants))}"
            )
        return report_of(sweep, [_sweep(history, one) for one in before], history.verdicts(ladder.id), baseline)


def _sweep(history: History, ladder: Ladder) -> Sweep:
    return Sweep(ladder, tuple(run for _position, run in history.runs(ladder.id)))


def _drawing() -> ModuleType:
    """Import and return bench.report.page.

    Raises:
        TacoLaunchError: what draws is not installed.
    """
    try:
        from taco_launch.bench.report import page  # noqa: PLC0415 - an extra
    except ModuleNotFoundError as error:
        raise TacoLaunchError(f"reports need {error.name}", "pip install 'taco-launch[bench]'") from error
    return page


def _write(path: Path, data: bytes) -> None:
    try:
        path.write_bytes(data)
    except OSError as error:
        raise TacoLaunchError(f"{path}: {error.strerror}") from None


VERBS = (report, plot)
