"""nightly baseline: what nightly runs are held against, shown and changed."""

import os
from collections.abc import Iterable
from pathlib import Path

import click

from taco_launch.bench.history.history import History, Ladder, LadderKind, open_history
from taco_launch.bench.model.runs import when
from taco_launch.bench.nightly.baseline import ACCEPTED, REJECTED, WAITING, agreeing, entries, far_off
from taco_launch.bench.run.matrix_file import load, shipped
from taco_launch.bench.run.run_ladder import HEAD_LOST, INTERRUPTED
from taco_launch.cli.bench import ladder_output
from taco_launch.cli.bench.history import named_ladder
from taco_launch.cli.options.common import complete_file, settings_of, verb
from taco_launch.cli.options.suggestions import SuggestingGroup
from taco_launch.cli.output import render
from taco_launch.core.command import shell
from taco_launch.core.errors import TacoLaunchError, UsageError
from taco_launch.core.model.codec import to_json
from taco_launch.hosts.inventory.schema.names import did_you_mean, plain

# So many of the newest runs that count are what a nightly run is held against (JudgeRules.nights).
_LAST = 20


def unknown_nightly_run(name: str, known: Iterable[str]) -> UsageError:
    """Return the error of a name that no nightly run has; it tells the name that was meant, or those that there are."""
    there = sorted(set(known))
    hint = did_you_mean(name, there) or (f"known names: {', '.join(there)}" if there else "there is no nightly run yet")
    return UsageError(f"no such nightly run: {plain(name)}", hint)


@click.group(cls=SuggestingGroup)
def baseline() -> None:
    """Show and change the baseline of nightly runs.

    The baseline is the last accepted runs. A run in which nothing got slower and each cell has a sample is accepted
    automatically. One that is unsure or pending waits for `accept` or `reject`.
    """


@verb("show", group=baseline, inventory=True, output=True)
@click.argument("matrix", shell_complete=complete_file)
@ladder_output.db_option
def show(ctx: click.Context, /, matrix: str, *, db: Path | None) -> None:
    """List the nightly runs of MATRIX, newest first.

    MATRIX is a file or a name. COUNTS tells whether a run is in the baseline. After `reject` the outcome is `rejected`, after `accept` it is `accepted`. An `ok` run that does not count shows why:
    it started before a baseline reset, or was imported without --baseline. Runs that measured something far from the
    others are marked as outliers: they are not compared with, and `reject` removes them from the baseline.

    \b
    Example:
      taco-launch nightly baseline show taco
    """
    settings = settings_of(ctx)
    is_file = Path(matrix).is_file()
    name = load(matrix, os.environ).name if is_file else matrix
    cluster = settings.load().cluster
    with open_history(ladder_output.history_path(db), create=False) as history:
        found = entries(history, name, cluster)
        ladders = history.ladders(LadderKind.NIGHTLY_RUN)
    known = {one.matrix for one in ladders}
    if not (is_file or name in known or name in shipped()):
        raise unknown_nightly_run(name, known)
    none = f"no nightly run of {name} has ended on cluster {cluster}"
    others = sorted({one.cluster for one in ladders if one.matrix == name} - {cluster})
    if others and not found:
        raise TacoLaunchError(
            f"{none}; it ran on: {', '.join(map(plain, others))}", hint="name the inventory of that cluster with -i"
        )
    if settings.output in ("json", "yaml"):
        nightly_runs = [
            {**to_json(one.ladder), "outcome": one.outcome, "why_not": one.why_not, "outlier": one.outlier}
            for one in found
        ]
        render.data({"nightly_runs": nightly_runs}, settings.output)
        return
    if not found:
        settings.talk(none)
        return
    rows = [
        (
            one.ladder.id,
            when(one.ladder.started),
            one.outcome,
            "yes" if one.ladder.accepted else f"no{one.why_not and f': {one.why_not}'}",
            one.outlier,
        )
        for one in found
    ]
    render.table(("RUN", "STARTED", "OUTCOME", "COUNTS", "OUTLIER"), rows)


@verb("accept", group=baseline)
@click.argument("ladders", metavar="RUN...", nargs=-1, required=True)
@ladder_output.db_option
def accept(ctx: click.Context, /, ladders: tuple[str, ...], *, db: Path | None) -> None:
    """Add nightly runs to the baseline, whatever their verdict.

    RUN is the id of a nightly run, the start of one, or `last`, the newest of all nightly runs.

    \b
    Examples:
      taco-launch nightly baseline accept taco-3fa2c1
      taco-launch nightly baseline accept last
    """
    settings = settings_of(ctx)
    with open_history(ladder_output.history_path(db), create=False) as history:
        nightly_runs = {one.id: one for one in (_measured(history, ladder) for ladder in ladders)}
        for one in nightly_runs.values():
            history.accept(one.id, ACCEPTED if one.outcome in (REJECTED, *WAITING) else "")
        far = {one.id: told for one in nightly_runs.values() if (told := far_off(history, one))}
    settings.talk(f"the results of {', '.join(nightly_runs)} now count in the baseline")
    for ladder, told in far.items():
        words = ("nightly", "baseline", "reset", ladder, *(() if db is None else ("--db", str(db))))
        settings.talk(
            f"{ladder} is far from the other runs that count ({told}). Together with them it hides changes, or is left out as an "
            f"outlier. If it is the new normal, start the baseline over with it: {settings.typed} {shell(words)}"
        )


