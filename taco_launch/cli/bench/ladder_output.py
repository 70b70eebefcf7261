"""What `bench ladder` and `bench run` have in common: what is shown while they measure, and the tables at the end."""

import os
import signal
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import click

from taco_launch.bench.compare import tables
from taco_launch.bench.compare.tables import Table, number
from taco_launch.bench.history.history import History, default_path
from taco_launch.bench.model.ladder import LadderStep
from taco_launch.bench.model.runs import Cell, Run
from taco_launch.bench.run import run_ladder as flow
from taco_launch.bench.run.run_environment import EnvironmentProbe
from taco_launch.bench.run.run_ladder import LadderListener, LadderPlan, LadderProgress, LadderResult
from taco_launch.cli.options.common import Settings, add_option
from taco_launch.cli.output import render
from taco_launch.core.errors import FAILED, HOST_FAILED, INTERRUPTED, HostError, TacoLaunchError
from taco_launch.core.model.job_view import age
from taco_launch.jobs.backend import Backend

F = TypeVar("F", bound="Callable[..., Any]")


def db_option(function: F) -> F:
    """Add --db."""
    return add_option(
        "--db",
        type=click.Path(dir_okay=False, path_type=Path),
        metavar="FILE",
        help="The history to use. Default: history.db in the state folder of this machine.",
    )(function)


def history_path(db: Path | None) -> Path:
    """Return where the history lies."""
    return default_path(os.environ) if db is None else db


@contextmanager
def endings() -> Iterator[None]:
    """Have TERM and a closed terminal end what is measured as Ctrl-C does, unless they are ignored (nohup)."""

    def end(_number: int, _frame: object) -> None:
        raise KeyboardInterrupt

    before = {signum: signal.getsignal(signum) for signum in (signal.SIGTERM, signal.SIGHUP)}
    for signum, handler in before.items():
        if handler is not signal.SIG_IGN:
            signal.signal(signum, end)
    try:
        yield
    finally:
        for signum, handler in before.items():
            signal.signal(signum, handler)


class ProgressDisplay:
    """Shows how far a ladder is: on a terminal one line that changes, elsewhere a line for each run."""

    def __init__(self, settings: Settings, cells: Sequence[Cell]) -> None:
        """Show runs of these cells."""
        self._settings = settings
        self.show_cells(cells)
        self._line = ""
        self._live = False
        self._said: set[str] = set()
        self._waited: set[int] = set()
        self._failed: set[Cell] = set()

    def show_cells(self, cells: Sequence[Cell]) -> None:
        """Show runs of these cells from now on."""
        self._workloads = len({cell.workload for cell in cells}) > 1
        self._variants = len({cell.variant for cell in cells}) > 1

    @contextmanager
    def teller(self) -> Iterator[LadderListener]:
        """Return whom the ladder tells how far it is; the line on a terminal is there for as long as the block lasts."""
        with render.host_lines(self._settings, lambda: [self._line]) as self._live:
            yield LadderListener(self._progress, self._settings.talk)

    def cell(self, cell: Cell) -> str:
        """Name a cell among those that are measured."""
        words = [cell.workload] if self._workloads else []
        words += [cell.variant] if self._variants else []
        return ", ".join((*words, f"{cell.ranks} rank{'' if cell.ranks == 1 else 's'}"))

    def step(self, step: LadderStep) -> str:
        """Name a run."""
        return f"{self.cell(step.cell)}{' (warm-up)' if step.warm_up else ''}"

    def _progress(self, progress: LadderProgress) -> None:
        for warning in progress.warnings:
            if warning not in self._said:
                render.warning(self._settings, warning)
                self._said.add(warning)
        begin = f"run {progress.number} of {progress.of}: {self.step(progress.step)}:"
        left = "" if not progress.left else f", about {age(progress.left)} left"
        if progress.run is not None:
            self._ended(progress, begin, left)
            return
        if progress.state == "QUEUED" and progress.line and not self._live and progress.number not in self._waited:
            self._waited.add(progress.number)
            self._settings.talk(f"{begin} waiting: {render.printable(progress.line)}")
        self._line = f"{begin} {progress.state or 'QUEUED'}{left} {render.printable(progress.line)}"
        if self._settings.verbose and progress.line:
            self._settings.talk(render.printable(progress.line))

    def _ended(self, progress: LadderProgress, begin: str, left: str) -> None:
        run = progress.run
        assert run is not None
        took = f" ({age(run.seconds)}{left})"
        if run.readings:
            if not self._live:
                self._settings.talk(f"{begin} {describe_run(run)}{took}")
            return
        self._settings.talk(f"{begin} no sample{took}: {render.printable(render.one_line(run.why))}")
        first = run.cell not in self._failed
        self._failed.add(run.cell)
        for line in progress.evidence if first else ():
            self._settings.talk(f"  {render.printable(line)}")
        if run.log:
            self._settings.talk(f"its log: {run.log}")


def describe_run(run: Run) -> str:
    """Return what a run has measured; of several readings the first, which stands for them."""
    first = run.readings[0]
    name = f"{first.metric.name}: " if len(run.readings) > 1 else ""
    return f"{name}{number(first.value)} {first.metric.unit}"


