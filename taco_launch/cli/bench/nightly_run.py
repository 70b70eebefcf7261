"""nightly run: one nightly run."""

import sys
from functools import partial
from pathlib import Path
from typing import Any

import click

from taco_launch.api.nightly import NightlyListener, NightlyOptions, run_nightly
from taco_launch.bench.nightly.summary import to_json
from taco_launch.bench.stats.estimates import require
from taco_launch.cli.bench import ladder_output
from taco_launch.cli.options.common import Seconds, access_of, add_option, complete_file, settings_of, verb
from taco_launch.cli.options.job_options import spec_of
from taco_launch.cli.output import render
from taco_launch.core.command import shell

bisect_option = add_option(
    "--bisect",
    is_flag=True,
    help="After a regression, measure the hosts to find the slow one, and apply the health policy of the inventory.",
)


def _undelivered(words: str) -> None:
    """Print it with -q as well: the person who did not get the message does not know."""
    click.echo(f"error: {render.printable(words)}", err=True)


@verb("run", access=True, output=True)
@click.argument("matrix", shell_complete=complete_file)
@add_option("--name", help="Name of the nightly run. Default: the matrix's name.")
@add_option(
    "--deadline",
    type=Seconds(0),
    default="1h",
    show_default=True,
    metavar="TIME",
    help="How long to wait for a busy cluster or an unreachable host.",
)
@add_option(
    "--keep-logs",
    type=Seconds(1),
    default="30d",
    show_default=True,
    metavar="TIME",
    help="Remove the logs of nightly runs that are older than this; their results stay.",
)
@add_option(
    "--junit", type=click.Path(dir_okay=False, path_type=Path), metavar="FILE", help="Write JUnit XML to FILE as well."
)
@add_option("--strict", is_flag=True, help="Exit with 6 also if a cell is unsure or pending.")
@bisect_option
@ladder_output.db_option
def run(ctx: click.Context, /, matrix: str, *, db: Path | None, **options: Any) -> int:
    """Measure MATRIX once and look for regressions.

    Waits until the cluster is free, measures each cell, repeats those that seem to have changed, and compares with earlier
    nightly runs. Prints one line, and writes a summary as Markdown, JSON and JUnit XML to nights/NAME in the state folder.
    Only one instance runs at a time; jobs of an interrupted run are stopped. Drained hosts are left out.

    With `--bisect`, a regression is followed by `check --level pairs` and `--level full` of its hosts: the summary names the slow host,
    and a policy (`health` in the inventory) drains it, so that the next run measures the others.

    \b
    Examples:
      taco-launch -i hosts.yaml nightly run taco
      taco-launch -i hosts.yaml nightly run my.yaml --deadline 3h --junit night.xml
      taco-launch -i hosts.yaml nightly run taco --bisect

    \b
    Exit codes: 0 nothing got slower, 6 a regression (with --strict also: a cell is unsure or pending), 5 the cluster is not fit
    (broken, busy or unreachable), 1 it failed: a cell has no sample, or it runs already, 2 the matrix or the inventory is
    wrong, 130 it was interrupted.
    """
    require()
    settings = settings_of(ctx)
    display = ladder_output.ProgressDisplay(settings, ())
    access = access_of(options)
    options.pop("ask_sudo_password")
    request = NightlyOptions(**options, history=db, again=shell(("taco-launch", *sys.argv[1:])))
    with ladder_output.endings(), display.teller() as teller:
        listener = NightlyListener(
            display.show_cells, teller.progress, teller.say, partial(render.warning, settings), _undelivered
        )
        result = run_nightly(
            settings.cluster(access), matrix, request, listener, partial(spec_of, settings, sized=False)
        )
    summary = result.summary
    if settings.output in ("json", "yaml"):
        render.data(to_json(summary), settings.output)
    else:
        click.echo(render.printable(result.line))
    if summary.outcome.waits:
        choice = f"{settings.typed} nightly baseline accept|reject|reset {summary.ladder}"
        render.warning(settings, f"the baseline stays unchanged until you decide: {choice}")
    return summary.exit_code
