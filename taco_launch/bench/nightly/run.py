"""nightly run: one nightly run: is the cluster fit and free, measure, look again at what seems slower, judge, keep, clear away."""

import itertools
import shutil
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from statistics import fmean

from taco_launch.bench.compare.differences import Difference, differences, merged
from taco_launch.bench.history.history import History, Ladder, LadderKind
from taco_launch.bench.model.ladder import again
from taco_launch.bench.model.matrix import Matrix
from taco_launch.bench.model.runs import Cell, Metric, MetricKey, Run, RunEnvironment, when
from taco_launch.bench.nightly import baseline
from taco_launch.bench.nightly.summary import JudgedMetric, NightlyOutcome, Summary, cell_name
from taco_launch.bench.run import run_ladder as ladders
from taco_launch.bench.run.run_environment import EnvironmentProbe
from taco_launch.bench.stats.judge import suspects, verdicts
from taco_launch.bench.stats.verdicts import JudgeRules, Series, Verdict
from taco_launch.core.errors import HostError
from taco_launch.core.facts.reports.health.hardware import judged
from taco_launch.core.facts.reports.health.verdict import FAULT
from taco_launch.core.frozen import dataclass
from taco_launch.core.model.host.hosts import Inventory
from taco_launch.core.model.slots import describe_holders
from taco_launch.hosts.inventory.ranges import fold
from taco_launch.jobs.backend import Backend, HostOccupancy

# How often a busy cluster is looked at again.
_LOOK_SECONDS = 30.0
# The outcomes of nightly runs in which nothing was judged; "" is that of one that broke off.
_NOTHING = "nothing was measured"
_NOT_JUDGED = ("", ladders.INTERRUPTED, ladders.HEAD_LOST, ladders.GIVEN_UP, NightlyOutcome.NOT_FIT.value)


@dataclass(frozen=True)
class RunRequest:
    """A nightly run as it is requested.

    `notes` are what is to be told of it whatever comes, `waited` for how many seconds hosts were waited for before; `deadline` how many seconds a cluster that is busy, or a host that does not answer, is waited for; `rules` are the
    judge's; `strict` makes a failure of what a person has to look at.
    """

    name: str
    matrix: Matrix
    deadline: float
    rules: JudgeRules
    notes: tuple[str, ...] = ()
    strict: bool = False
    waited: float = 0.0


def run(
    backend: Backend,
    inventory: Inventory,
    plan: ladders.LadderPlan,
    asked: RunRequest,
    history: History,
    around: EnvironmentProbe,
    environ: Mapping[str, str],
    tell: ladders.LadderListener,
) -> Summary:
    """Make a nightly run of the ladder of `plan`, which the history does not know yet, and judge it.

    What it measured counts in the baseline of later nightly runs where nothing got slower, or may have, and each cell has a
    sample.

    Raises:
        HostError: the head cannot be reached, or was lost before anything was measured.
        KeyboardInterrupt: somebody ended it before it measured.
        TacoLaunchError: the history cannot be read or written.
    """
    notes = [*asked.notes]

    def note(text: str) -> None:
        notes.append(text)
        tell.say(text)

    one = plan.ladder
    summary = _begun(plan, asked)
    _end_broken(backend, history, plan, note)
    why, waited = _faults(inventory, around), asked.waited
    if not why:
        why, waited = _wait_for_room(backend, inventory, plan, asked, note)
    if why:
        return replace(summary, ended=time.time(), unfit=why, notes=tuple(notes))
    nightly_run = _NightlyRun(backend, plan, asked, history, around, environ, replace(tell, say=note))
    with ladders.exclusive_lock(plan.logs.parent, one.id):
        history.begin(one)
        try:
            judged, measured = nightly_run.measure()
        except HostError:
            history.end(one.id, NightlyOutcome.NOT_FIT.value)
            raise
        green = baseline.newest(history, one.matrix, one.cluster)
        summary = replace(
            summary,
            ended=time.time(),
            judged=judged,
            failed=_failed(measured.runs),
            lost=_lost(measured.runs),
            mostly_lost=_mostly_lost(measured.runs),
            broken="" if measured.error is None else f"the head was lost: {measured.error.message}",
            green="" if green is None else green.id,
            differences=() if green is None else _differences(history, green, measured.runs),
            notes=tuple(notes),
            waited=waited,
            emptied=green is None
            and any(each.outcome == baseline.REJECTED for each in _nightly_runs(history, one.matrix, one.cluster)),
        )
        if measured.outcome == ladders.INTERRUPTED:
            summary = replace(summary, interrupted=_so_far(len(measured.runs), len(plan.steps)))
        if summary.outcome.waits:
            summary = replace(summary, in_a_row=1 + waiting_before(history, one))
        if summary.outcome.counts:
            history.accept(one.id)
        history.end(one.id, summary.outcome.value)
        return summary


