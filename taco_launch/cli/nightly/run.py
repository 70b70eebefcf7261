"""nightly run and nightly baseline: one nightly run, and what later nightly runs are held against."""

import contextlib
import fcntl
import json
import os
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from taco_launch.cli.bench import ladder_output, matrix_jobs
from taco_launch.cli.options.common import (
    Seconds,
    access_of,
    access_options,
    add_option,
    complete_file,
    inventory_option,
    output_options,
    settings_of,
    talk_options,
)
from taco_launch.cli.options.suggestions import SuggestingGroup
from taco_launch.cli.output import render
from taco_launch.errors import FAILED, INTERRUPTED, HostError, TacoLaunchError, UsageError

if TYPE_CHECKING:
    from collections.abc import Callable

    from taco_launch.bench.history.history import History, Ladder
    from taco_launch.bench.matrix import Matrix
    from taco_launch.cli.options.common import Settings
    from taco_launch.nightly.record import LastRun
    from taco_launch.nightly.summary import Summary


@click.command("run")
@inventory_option
@output_options
@talk_options
@access_options
@click.argument("matrix", shell_complete=complete_file)
@add_option("--name", help="What the nightly run is called. Default: the matrix's name.")
@add_option(
    "--deadline",
    type=Seconds(0),
    default="1h",
    show_default=True,
    metavar="TIME",
    help="How long a cluster that is busy, or a host that does not answer, is waited for.",
)
@add_option(
    "--keep-logs",
    type=Seconds(1),
    default="30d",
    show_default=True,
    metavar="TIME",
    help="Remove the logs of nightly runs that are older. What they measured stays.",
)
@add_option("--junit", type=click.Path(dir_okay=False), metavar="FILE", help="Write JUnit XML to FILE as well.")
@add_option("--strict", is_flag=True, help="Exit with 6 as well where a cell is unsure or pending.")
@ladder_output.db_option
@click.pass_context
def run(ctx: click.Context, /, matrix: str, *, name: str | None, junit: str | None, **options: Any) -> int:
    """Measure MATRIX once, and judge whether anything got slower than in the nightly runs before.

    Waits until the cluster is free, measures each cell, measures those again that seem to have changed, and judges. What
    it writes: one line on stdout, and a summary as Markdown, JSON and JUnit XML in nights/NAME of the state folder. It
    never runs twice at a time, and ends what a nightly run that broke off has left.

    \b
    Examples:
      taco-launch -i hosts.yaml nightly run taco
      taco-launch -i hosts.yaml nightly run my.yaml --deadline 3h --junit night.xml

    \b
    Exit codes: 0 nothing got slower, 6 something did (with --strict also: a cell is unsure or pending), 5 the cluster is not fit (broken, busy, or it does not answer),
    1 it failed: a cell has no sample, or it runs already, 2 the matrix or the inventory is wrong, 130 somebody ended it.
    """
    from taco_launch.bench.stats.estimates import require
    from taco_launch.nightly.install import check_name
    from taco_launch.nightly.record import LastRun, folder
    from taco_launch.request.documents.matrix_file import load

    settings = settings_of(ctx)
    require()
    # A nightly run that has a name keeps that its matrix is wrong; without one nobody knows which night it was to be.
    known = None if name else load(matrix, os.environ)
    night = known.name if known is not None else str(name)
    check_name(night)
    place = folder(os.environ, os.geteuid(), night)
    with _exclusive_lock(place, night):
        begun = LastRun(time.time(), os.getpid())
        with _kept(place, begun, night, junit) as keep:
            summary = _measured(settings, known or load(matrix, os.environ), night, options)
            path = _write(place, summary, junit)
            from taco_launch.nightly.summary import line, to_json

            words, code = line(summary, str(path)), summary.exit_code
            keep(replace(begun, exit_code=code, outcome=summary.outcome.value, line=words, summary=str(path)))
    if settings.output in ("json", "yaml"):
        render.data(to_json(summary), settings.output)
    else:
        click.echo(render.printable(words))
    if summary.outcome.waits:
        choice = f"{settings.typed} nightly baseline accept|reject|reset {summary.ladder}"
        render.warning(settings, f"the baseline is as it was until you decide: {choice}")
    return code


