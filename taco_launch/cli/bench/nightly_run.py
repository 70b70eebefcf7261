"""nightly run: one nightly run."""

import contextlib
import fcntl
import json
import os
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import click

from taco_launch.agent.store.folders import make_private, private, write_private
from taco_launch.bench.history.history import LadderKind, open_history
from taco_launch.bench.model.ladder import order
from taco_launch.bench.model.matrix import Matrix
from taco_launch.bench.nightly import record
from taco_launch.bench.nightly.install import check_name
from taco_launch.bench.nightly.junit import junit as junit_xml
from taco_launch.bench.nightly.record import LOCK, LastRun, folder, usual_seconds
from taco_launch.bench.nightly.summary import NightlyOutcome, Summary, line, markdown, to_json
from taco_launch.bench.run import run_ladder as ladders
from taco_launch.bench.stats.estimates import require
from taco_launch.bench.stats.verdicts import JudgeRules
from taco_launch.cli.bench import ladder_output, matrix_jobs
from taco_launch.cli.options.common import (
    Seconds,
    Settings,
    access_of,
    add_option,
    backend_output_options,
    complete_file,
    settings_of,
)
from taco_launch.cli.output import render
from taco_launch.core.command import shell
from taco_launch.core.errors import FAILED, HostError, TacoLaunchError, UsageError


@click.command("run")
@backend_output_options
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
@add_option("--junit", type=click.Path(dir_okay=False), metavar="FILE", help="Write JUnit XML to FILE as well.")
@add_option("--strict", is_flag=True, help="Exit with 6 also if a cell is unsure or pending.")
@ladder_output.db_option
@click.pass_context
def run(ctx: click.Context, /, matrix: str, *, name: str | None, junit: str | None, **options: Any) -> int:
    """Measure MATRIX once and look for regressions.

    Waits until the cluster is free, measures each cell, repeats those that seem to have changed, and compares with earlier
    nightly runs. Prints one line, and writes a summary as Markdown, JSON and JUnit XML to nights/NAME in the state folder.
    Only one instance runs at a time; jobs of an interrupted run are stopped.

    \b
    Examples:
      taco-launch -i hosts.yaml nightly run taco
      taco-launch -i hosts.yaml nightly run my.yaml --deadline 3h --junit night.xml

    \b
    Exit codes: 0 nothing got slower, 6 a regression (with --strict also: a cell is unsure or pending), 5 the cluster is not fit
    (broken, busy or unreachable), 1 it failed: a cell has no sample, or it runs already, 2 the matrix or the inventory is
    wrong, 130 it was interrupted.
    """
    from taco_launch.bench.run.matrix_file import load  # noqa: PLC0415 - pydantic takes long to import

    settings = settings_of(ctx)
    require()
    if junit is not None:
        _check_junit(Path(junit))
    # With a name, the record shows that the matrix is wrong; without one, the nightly run cannot be identified.
    known = None if name else load(matrix, os.environ)
    run_name = known.name if known is not None else str(name)
    check_name(run_name)
    place = folder(os.environ, os.geteuid(), run_name)
    with _exclusive_lock(place, run_name):
        begun = LastRun(time.time(), os.getpid(), before=usual_seconds(place))
        with _kept(place, begun, run_name, junit) as keep:
            try:
                summary = _measured(settings, known or load(matrix, os.environ), run_name, options)
            except KeyboardInterrupt:  # before anything was prepared
                nothing = "nothing was measured"
                summary = Summary(run_name, run_name, "", "not-begun", begun.started, time.time(), interrupted=nothing)
            if summary.interrupted:
                summary = _interrupted(settings, summary, options["db"])
            path = _write(place, summary, junit)
            words, code = line(summary, str(path)), summary.exit_code
            keep(replace(begun, exit_code=code, outcome=summary.outcome.value, line=words, summary=str(path)))
    if settings.output in ("json", "yaml"):
        render.data(to_json(summary), settings.output)
    else:
        click.echo(render.printable(words))
    if summary.outcome.waits:
        choice = f"{settings.typed} nightly baseline accept|reject|reset {summary.ladder}"
        render.warning(settings, f"the baseline stays unchanged until you decide: {choice}")
    return code


def _check_junit(path: Path) -> None:
    """See before anything is measured that the file can be written.

    Raises:
        UsageError: it cannot.
    """
    folder = path.absolute().parent
    if not folder.is_dir():
        raise UsageError(f"--junit {path}: there is no folder {folder}", hint=shell(("mkdir", "-p", str(folder))))
    if not os.access(path if path.exists() else folder, os.W_OK):
        raise UsageError(f"--junit {path}: {path if path.exists() else folder} is not writable")