def failure_summary(plan: ladders.LadderPlan, asked: RunRequest, why: str) -> Summary:
    """Return the summary of a nightly run that could not measure anything, and why; "" where somebody ended it."""
    interrupted = "" if why else _NOTHING
    return replace(_begun(plan, asked), ended=time.time(), unfit=why, interrupted=interrupted, notes=asked.notes)


def _begun(plan: ladders.LadderPlan, asked: RunRequest) -> Summary:
    one = plan.ladder
    return Summary(
        asked.name, one.matrix, one.cluster, one.id, one.started, one.started, logs=str(plan.logs), strict=asked.strict
    )


def waiting_before(history: History, one: Ladder) -> int:
    """Count the unsure or pending runs in a row right before one; `accept` or `reject` of one ends the row, runs without a judgement do not."""
    judged = [
        earlier
        for earlier in _nightly_runs(history, one.matrix, one.cluster)
        if earlier.started < one.started and earlier.outcome not in _NOT_JUDGED
    ]
    row = itertools.takewhile(lambda earlier: earlier.outcome in baseline.WAITING and not earlier.accepted, judged)
    return len(list(row))


def clear_logs(history: History, matrix: str, cluster: str, folder: Path, before: float) -> int:
    """Remove the logs of the nightly runs of a matrix that started here before a time; give how many nightly runs' there were."""
    old = [one for one in _nightly_runs(history, matrix, cluster) if one.started < before and not one.imported]
    logs = [folder / one.id for one in old if (folder / one.id).is_dir()]
    for path in logs:
        shutil.rmtree(path, ignore_errors=True)
    return len(logs)