def measure(
    settings: Settings,
    plan: LadderPlan,
    history: History,
    around: EnvironmentProbe,
    backend: Backend,
    go_on: str,
    show: Callable[[Settings, LadderPlan, LadderResult], None] | None = None,
) -> int:
    """Measure what is left of a ladder, print what it came to (by `show`, or as tables), and give the exit code.

    `go_on` is as in `finish`.

    Raises:
        TacoLaunchError: the head was lost, or a cell has no sample.
    """
    with endings(), ProgressDisplay(settings, tuple(plan.specs)).teller() as teller:
        try:
            measured = flow.run(backend, plan, history, around, os.environ, teller)
        except HostError:
            if not go_on or not history.runs(plan.ladder.id):
                history.end(plan.ladder.id, flow.HEAD_LOST)
            raise
    (show or show_tables)(settings, plan, measured)
    # A command with --threads or the like sets its own number, whatever the variable is.
    set_by_commands = any("threads" in word for spec in plan.specs.values() for word in spec.command)
    if not set_by_commands and (words := tables.differing_threads(measured.runs)):
        render.warning(settings, words)
    return finish(settings, plan, history, measured, go_on)


def finish(settings: Settings, plan: LadderPlan, history: History, measured: LadderResult, go_on: str) -> int:
    """Return how a ladder ended, keep that, and give the exit code; `go_on` is what is typed to continue, "" for nothing.

    Raises:
        TacoLaunchError: the head was lost, or a cell has no sample; which ones, and why.
    """
    cells = tuple(plan.specs)
    shown = ProgressDisplay(settings, cells)
    runs = sum(not run.warm_up for run in measured.runs)
    if measured.outcome in (flow.INTERRUPTED, flow.HEAD_LOST):
        done = len(history.runs(plan.ladder.id))
        hint = f"to continue: {go_on}" if go_on else "running the same command again measures everything from the start"
        if not go_on:
            history.end(plan.ladder.id, measured.outcome)
        message = f"{measured.outcome}: {done} of {len(plan.steps)} runs are done"
        if measured.error is not None:
            raise TacoLaunchError(f"{measured.error.message}\n{message}", hint)
        settings.talk(message + (f"\n{hint}" if hint else ""))
        return INTERRUPTED
    history.end(plan.ladder.id, measured.outcome)
    if measured.outcome == flow.TIME_BUDGET:
        budget = age(plan.budget or 0)
        planned = sum(not step.warm_up for step in plan.steps)
        beside = " besides the warm-ups" if planned < len(plan.steps) else ""
        settings.talk(
            f"the time budget of {budget} is used up: {runs} of {planned} runs{beside} are counted, those of complete rounds"
        )
    every = tuple(run for _position, run in history.runs(plan.ladder.id))
    for gap in tables.missing(cells, every):  # those of a round that is not complete as well
        if gap.failed < gap.runs:
            words = f"{shown.cell(gap.cell)}: {gap.failed} of {gap.runs} runs gave no sample: {gap.why}"
            render.warning(settings, render.one_line(words))
    empty = [gap for gap in tables.missing(cells, measured.runs) if gap.failed == gap.runs]
    if empty:
        lines = [f"  {shown.cell(gap.cell)}: {render.one_line(gap.why)}" for gap in empty]
        count = f"{len(empty)} of {len(cells)} cells have no sample" if len(cells) > 1 else "there is no sample"
        error = TacoLaunchError("\n".join((count, *lines)), hint=f"the logs are in {plan.logs}")
        error.exit_code = HOST_FAILED if measured.hosts_failed else FAILED
        raise error
    return 0


def show_tables(settings: Settings, plan: LadderPlan, measured: LadderResult) -> None:
    """Print the tables of a ladder and what they say, or all of it as JSON or YAML."""
    cells = tuple(plan.specs)
    found = tables.tables(cells, measured.runs)
    if settings.output in ("json", "yaml"):
        render.data(_data(plan, measured, tables.to_json(found)), settings.output)
        return
    noun = tables.noun(measured.runs)
    for grid in tables.grids(found, noun):
        click.echo(f"{grid.title}:")
        render.table(grid.header, grid.rows, numbers=grid.numbers)
        click.echo()
    _show_bars(found, noun)
    for sentence in tables.sentences(found, noun):
        click.echo(sentence)
    if found:
        click.echo(tables.legend(found))


def _show_bars(found: Sequence[Table], noun: str) -> None:
    """Print the first metric of each workload as bars, where there are several cells to compare."""
    for first in tables.firsts(found):
        if len(first.entries) > 1:
            click.echo(f"{first.workload}, {first.metric.unit}, as bars:")
            ranks = noun.upper() if noun == "ranks" else noun
            unit = first.metric.unit.upper()
            render.table([ranks, "VARIANT", "", unit], tables.bars(first), numbers=(ranks, unit))
            click.echo()


def _data(plan: LadderPlan, measured: LadderResult, found: list[dict[str, Any]]) -> Mapping[str, Any]:
    gaps = [
        {"workload": gap.cell.workload, "variant": gap.cell.variant, "ranks": gap.cell.ranks}
        | {"failed": gap.failed, "runs": gap.runs, "why": gap.why}
        for gap in tables.missing(tuple(plan.specs), measured.runs)
    ]
    head = {"ladder": plan.ladder.id, "matrix": plan.ladder.matrix, "seed": plan.ladder.seed}
    return {**head, "outcome": measured.outcome, "tables": found, "no_sample": gaps}