@verb("reject", group=baseline)
@click.argument("ladders", metavar="RUN...", nargs=-1, required=True)
@ladder_output.db_option
def reject(ctx: click.Context, /, ladders: tuple[str, ...], *, db: Path | None) -> None:
    """Remove nightly runs from the baseline.

    RUN is as in `nightly baseline accept`. What they measured is kept, and `accept` undoes this. Runs that wait and
    agree with the rest now are named, with the command that accepts them.

    \b
    Examples:
      taco-launch nightly baseline reject taco-3fa2c1
      taco-launch nightly baseline reject last
    """
    settings = settings_of(ctx)
    with open_history(ladder_output.history_path(db), create=False) as history:
        nightly_runs = {one.id: one for one in (_nightly_run(history, ladder) for ladder in ladders)}
        for ladder in nightly_runs:
            history.reject(ladder, REJECTED)
        of = dict.fromkeys((one.matrix, one.cluster) for one in nightly_runs.values())
        agree = {each: agreeing(history, *each) for each in of}
        waiting = [one for found in agree.values() for one in found]
        empty = [each for each, found in agree.items() if not found and not history.baseline(*each)]
    settings.talk(f"the results of {', '.join(nightly_runs)} do not count in the baseline")
    for matrix in dict.fromkeys(matrix for matrix, _cluster in empty):
        settings.talk(
            f"no nightly run of {matrix} counts now: the next runs wait until you accept those that are correct "
            f"({settings.typed} {shell(('nightly', 'baseline', 'show', matrix))})"
        )
    if waiting:
        words = ("nightly", "baseline", "accept", *waiting, *(() if db is None else ("--db", str(db))))
        told = f"{render.counted(len(waiting), 'waiting nightly run')} agree{'' if waiting[1:] else 's'} with the rest"
        settings.talk(f"{told}; to accept: {settings.typed} {shell(words)}")


@verb("reset", group=baseline)
@click.argument("ladder", metavar="RUN")
@ladder_output.db_option
def reset(ctx: click.Context, /, ladder: str, *, db: Path | None) -> None:
    """Start the baseline over at a nightly run.

    What it measured is the new normal; earlier runs do not count.

    RUN is as in `nightly baseline accept`. There is no verdict again until enough nightly runs count: three, with ten values.
    It prints the command that undoes this.

    \b
    Example:
      taco-launch nightly baseline reset taco-3fa2c1
    """
    settings = settings_of(ctx)
    with open_history(ladder_output.history_path(db), create=False) as history:
        one = _measured(history, ladder)
        gone = [each for each in history.baseline(one.matrix, one.cluster) if each.started < one.started]
        history.reset(one.started, one.matrix, one.cluster)
        history.accept(one.id)
    count = f"{render.counted(len(gone), 'nightly run')} before it no longer count{'s' if len(gone) == 1 else ''}"
    settings.talk(f"the baseline of {one.matrix} starts with {one.id}; {count}")
    undo = [("accept", *(each.id for each in gone[:_LAST]))] if gone else []
    undo += [] if one.accepted else [("reject", one.id)]
    more = () if db is None else ("--db", str(db))
    if undo:
        typed = " && ".join(f"{settings.typed} {shell(('nightly', 'baseline', *words, *more))}" for words in undo)
        settings.talk(f"undo it: {typed}")


def _measured(history: History, ladder: str) -> Ladder:
    """Return a nightly run that can be part of a baseline.

    Raises:
        UsageError: it measured nothing, or was interrupted.
    """
    one = _nightly_run(history, ladder)
    if not any(run.readings and not run.warm_up for _at, run in history.runs(one.id)):
        raise UsageError(f"{one.id} measured nothing that can count in a baseline")
    if one.outcome in (INTERRUPTED, HEAD_LOST):
        raise UsageError(f"{one.id} was interrupted: its results are incomplete and cannot count in a baseline")
    return one


def _nightly_run(history: History, ladder: str) -> Ladder:
    newest = history.ladders(LadderKind.NIGHTLY_RUN, limit=1) if ladder == "last" else ()
    one = newest[0] if newest else named_ladder(history, ladder)
    if one.kind is not LadderKind.NIGHTLY_RUN:
        what = f"made by {one.kind.value}, not by nightly run"
        raise UsageError(
            f"{one.id}: {what}",
            hint=f"nightly runs, and which of them count: taco-launch nightly baseline show {one.matrix}",
        )
    if one.ended is None:
        raise UsageError(f"{one.id} has not ended")
    return one