def _measured(settings: "Settings", found: "Matrix", night: str, options: dict[str, Any]) -> "Summary":
    from taco_launch.bench.history.history import LadderKind, open_history
    from taco_launch.bench.ladder import order
    from taco_launch.bench.stats.judge import JudgeRules
    from taco_launch.flows import ladder as ladders
    from taco_launch.nightly import run

    inventory, access = settings.load(), access_of(options)
    made = matrix_jobs.prepared(settings, found, (), access)
    specs, around = made.specs, made.around
    seed = ladder_output.new_seed() if found.seed is None else found.seed
    digest = ladders.digest(LadderKind.NIGHT, found, specs)
    one = ladder_output.new_ladder(found.name, LadderKind.NIGHT, digest, seed, inventory.cluster)
    steps = order(tuple(specs), found.repeats, found.warm_ups, seed)
    logs = ladder_output.ladders_folder()
    plan = ladders.LadderPlan(one, steps, specs, matrix_jobs.reader(found), logs / one.id, found.time_budget)
    asked = run.RunRequest(
        night, found, options["deadline"], JudgeRules(min_effect=found.min_effect), made.lacking, options["strict"]
    )
    with (
        open_history(ladder_output.history_path(options["db"])) as history,
        ladder_output.endings(),
        ladder_output.ProgressDisplay(settings, tuple(specs)).teller() as teller,
    ):
        before = time.time() - options["keep_logs"]
        cleared = run.clear_logs(history, found.name, inventory.cluster, logs, before)
        if cleared:
            settings.talk(f"logs of {cleared} nightly runs were removed")
        try:
            return run.run(made.cluster.backend, inventory, plan, asked, history, around, os.environ, teller)
        except HostError as error:
            return run.unfit(plan, asked, error.message)


@contextlib.contextmanager
def _exclusive_lock(place: Path, night: str) -> Iterator[None]:
    """Have the night run once at a time.

    Raises:
        TacoLaunchError: it runs already.
    """
    from taco_launch.agent.store.folders import make_private, private
    from taco_launch.nightly.record import LOCK

    make_private(place)
    with open(place / LOCK, "a", encoding="ascii", opener=private) as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise TacoLaunchError(
                f"nightly run {night} is already running", hint="what it has measured so far: taco-launch bench show"
            ) from None
        yield


@contextlib.contextmanager
def _kept(place: Path, begun: "LastRun", night: str, junit: str | None) -> "Iterator[Callable[[LastRun], None]]":
    """Keep that a nightly run runs, and how it ended however that was; what is given takes how it ended well."""
    from taco_launch.nightly import record
    from taco_launch.nightly.summary import NightlyOutcome, Summary

    record.write(place, begun)
    ended = replace(
        begun,
        exit_code=FAILED,
        outcome=NightlyOutcome.FAILED.value,
        line=f"nightly {night}: FAILED: a fault of its own",
    )

    def keep(last: "LastRun") -> None:
        nonlocal ended
        ended = last

    try:
        yield keep
    except TacoLaunchError as error:
        words = f"nightly {night}: FAILED: {render.one_line(error.message)}"
        keep(replace(ended, exit_code=error.exit_code, line=words))
        # What a CI system or a person looks at must not be of another night.
        broken = Summary(night, night, "", "not-begun", begun.started, time.time(), broken=error.message)
        with contextlib.suppress(TacoLaunchError):
            keep(replace(ended, summary=str(_write(place, broken, junit))))
        raise
    except KeyboardInterrupt:
        keep(replace(ended, exit_code=INTERRUPTED, line=f"nightly {night}: FAILED: interrupted"))
        raise
    finally:
        record.write(place, replace(ended, ended=time.time()))


def _write(place: Path, summary: "Summary", junit: str | None) -> Path:
    """Write a summary in its three forms, and give the path of the one to read."""
    from taco_launch.agent.store.folders import write_private
    from taco_launch.nightly.junit import junit as junit_xml
    from taco_launch.nightly.summary import markdown, to_json

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


@click.group(cls=SuggestingGroup)
def baseline() -> None:
    """See and change what nightly runs are held against: the last nightly runs that were accepted.

    A nightly run in which nothing got slower and each cell has a sample is accepted by itself. One that is unsure or
    pending waits for `accept` or `reject`.
    """