@dataclass(frozen=True)
class _NightlyRun:
    """What measuring takes, and the two stages of it."""

    backend: Backend
    plan: ladders.LadderPlan
    asked: RunRequest
    history: History
    around: EnvironmentProbe
    environ: Mapping[str, str]
    tell: ladders.LadderListener

    def measure(self) -> tuple[tuple[JudgedMetric, ...], ladders.LadderResult]:
        """Measure each cell, then those again that seem to have changed, and judge; also what there is when somebody ends it.

        Measuring again may take the matrix's time budget once more.
        """
        plan, rules = self.plan, self.asked.rules
        measured = self._run(plan)
        first, fresh, cut = _values(measured.runs), _Values(), measured.outcome == ladders.INTERRUPTED
        if measured.error is None and not cut:
            cells = _cells(suspects(self._series(first, fresh), rules))
            if cells:
                self.tell.say(f"measured again: {', '.join(map(cell_name, cells))}")
                more = again(plan.steps, cells, rules.fresh, plan.ladder.seed)
                done = dict(self.history.runs(plan.ladder.id))
                budget = plan.budget and plan.budget + sum(run.seconds for run in done.values())
                steps = (*(step for step in plan.steps if step.position in done), *more)
                measured = self._run(replace(plan, steps=steps, budget=budget))
                if measured.outcome == ladders.TIME_BUDGET:
                    self.tell.say(
                        f"the repeated measurements ended after {span(plan.budget or 0)}, the matrix's time budget"
                    )
                cut = measured.outcome in (ladders.INTERRUPTED, ladders.TIME_BUDGET)
                positions = {step.position for step in more}
                fresh = _values(run for at, run in self.history.runs(plan.ladder.id) if at in positions)
        series = self._series(first, fresh, cut=cut)
        found = verdicts(series, rules)
        if measured.outcome != ladders.INTERRUPTED:
            self.history.keep_verdicts(plan.ladder.id, found)
        units = {reading.metric.name: reading.metric.unit for run in measured.runs for reading in run.readings}
        return tuple(
            JudgedMetric(verdict, *_means(verdict, one), units[one.key.metric])
            for verdict, one in zip(found, series, strict=True)
        ), measured

    def _run(self, plan: ladders.LadderPlan) -> ladders.LadderResult:
        return ladders.run(self.backend, plan, self.history, self.around, self.environ, self.tell)

    def _series(self, first: "_Values", fresh: "_Values", *, cut: bool = False) -> tuple[Series, ...]:
        one, nightly_runs = self.plan.ladder, self.asked.rules.nightly_runs
        of = one.started, one.matrix, one.cluster
        return tuple(
            Series(
                key,
                metric.higher_is_better,
                self.history.nightly_runs(key, nightly_runs, *of),
                values,
                fresh.get((key, metric), ()),
                self.history.nightly_runs(key, nightly_runs, *of, waiting=baseline.WAITING),
                cut,
            )
            for (key, metric), values in first.items()
        )


_Values = dict[tuple[MetricKey, Metric], tuple[float, ...]]


def _values(runs: Iterable[Run]) -> _Values:
    """Return what runs that count measured, by what makes numbers comparable."""
    found: dict[tuple[MetricKey, Metric], list[float]] = {}
    for run in runs:
        cell = run.cell
        for reading in () if run.warm_up else run.readings:
            key = MetricKey(run.hosts, run.gpu, cell.workload, cell.variant, cell.ranks, reading.metric.name)
            found.setdefault((key, reading.metric), []).append(reading.value)
    return {key: tuple(values) for key, values in found.items()}


def _cells(keys: Iterable[MetricKey]) -> tuple[Cell, ...]:
    return tuple(sorted({Cell(key.workload, key.variant, key.ranks) for key in keys}))


def _so_far(made: int, planned: int) -> str:
    if not made:
        return _NOTHING
    more = f", and {made - planned} more to measure cells again" if made > planned else ""
    return f"{min(made, planned)} of {planned} runs were made{more}"


def _means(verdict: Verdict, one: Series) -> tuple[float, float | None]:
    """Return the mean of what was judged, and what it was judged against: by these two the change is as the verdict has it."""
    tonight = fmean(one.fresh or one.tonight)
    if verdict.change is None:
        return tonight, _mean(one.baseline)
    return tonight, tonight / (1 + verdict.change.value)


def _mean(nightly_runs: Sequence[Sequence[float]]) -> float | None:
    return fmean(fmean(nightly_run) for nightly_run in nightly_runs) if nightly_runs else None


def _failed(runs: Iterable[Run]) -> tuple[tuple[Cell, str], ...]:
    """Return the cells of which no run that counts gave a sample, with what the last one said."""
    why: dict[Cell, str] = {}
    measured = set()
    for run in runs:
        if run.readings and not run.warm_up:
            measured.add(run.cell)
        else:
            why[run.cell] = run.why
    return tuple((cell, text) for cell, text in why.items() if cell not in measured)


def _lost(runs: Iterable[Run]) -> str:
    """Return how many runs gave no sample, "" where all gave one; warm-ups do not count."""
    counted = [run for run in runs if not run.warm_up]
    lost = [run for run in counted if not run.readings]
    return f"{len(lost)} of {len(counted)} runs failed: {lost[-1].why.rstrip('.')}" if lost else ""


