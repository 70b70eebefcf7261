"""bench history, show, diff: what was measured before, and what differs between two measurings."""

import functools
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from statistics import fmean
from typing import Any, NamedTuple

import click
from click.shell_completion import CompletionItem

from taco_launch.bench.compare.compare import Comparison, MetricChange, compare
from taco_launch.bench.compare.tables import change, shows
from taco_launch.bench.history.history import History, Ladder, open_history
from taco_launch.bench.history.series import Point, SeriesQuery
from taco_launch.bench.model.runs import Cell, Measurement, Run, when
from taco_launch.cli.bench import ladder_output
from taco_launch.cli.options.common import add_option, settings_of, verb
from taco_launch.cli.output import render
from taco_launch.core.errors import TacoLaunchError, UsageError
from taco_launch.core.model.codec import to_json
from taco_launch.hosts.inventory.ranges import fold

# Stands for the newest ladder.
_NEWEST = "last"
# So many ladders are offered while somebody types.
_OFFERED = 200


def complete_ladder(ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Offer the ladders of the history, the newest first, with what they are."""
    try:
        with open_history(ladder_output.history_path(ctx.params.get("db")), create=False, busy=1.0) as history:
            found = history.ladders(limit=_OFFERED)
    except TacoLaunchError:
        return []
    return [
        CompletionItem(ladder.id, help=f"{render.printable(ladder.matrix)}, {when(ladder.started)}")
        for ladder in found
        if ladder.id.startswith(incomplete)
    ]


@verb("history", output=True)
@ladder_output.db_option
@add_option("--matrix", metavar="NAME", help="Only sweeps of this matrix.")
@add_option("--workload", metavar="NAME", help="Only this workload.")
@add_option("--variant", metavar="NAME", help="Only this variant.")
@add_option("--np", "ranks", type=click.IntRange(min=1), metavar="N", help="Only this number of ranks.")
@add_option(
    "--host", "hosts", multiple=True, metavar="HOST", help="Only runs on this host. Repeatable; all must match."
)
@add_option("--metric", metavar="NAME", help="Only this metric, such as 'busbw 8388608 B'.")
@add_option(
    "--last",
    type=click.IntRange(min=1),
    default=10,
    show_default=True,
    metavar="N",
    help="Show only the newest N sweeps.",
)
def history(ctx: click.Context, /, db: Path | None, **asked: Any) -> int:
    """Show the results of cells over time, oldest first.

    Of each sweep: how many values count (those of complete rounds, without warm-ups), their mean, least and greatest, and how the mean changed
    against the sweep before. Whether a change means anything is for `bench diff` and `nightly` to say.

    \b
    Examples:
      taco-launch bench history
      taco-launch bench history --variant rdma --np 16 --last 30
      taco-launch bench history --matrix taco --host gpu3 --json
    """
    with opened(db) as found:
        points = found.series(SeriesQuery(**asked))
        any_ladder = points or found.ladders(limit=1)
    settings = settings_of(ctx)
    if settings.output in ("json", "yaml"):
        render.data({"points": to_json(points)}, settings.output)
        return 0
    if not points:
        settings.talk(
            "no measured run matches; taco-launch bench show lists the runs of a sweep, warm-ups included"
            if any_ladder
            else "the history is empty"
        )
        return 0
    header = ["WORKLOAD", "VARIANT", "RANKS", "HOSTS", "METRIC", "SWEEP", "STARTED", "N", "MEAN", "LEAST", "GREATEST"]
    render.table([*header, "CHANGE"], _history_rows(points), numbers=(*header[7:], "RANKS", "CHANGE"))
    return 0


def _history_rows(points: Sequence[Point]) -> list[list[str]]:
    rows = []
    means: dict[Any, float] = {}
    for point in points:
        of = (point.matrix, point.cell, point.hosts, point.gpu, point.metric)
        change = f"{point.mean / means[of] - 1:+.1%}" if of in means else "-"
        means[of] = point.mean
        numbers = [_number(value) for value in (point.mean, point.least, point.greatest)]
        where = [_folded(point.hosts), _metric(point.metric.name, point.metric.unit), point.ladder]
        rows.append([*_words(point.cell), *where, when(point.started), str(point.count), *numbers, change])
    return rows


@verb("show", output=True)
@ladder_output.db_option
@click.argument("ladder", metavar="[SWEEP]", default=_NEWEST, shell_complete=complete_ladder)
def show(ctx: click.Context, ladder: str, db: Path | None) -> int:
    """Show the runs of SWEEP: results, hosts and logs.

    SWEEP is an id, the start of one, or `last`, the newest, which is the default. Of a nightly run, its verdicts too.
    -o wide has a line for each reading, JSON also what each run was made on.

    \b
    Examples:
      taco-launch bench show
      taco-launch bench show lab-3f2a1c -o wide
    """
    settings = settings_of(ctx)
    with opened(db) as found:
        one = named_ladder(found, ladder)
        runs, verdicts = found.runs(one.id), found.verdicts(one.id)
    if settings.output in ("json", "yaml"):
        told = [{"position": position, **to_json(run)} for position, run in runs]
        render.data({"ladder": to_json(one), "runs": told, "verdicts": to_json(verdicts)}, settings.output)
        return 0
    unended = (
        "had not ended when it was imported"
        if one.imported
        else "has not ended: it is still running or was interrupted"
    )
    ended = f"ended {when(one.ended)}" if one.ended is not None else unended
    for name, text in (
        ("Sweep", f"{one.id}{' (accepted: counts in baselines)' if one.accepted else ''}"),
        ("Matrix", f"{one.matrix} ({one.kind.value}), order by seed {one.seed}"),
        ("Cluster", one.cluster or "-"),
        ("Started", f"{when(one.started)}, {ended}"),
        ("Outcome", one.outcome or "-"),
    ):
        click.echo(f"{name + ':':<9}{render.printable(text)}")
    click.echo()
    header = ["RUN", "WORKLOAD", "VARIANT", "RANKS", "REPEAT", "TOOK", "HOSTS", "READING", "LOG"]
    wide = settings.output == "wide"
    rows = [row for position, run in runs for row in _run_rows(position, run, wide=wide)]
    render.table(header, rows, numbers=("RUN", "RANKS", "TOOK"))
    if verdicts:
        click.echo()
        judged = [[*_of_key(verdict.key), verdict.kind.value.upper(), verdict.why] for verdict in verdicts]
        render.table(["WORKLOAD", "VARIANT", "RANKS", "METRIC", "VERDICT", "WHY"], judged, numbers=("RANKS",))
    return 0


def _of_key(key: Any) -> list[str]:
    return [key.workload, key.variant, str(key.ranks), key.metric]


def _run_rows(position: int, run: Run, *, wide: bool) -> list[list[str]]:
    repeat = "warm-up" if run.warm_up else str(run.repeat + 1)
    front = [str(position + 1), *_words(run.cell), repeat, f"{run.seconds:.0f}s", _folded(run.hosts)]
    if not run.readings:
        return [[*front, f"no sample: {run.why}", run.log]]
    if wide:
        return [[*front, _reading(reading), run.log] for reading in run.readings]
    more = f" and {len(run.readings) - 1} more" if len(run.readings) > 1 else ""
    return [[*front, _reading(run.readings[0]) + more, run.log]]


@verb("diff", output=True)
@ladder_output.db_option
@click.argument("before", metavar="A", shell_complete=complete_ladder)
@click.argument("after", metavar="B", shell_complete=complete_ladder)
def diff(ctx: click.Context, before: str, after: str, db: Path | None) -> int:
    """Show what differs between A and B, and how results changed.

    The likeliest causes come first. A and B are sweeps (an id, the start of one, or `last`), cells of them, SWEEP:WORKLOAD/VARIANT/RANKS, or runs,
    SWEEP:RUN with the number that `bench show` prints. Of two sweeps, the cells that both have are compared. A side that
    is a warm-up, or has no sample, is named in a warning.

    \b
    Examples:
      taco-launch bench diff taco-88ab01 last
      taco-launch bench diff last:horovod/tcp/16 last:horovod/rdma/16
      taco-launch bench diff last:4 last:9
    """
    settings = settings_of(ctx)
    with opened(db) as found:
        sides = [_side(found, text) for text in (before, after)]
    try:
        result = compare(*(side.runs for side in sides))
    except ValueError as error:
        raise UsageError(f"{before} and {after}: {error}", hint=_cells(sides)) from None
    if settings.output in ("json", "yaml"):
        told = {name: to_json(side.ladder) for name, side in zip(("before", "after"), sides, strict=True)}
        render.data({**told, **to_json(result)}, settings.output)
        return 0
    for name, text, side in zip("AB", (before, after), sides, strict=True):
        if odd := _no_measure(side.runs):
            render.warning(settings, f"{name} ({text}) {odd}")
        one = side.ladder
        what = f"{text}, which is {one.id}" if text != one.id else text
        click.echo(render.printable(f"{name}: {what}: {one.matrix} ({one.kind.value}), {when(one.started)}"))
    click.echo()
    _show_differs(result)
    click.echo()
    render.table(
        ["WORKLOAD", "VARIANT", "RANKS", "METRIC", "A", "B", "B TO A"],
        [_changed_row(one) for one in result.changed],
        numbers=("RANKS", "A", "B"),
    )
    return 0


def _show_differs(result: Comparison) -> None:
    if not result.differs:
        click.echo("no known difference between the environments of A and B")
        return
    header = ["WHAT", "HOSTS", "A", "B"]
    rows = []
    for one in result.differs:
        found = one.difference
        rows.append([found.what, _folded(found.hosts) or "-", found.before, found.after])
    everywhere = all(one.everywhere for one in result.differs)
    if not everywhere:
        header.append("CELLS")
        for row, one in zip(rows, result.differs, strict=True):
            row.append("all" if one.everywhere else ", ".join(cell.name for cell in one.cells))
    render.table(header, rows)


def _changed_row(one: MetricChange) -> list[str]:
    sides = [
        f"{_number(fmean(values))} ({len(values)})" if values else "no sample" for values in (one.before, one.after)
    ]
    told = "-"
    if one.ratio is not None:
        told = change(one.ratio)
        if one.ratio.low is None:
            told += " (no interval: one side has only one value)"
        elif not shows(one.ratio):
            told += ": no difference shown"
    words = [
        old if old == new else f"{old} -> {new}"
        for old, new in zip(_words(one.before_cell), _words(one.after_cell), strict=True)
    ]
    return [*words, _metric(one.metric.name, one.metric.unit), *sides, told]


def _no_measure(runs: Sequence[Run]) -> str:
    """Return why what runs gave is no measure, "" where it is one."""
    counted = [run for run in runs if not run.warm_up] or runs
    if counted and not any(run.readings for run in counted):
        return f"has no sample, so only its environment is compared: {render.one_line(counted[-1].why)}"
    return "is a warm-up: it measured a cold start" if counted and counted[0].warm_up else ""


class _Side(NamedTuple):
    ladder: Ladder
    runs: tuple[Run, ...]


def _side(found: History, text: str) -> _Side:
    """Return the runs that A or B names."""
    name, _, part = text.partition(":")
    one = named_ladder(found, name)
    runs = found.runs(one.id)
    if not part:
        return _Side(one, tuple(run for _, run in runs))
    if part.isdecimal():
        chosen = tuple(run for position, run in runs if position + 1 == int(part))
    else:
        chosen = tuple(run for _, run in runs if run.cell.name == part)
    if not chosen:
        side = _Side(one, tuple(run for _, run in runs))
        raise UsageError(f"{text}: sweep {one.id} has no such run or cell", hint=_cells([side]))
    return _Side(one, chosen)


def _cells(sides: "Sequence[_Side]") -> str:
    """Return which cells there are."""
    told = []
    for side in sides:
        cells = sorted({run.cell for run in side.runs})
        told.append(f"{side.ladder.id} has {', '.join('/'.join(_words(cell)) for cell in cells) or 'no runs'}")
    return "; ".join(dict.fromkeys(told))


def named_ladder(found: History, text: str) -> Ladder:
    """Return the ladder that a user names: by its id, the start of that, or `last`.

    Raises:
        UsageError: there is no such ladder, or several.
    """
    one = found.ladder(text)
    if one is not None:
        return one
    known = found.ladders()
    matching = known[:1] if text == _NEWEST else [ladder for ladder in known if text and ladder.id.startswith(text)]
    if len(matching) == 1:
        return matching[0]
    if matching:
        several = render.shortened([ladder.id for ladder in matching])
        raise UsageError(f"{text}: {len(matching)} sweeps start with this: {several}", hint="type more of the id")
    hint = (
        "taco-launch bench history lists the sweeps"
        if known
        else "the history is empty; taco-launch bench ladder measures a sweep"
    )
    raise UsageError(f"{text}: not found in {found.path}", hint=hint)


@contextmanager
def opened(db: Path | None) -> Iterator[History]:
    """Open the history that is there.

    Raises:
        TacoLaunchError: there is none, or it cannot be read.
    """
    with open_history(ladder_output.history_path(db), create=False) as found:
        yield found


def _words(cell: Cell) -> list[str]:
    return [cell.workload, cell.variant, str(cell.ranks)]


def _number(value: float) -> str:
    return f"{value:.6g}"


def _metric(name: str, unit: str) -> str:
    return name if name == unit else f"{name} ({unit})"


def _reading(reading: Measurement) -> str:
    metric = reading.metric
    return f"{_number(reading.value)} {metric.unit}" + (f" ({metric.name})" if metric.name != metric.unit else "")


@functools.lru_cache(maxsize=1000)
def _folded(hosts: tuple[str, ...]) -> str:
    return fold(hosts) if hosts else ""


VERBS = (history, show, diff)