@baseline.command("show")
@inventory_option
@output_options
@talk_options
@click.argument("matrix", shell_complete=complete_file)
@ladder_output.db_option
@click.pass_context
def show(ctx: click.Context, /, matrix: str, *, db: Path | None) -> None:
    """List the nightly runs of MATRIX, its file or its name, that count, wait for a decision or were rejected, the newest first.

    Those that measured something far from the others are marked as outliers: nothing is held against them, and `reject`
    removes them from the baseline.

    \b
    Example:
      taco-launch nightly baseline show taco
    """
    from taco_launch.bench.history.history import open_history
    from taco_launch.model.codec import to_json
    from taco_launch.nightly import baseline
    from taco_launch.request.documents.matrix_file import load

    settings = settings_of(ctx)
    name = load(matrix, os.environ).name if Path(matrix).is_file() else matrix
    with open_history(ladder_output.history_path(db), create=False) as history:
        found = baseline.entries(history, name, settings.load().cluster)
    if settings.output in ("json", "yaml"):
        nights = [{**to_json(one.ladder), "outlier": one.outlier} for one in found]
        render.data({"nights": nights}, settings.output)
        return
    if not found:
        settings.talk(f"no nightly run of {name} counts on cluster {settings.load().cluster}")
        return
    rows = [
        (
            one.ladder.id,
            _at(one.ladder.started),
            one.ladder.outcome,
            "yes" if one.ladder.accepted else "no",
            one.outlier,
        )
        for one in found
    ]
    render.table(("LADDER", "STARTED", "OUTCOME", "COUNTS", "OUTLIER"), rows)


@baseline.command("accept")
@talk_options
@click.argument("ladder")
@ladder_output.db_option
@click.pass_context
def accept(ctx: click.Context, /, ladder: str, *, db: Path | None) -> None:
    """Have the nightly run LADDER count in the baseline, whatever was judged of it: it was a false alarm.

    LADDER is an id, the start of one, or `last`, the newest of all nights.

    \b
    Examples:
      taco-launch nightly baseline accept taco-3fa2c1
      taco-launch nightly baseline accept last
    """
    from taco_launch.bench.history.history import open_history

    with open_history(ladder_output.history_path(db), create=False) as history:
        one = _night(history, ladder)
        history.accept(one.id)
    settings_of(ctx).talk(f"what {one.id} measured counts in the baseline")


@baseline.command("reject")
@talk_options
@click.argument("ladder")
@ladder_output.db_option
@click.pass_context
def reject(ctx: click.Context, /, ladder: str, *, db: Path | None) -> None:
    """Have the nightly run LADDER count in no baseline: something was wrong with it.

    LADDER is as in `nightly baseline accept`. What it measured is kept, and `accept` undoes this.

    \b
    Examples:
      taco-launch nightly baseline reject taco-3fa2c1
      taco-launch nightly baseline reject last
    """
    from taco_launch.bench.history.history import open_history
    from taco_launch.nightly.baseline import REJECTED

    with open_history(ladder_output.history_path(db), create=False) as history:
        one = _night(history, ladder)
        history.reject(one.id, REJECTED)
    settings_of(ctx).talk(f"what {one.id} measured does not count in the baseline")


@baseline.command("reset")
@talk_options
@click.argument("ladder")
@ladder_output.db_option
@click.pass_context
def reset(ctx: click.Context, /, ladder: str, *, db: Path | None) -> None:
    """Have the baseline start with the nightly run LADDER: what it measured is the new normal, and nightly runs before it do not count.

    LADDER is as in `nightly baseline accept`. There is no verdict again until enough nightly runs count: three, with ten values.

    \b
    Example:
      taco-launch nightly baseline reset taco-3fa2c1
    """
    from taco_launch.bench.history.history import open_history

    with open_history(ladder_output.history_path(db), create=False) as history:
        one = _night(history, ladder)
        if not any(run.readings and not run.warm_up for _at, run in history.runs(one.id)):
            raise UsageError(f"{one.id} has measured nothing that a baseline could start with")
        gone = [each for each in history.baseline(one.matrix, one.cluster) if each.started < one.started]
        history.reset(one.started, one.matrix, one.cluster)
        history.accept(one.id)
    count = f"{len(gone)} night{'' if len(gone) == 1 else 's'} before it count no longer"
    settings_of(ctx).talk(f"the baseline of {one.matrix} starts with {one.id}; {count}")


def _night(history: "History", ladder: str) -> "Ladder":
    from taco_launch.bench.history.history import LadderKind
    from taco_launch.cli.bench.history import named_ladder

    newest = history.ladders(LadderKind.NIGHT, limit=1) if ladder == "last" else ()
    one = newest[0] if newest else named_ladder(history, ladder)
    if one.kind is not LadderKind.NIGHT:
        what = f"made by {one.kind.value}, not by nightly run"
        raise UsageError(f"{one.id}: {what}", hint=f"nights that count: taco-launch nightly baseline show {one.matrix}")
    if one.ended is None:
        raise UsageError(f"{one.id} has not ended")
    return one


def _at(moment: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M", time.localtime(moment))