def _measured(settings: Settings, found: Matrix, run_name: str, options: dict[str, Any]) -> Summary:
    from taco_launch.bench.nightly import run as flow  # noqa: PLC0415 - scipy is an extra

    inventory, access = settings.load(), access_of(options)
    ladder_output.warn_of_few_repeats(settings, found.repeats, nightly=True)
    made = matrix_jobs.prepared(settings, found, (), access)
    specs, around = made.specs, made.around
    seed = ladder_output.new_seed() if found.seed is None else found.seed
    digest = ladders.digest(LadderKind.NIGHTLY_RUN, found, specs)
    one = ladder_output.new_ladder(found.name, LadderKind.NIGHTLY_RUN, digest, seed, inventory.cluster)
    steps = order(tuple(specs), found.repeats, found.warm_ups, seed)
    logs = ladder_output.ladders_folder()
    plan = ladders.LadderPlan(one, steps, specs, matrix_jobs.reader(found), logs / one.id, found.time_budget)
    asked = flow.RunRequest(
        run_name, found, options["deadline"], JudgeRules(min_effect=found.min_effect), made.lacking, options["strict"]
    )
    with (
        open_history(ladder_output.history_path(options["db"])) as history,
        ladder_output.endings(),
        ladder_output.ProgressDisplay(settings, tuple(specs)).teller() as teller,
    ):
        before = time.time() - options["keep_logs"]
        cleared = flow.clear_logs(history, found.name, inventory.cluster, logs, before)
        if cleared:
            settings.talk(f"logs of {cleared} nightly runs were removed")
        try:
            return flow.run(made.cluster.backend, inventory, plan, asked, history, around, os.environ, teller)
        except HostError as error:
            return flow.failure_summary(plan, asked, error.message)
        except KeyboardInterrupt:
            return flow.failure_summary(plan, asked, "")


def _interrupted(settings: Settings, summary: Summary, db: Path | None) -> Summary:
    """Add to the summary of a nightly run that was interrupted where what is kept is shown, and how to run it again."""
    words = ("bench", "show", summary.ladder, *(() if db is None else ("--db", str(db))))
    kept = f": {settings.typed} {shell(words)}" if summary.judged or summary.failed else ""
    again = shell(("taco-launch", *sys.argv[1:]))
    why = f"{summary.interrupted}{kept}; the run does not count in the baseline; run it again: {again}"
    return replace(summary, interrupted=why)


@contextlib.contextmanager
def _exclusive_lock(place: Path, run_name: str) -> Iterator[None]:
    """Have the nightly run run once at a time.

    Raises:
        TacoLaunchError: it runs already.
    """
    make_private(place)
    with open(place / LOCK, "a", encoding="ascii", opener=private) as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise TacoLaunchError(
                f"nightly run {run_name} is already running{_who(place)}",
                hint="what it has measured so far: taco-launch bench show",
            ) from None
        yield


def _who(place: Path) -> str:
    """Name the process that runs a nightly run and its start, "" where it has not written them yet."""
    with contextlib.suppress(TacoLaunchError):
        last = record.read(place, LastRun)
        if last is not None and last.ended is None:
            began = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(last.started))
            return f": process {last.pid}, since {began}"
    return ""


@contextlib.contextmanager
def _kept(place: Path, begun: LastRun, run_name: str, junit: str | None) -> Iterator[Callable[[LastRun], None]]:
    """Keep that a nightly run runs, and how it ended however that was; what is given takes how it ended well."""
    record.write(place, begun)
    ended = replace(
        begun,
        exit_code=FAILED,
        outcome=NightlyOutcome.FAILED.value,
        line=f"nightly {run_name}: FAILED: an error in taco-launch itself",
    )

    def keep(last: LastRun) -> None:
        nonlocal ended
        ended = last

    try:
        yield keep
    except TacoLaunchError as error:
        words = f"nightly {run_name}: FAILED: {render.one_line(error.message)}"
        keep(replace(ended, exit_code=error.exit_code, line=words))
        # What a CI system or a person looks at must not be of another nightly run.
        broken = Summary(run_name, run_name, "", "not-begun", begun.started, time.time(), broken=error.message)
        with contextlib.suppress(TacoLaunchError):
            keep(replace(ended, summary=str(_write(place, broken, junit))))
        raise
    finally:
        record.write(place, replace(ended, ended=time.time()))


def _write(place: Path, summary: Summary, junit: str | None) -> Path:
    """Write a summary in its three forms, and give the path of the one to read."""
    stem = f"{time.strftime('%Y-%m-%d', time.localtime(summary.started))}-{summary.ladder}"
    texts = {
        ".md": markdown(summary),
        ".json": json.dumps(to_json(summary), indent=2) + "\n",
        ".xml": junit_xml(summary),
    }
    try:
        for suffix, text in texts.items():
            write_private(place / f"{stem}{suffix}", text)
        if junit is not None:
            Path(junit).write_text(texts[".xml"], encoding="utf-8")
    except OSError as error:
        raise TacoLaunchError(f"the summary cannot be written: {error.filename}: {error.strerror}") from None
    return place / f"{stem}.md"