def _mostly_lost(runs: Iterable[Run]) -> bool:
    """Return whether more runs gave no sample than gave one."""
    lost = [not run.readings for run in runs if not run.warm_up]
    return sum(lost) > len(lost) / 2


def _differences(history: History, green: Ladder, runs: Sequence[Run]) -> tuple[Difference, ...]:
    """Return what has changed since a nightly run, over the cells that both measured."""
    cells = {run.cell for run in runs}
    before = [run for _at, run in history.runs(green.id) if run.cell in cells]
    return differences(_merged(before), _merged(runs))


def _merged(runs: Iterable[Run]) -> RunEnvironment:
    return merged(run.circumstances for run in runs if run.readings)


def _end_broken(backend: Backend, history: History, plan: ladders.LadderPlan, note: Callable[[str], None]) -> None:
    """End what nightly runs before left when they broke off: the job that ran continues without anybody who measures.

    One of another name that is being measured is left alone.
    """
    for earlier in _nightly_runs(history, plan.ladder.matrix, plan.ladder.cluster):
        if earlier.broke_off and not ladders.is_measured(plan.logs.parent, earlier.id):
            note(f"ladder {earlier.id} of {when(earlier.started)} was interrupted")
            ladders.end_leftovers(backend, earlier, {at for at, _run in history.runs(earlier.id)}, note)
            history.end(earlier.id, ladders.GIVEN_UP)


def _nightly_runs(history: History, matrix: str, cluster: str) -> list[Ladder]:
    return [one for one in history.ladders(LadderKind.NIGHTLY_RUN, matrix) if one.cluster == cluster]


def _faults(inventory: Inventory, around: EnvironmentProbe) -> str:
    """Return what of the hardware is broken, in one line; nothing where it is fit."""
    network = inventory.network
    faults = (
        f"{fold(hosts)}: {verdict.text}"
        for verdict, hosts in judged(around.facts, network.rdma, network.gdr)
        if verdict.level == FAULT
    )
    return "; ".join(faults)


def _wait_for_room(
    backend: Backend, inventory: Inventory, plan: ladders.LadderPlan, request: RunRequest, note: Callable[[str], None]
) -> tuple[str, float]:
    """Wait until each host of the nightly run answers and nobody has a slot there; return why not, when the time is over.

    The second value is for how many seconds hosts were waited for, here and before.
    """
    wanted = {host.name for spec in plan.specs.values() for host in spec.hosts}
    began = time.monotonic()
    told = ""
    while True:
        busy = _busy(backend.nodes(inventory), wanted)
        waited = time.monotonic() - began
        if not busy:
            if told:
                note(f"the cluster is free after {span(waited)}")
            return "", request.waited + (waited if told else 0.0)
        if waited >= request.deadline:
            return with_wait(busy, request.waited + (waited if told else 0.0)), 0.0
        if busy != told:
            note(f"waiting: {busy}")
            told = busy
        time.sleep(min(_LOOK_SECONDS, max(request.deadline - waited, 0.0)))


def with_wait(why: str, waited: float) -> str:
    """Return why hosts cannot be measured, with for how many seconds they were waited for."""
    return f"{why}; waited {span(waited)}" if waited else why


def span(seconds: float) -> str:
    """Return a time span, to the second or to the minute."""
    return f"{seconds:.0f} s" if seconds < 120 else f"{seconds / 60:.0f} min"


def _busy(nodes: Iterable[HostOccupancy], wanted: Collection[str]) -> str:
    found = [
        f"{node.host.name}: {node.problem or f'its slots are taken: {held}'}"
        for node in nodes
        if node.host.name in wanted
        for held in ["" if node.occupancy is None else describe_holders(node.occupancy)]
        if node.problem or held
    ]
    return "; ".join(found)
