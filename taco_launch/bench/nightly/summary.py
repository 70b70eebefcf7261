"""What a nightly run came to, for the person who opens the mail in the morning: one line, Markdown, JSON; pure."""

import enum
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict
from typing import Any

from taco_launch.bench.compare.differences import Difference
from taco_launch.bench.compare.tables import number
from taco_launch.bench.model.runs import Cell, to_the_second
from taco_launch.bench.stats.estimates import percent
from taco_launch.bench.stats.verdicts import Verdict, VerdictKind
from taco_launch.core.errors import FAILED, HOST_FAILED, INTERRUPTED, REGRESSED
from taco_launch.core.frozen import dataclass

# So many causes stand in the one line; the summary has all.
_TOLD = 2
# What a name or a reason must not mean in Markdown; the rest is left as it is, since summaries are read as text, too.
_MARKS = re.compile(r"([\\`*<>|]|(?<=\])\()")
# By verdict: what a cell is called that has it; what a person wants to see first comes first.
_WORDS = {
    VerdictKind.REGRESSION: "slower",
    VerdictKind.UNSURE: "unsure",
    VerdictKind.PENDING: "pending",
    VerdictKind.DRIFT: "drifting",
    VerdictKind.NO_SAMPLE: "without a sample",
    VerdictKind.IMPROVEMENT: "faster",
    VerdictKind.OK: "as before",
    VerdictKind.NO_VERDICT_YET: "without a verdict yet",
}
_ORDER = tuple(_WORDS)


class NightlyOutcome(enum.Enum):
    """How a nightly run ended."""

    OK = "ok"
    DRIFT = "drift"
    UNSURE = "unsure"
    PENDING = "pending"
    REGRESSION = "regression"
    NOT_FIT = "cluster not fit"
    INTERRUPTED = "interrupted"
    FAILED = "failed"

    @property
    def counts(self) -> bool:
        """Whether it enters the baseline without a decision."""
        return self in (NightlyOutcome.OK, NightlyOutcome.DRIFT)

    @property
    def waits(self) -> bool:
        """Whether a person has to look at it before it counts in the baseline."""
        return self in (NightlyOutcome.UNSURE, NightlyOutcome.PENDING)

    def exit_code(self, *, strict: bool) -> int:
        """Return the exit code of `nightly run`, which is that of a regression with `strict` where a person has to look."""
        if self.waits:
            return REGRESSED if strict else 0
        codes = {
            NightlyOutcome.REGRESSION: REGRESSED,
            NightlyOutcome.NOT_FIT: HOST_FAILED,
            NightlyOutcome.INTERRUPTED: INTERRUPTED,
            NightlyOutcome.FAILED: FAILED,
        }
        return codes.get(self, 0)


@dataclass(frozen=True)
class JudgedMetric:
    """A verdict with what it is about, in `unit`: the means of tonight and of the baseline, None where there is none."""

    verdict: Verdict
    tonight: float | None
    baseline: float | None
    unit: str

    @property
    def name(self) -> str:
        """The cell and what was measured of it."""
        key = self.verdict.key
        metric = "" if key.metric == self.unit else f", {key.metric}"
        return f"{cell_name(Cell(key.workload, key.variant, key.ranks))}{metric}"


@dataclass(frozen=True)
class Summary:
    """A nightly run; times are seconds since the epoch.

    `failed` are the cells that gave no sample at all, each with a reason; `lost` says how many runs gave none, `mostly_lost` whether it
    is more than half of them. `unfit` says why the cluster could not be measured, `broken` why the nightly run did not finish. `green` is
    the last nightly run before that counts in the baseline, from which the `differences` are. `in_a_row` is, where a person has to look,
    in how many nightly runs in a row, this one included. `interrupted` says what is kept of a run that was ended early, and how to run it
    again. `emptied` says that no nightly run counts, because all were rejected. `notes` say what else happened, `logs` is the folder of
    its logs. `typed` starts a command with the same inventory. `host_notes` say which hosts were left out, found to be slow, or drained; `waited` is for how many seconds they were waited for.
    """

    name: str
    matrix: str
    cluster: str
    ladder: str
    started: float
    ended: float
    judged: tuple[JudgedMetric, ...] = ()
    failed: tuple[tuple[Cell, str], ...] = ()
    lost: str = ""
    mostly_lost: bool = False
    unfit: str = ""
    broken: str = ""
    green: str = ""
    differences: tuple[Difference, ...] = ()
    notes: tuple[str, ...] = ()
    strict: bool = False
    logs: str = ""
    in_a_row: int = 0
    emptied: bool = False
    interrupted: str = ""
    typed: str = "taco-launch"
    host_notes: tuple[str, ...] = ()
    waited: float = 0.0

    @property
    def outcome(self) -> NightlyOutcome:
        """How the nightly run ended; a regression outweighs cells that failed."""
        if self.interrupted:
            return NightlyOutcome.INTERRUPTED
        if self.unfit:
            return NightlyOutcome.NOT_FIT
        if self.of(VerdictKind.REGRESSION):
            return NightlyOutcome.REGRESSION
        if self.broken or self.failed or self.mostly_lost or self.of(VerdictKind.NO_SAMPLE):
            return NightlyOutcome.FAILED
        if self.of(VerdictKind.UNSURE):
            return NightlyOutcome.UNSURE
        is_new = self.of(VerdictKind.NO_VERDICT_YET) and any(one.is_of_hardware for one in self.differences)
        is_new = is_new or bool(self.emptied and self.of(VerdictKind.NO_VERDICT_YET))
        if is_new or self.lost or self.of(VerdictKind.PENDING):
            return NightlyOutcome.PENDING
        return NightlyOutcome.DRIFT if self.of(VerdictKind.DRIFT) else NightlyOutcome.OK

    @property
    def exit_code(self) -> int:
        """The exit code of `nightly run`."""
        return self.outcome.exit_code(strict=self.strict)

    def of(self, *kinds: VerdictKind) -> tuple[JudgedMetric, ...]:
        """Return what was judged so."""
        return tuple(one for one in self.judged if one.verdict.kind in kinds)


def cell_name(cell: Cell) -> str:
    """Return a cell in words."""
    return f"{cell.workload} {cell.variant} at {cell.ranks} rank{'' if cell.ranks == 1 else 's'}"


def line(summary: Summary, path: str) -> str:
    """Return what cron mails: how the nightly run ended, the worst of it, what has changed, and where the summary is."""
    words = "; ".join((*sentences(summary), f"summary: {path}"))
    return f"nightly {summary.name}: {summary.outcome.value.upper()}: {words}"


def sentences(summary: Summary) -> list[str]:
    """Return the worst of a nightly run, how often it was so, what has changed and what was done about hosts."""
    told = [_headline(summary)]
    if summary.in_a_row > 1:
        told.append(_again(summary))
    starts_over = (
        [one for one in summary.differences if one.is_of_hosts] if summary.of(VerdictKind.NO_VERDICT_YET) else []
    )
    is_bad = summary.outcome.waits or summary.outcome is NightlyOutcome.REGRESSION
    if differences := summary.differences if is_bad else starts_over:
        more = len(differences) - _TOLD
        causes = [*map(_cause, differences[:_TOLD]), *((f"and {more} more",) if more > 0 else ())]
        told.append(f"changed since the last accepted run: {'; '.join(causes)}")
    if summary.lost and summary.of(VerdictKind.REGRESSION, VerdictKind.UNSURE, VerdictKind.PENDING):
        told.append(summary.lost)
    told += [
        *summary.host_notes[:_TOLD],
        *([f"waited {summary.waited / 60:.1f} min for hosts"] if summary.waited else []),
    ]
    return [" ".join(part.split()) for part in told]


def _headline(summary: Summary) -> str:
    if not summary.interrupted:
        return _came_to(summary)
    bad = summary.of(VerdictKind.REGRESSION)
    lost = [one for one in summary.of(VerdictKind.UNSURE) if one.verdict.change and one.verdict.change.value < 0]
    so_far = [f"slower: {_worst(bad)}"] if bad else []
    so_far += [f"slower, but not confirmed: {_worst(lost)}"] if lost else []
    return "; ".join((*so_far, summary.interrupted))


def _came_to(summary: Summary) -> str:
    if bad := summary.of(VerdictKind.REGRESSION):
        return _worst(bad)
    if summary.unfit or summary.broken:
        return summary.unfit or summary.broken
    if summary.failed:
        cell, why = summary.failed[0]
        others = len(summary.failed) - 1
        more = f" (and {others} more cell{'s' if others > 1 else ''})" if others else ""
        return f"no sample of {cell_name(cell)}: {why}{more}"
    if summary.lost and not summary.of(VerdictKind.UNSURE, VerdictKind.PENDING):
        advice = (
            "" if summary.mostly_lost else "; accept the run if the failures have nothing to do with what is measured"
        )
        return f"{summary.lost}{advice}"
    for kind, why in (
        (VerdictKind.UNSURE, "the nightly runs differ too much to be sure"),
        (VerdictKind.PENDING, "accept or reject this run: it differs from the earlier nightly runs"),
        (VerdictKind.DRIFT, "gradually, without a step"),
    ):
        waiting = summary.of(kind)
        if waiting and not any(one.verdict.change for one in waiting):
            return f"{waiting[0].name}: {waiting[0].verdict.why}"
        if waiting:
            return f"{_worst(waiting)}: {why}"
    if summary.outcome is NightlyOutcome.PENDING and summary.emptied:
        return "all earlier nightly runs were rejected: accept this one if its results are correct"
    return _counts(summary)


def _again(summary: Summary) -> str:
    row = f"{summary.outcome.value} {summary.in_a_row} nightly runs in a row"
    if summary.of(VerdictKind.REGRESSION, VerdictKind.UNSURE):
        return (
            f"{row}: look for a cause, as for a regression; if the results are correct, accept the runs or reset the baseline to the new "
            "level; if nightly runs always differ this much, raise minEffect"
        )
    return f"{row}: none of them counts until you accept or reject it (nightly baseline show {summary.matrix})"


def _worst(judged: Sequence[JudgedMetric]) -> str:
    worst = max(judged, key=lambda one: abs(one.verdict.change.value) if one.verdict.change else 0.0)
    more = f", and {len(judged) - 1} more" if len(judged) > 1 else ""
    return f"{worst.name} {change(worst)}{more}"


def _counts(summary: Summary) -> str:
    counts = Counter(one.verdict.kind for one in summary.judged)
    words = {kind: f"{counts[kind]} cell{'' if counts[kind] == 1 else 's'} {_WORDS[kind]}" for kind in _ORDER}
    if faster := summary.of(VerdictKind.IMPROVEMENT):
        words[VerdictKind.IMPROVEMENT] += f" ({_worst(faster)})"
    building = summary.of(VerdictKind.NO_VERDICT_YET)
    told = ", ".join(text for kind, text in words.items() if counts[kind]) or "nothing was measured"
    return f"{told}: {building[0].verdict.why}" if building else told


def markdown(summary: Summary) -> str:
    """Return the whole summary."""
    return "\n\n".join(_blocks(summary)) + "\n"


def _blocks(summary: Summary) -> Iterator[str]:
    yield f"# Nightly run {_plain(summary.name)}: {summary.outcome.value}"
    span = f"{to_the_second(summary.started)} to {to_the_second(summary.ended)}"
    yield _plain(f"{_headline(summary)}.")
    if summary.in_a_row > 1:
        yield _plain(f"It was {_again(summary)}.")
    yield _plain(f"Matrix {summary.matrix} on cluster {summary.cluster}, {span}, ladder {summary.ladder}.")
    if summary.broken and summary.of(VerdictKind.REGRESSION):
        yield _plain(f"The run did not finish: {summary.broken}.")
    if summary.host_notes:
        yield _list("Hosts", map(_plain, summary.host_notes))
    yield from _changed(summary)
    yield from _verdicts(summary)
    if summary.failed:
        lines = (f"{_plain(cell_name(cell))}: {_plain(why)}" for cell, why in summary.failed)
        yield _list("Cells without a sample", lines)
    if summary.lost:
        yield _plain(f"{summary.lost}.")
    if summary.notes:
        yield _list("Other events", map(_plain, summary.notes))
    yield from _next(summary)


def _list(title: str, items: Iterable[str]) -> str:
    return "\n".join((f"## {title}", "", *(f"- {item}" for item in items)))


def _changed(summary: Summary) -> Iterator[str]:
    if not summary.green:
        return
    since = f"since the last accepted run, {_plain(summary.green)}"
    if not summary.differences:
        if summary.outcome.waits or summary.outcome is NightlyOutcome.REGRESSION:
            nothing = "Nothing that is recorded. Programs and data outside git are not recorded."
            yield f"## What changed {since}\n\n{nothing}"
        return
    rows = ("| what | hosts | was | is |", "|---|---|---|---|")
    lines = (
        f"| {_plain(one.what)} | {_plain(', '.join(one.hosts) or 'all')} | {_plain(one.before)} | {_plain(one.after)} |"
        for one in summary.differences
    )
    yield "\n".join((f"## What changed {since}", "", "The most likely causes come first.", "", *rows, *lines))


def _verdicts(summary: Summary) -> Iterator[str]:
    if not summary.judged:
        return
    rows = ["| cell | verdict | this run | baseline | why |", "|---|---|---|---|---|"]
    for one in by_importance(summary.judged):
        values = (value(each, one.unit) for each in (one.tonight, one.baseline))
        cells = (one.name, one.verdict.kind.value, *values, one.verdict.why)
        rows.append(f"| {' | '.join(_plain(cell) for cell in cells)} |")
    yield "\n".join(("## Verdicts", "", *rows))


def by_importance(judged: Sequence[JudgedMetric]) -> list[JudgedMetric]:
    """Return verdicts with what a person wants to see first in front."""
    return sorted(judged, key=lambda one: _ORDER.index(one.verdict.kind))


def _next(summary: Summary) -> Iterator[str]:
    if steps := next_steps(summary):
        yield _list("Next", (f"`{command}`: {_plain(why)}" if command else _plain(why) for command, why in steps))


def next_steps(summary: Summary) -> list[tuple[str, str]]:
    """Return what a person can do next: (command, what it does), or ("", what there is to know)."""
    waits, is_slower = summary.outcome.waits, bool(summary.of(VerdictKind.REGRESSION))
    is_compared = summary.green and (waits or summary.outcome is NightlyOutcome.REGRESSION)
    is_of_several = any(len(one.verdict.key.hosts) > 1 for one in summary.of(VerdictKind.REGRESSION))
    level = "pairs" if is_of_several else "full"
    own, ladder, baseline = summary.typed, summary.ladder, f"{summary.typed} nightly baseline"
    steps = (
        (
            summary.interrupted,
            "",
            "this run is incomplete: it does not count, and the cells that it did not reach are not judged",
        ),
        (
            summary.unfit,
            "",
            "nothing was judged, and the baseline is unchanged: you can repeat the nightly run at any time",
        ),
        (is_compared, f"{own} bench diff {summary.green} {ladder}", "show everything that differs"),
        (is_slower and not summary.host_notes, f"{own} check --level {level}", "find a slow host or link"),
        (waits, f"{baseline} accept {ladder}", "the results are correct, and the run counts from now on"),
        (waits, f"{baseline} reject {ladder}", "the run does not count, and you are not asked about it again"),
        (waits, f"{baseline} show {summary.matrix}", "list the earlier runs, to reject those with wrong results"),
        (is_slower, f"{baseline} accept {ladder}", "the change is not a regression, and the run counts from now on"),
        (
            waits or is_slower,
            f"{baseline} reset {ladder}",
            "the results are the new normal, and a new baseline starts with this run",
        ),
        (summary.judged or summary.failed, f"{own} bench show {ladder}", f"show each run and its log ({summary.logs})"),
    )
    return [(command, why) for holds, command, why in steps if holds]


def to_json(summary: Summary) -> dict[str, Any]:
    """Return the summary as JSON values, its outcome and exit code among them."""
    return {
        **asdict(summary),
        "outcome": summary.outcome.value,
        "exit_code": summary.exit_code,
        "headline": _headline(summary),
        "next": next_steps(summary),
        "judged": [_judged_json(one) for one in summary.judged],
        "failed": [{**asdict(cell), "why": why} for cell, why in summary.failed],
    }


def _judged_json(one: JudgedMetric) -> dict[str, Any]:
    verdict = one.verdict
    return {
        **asdict(verdict.key),
        "verdict": verdict.kind.value,
        "unit": one.unit,
        "tonight": one.tonight,
        "baseline": one.baseline,
        "change": None if verdict.change is None else asdict(verdict.change),
        "p": verdict.p,
        "why": verdict.why,
    }


def change(one: JudgedMetric) -> str:
    """Return a change in percent with its interval: `-8.1 % [-9.0, -7.2]`."""
    return "" if one.verdict.change is None else percent(one.verdict.change)


def value(measured: float | None, unit: str) -> str:
    """Return a number with its unit, "" for none."""
    return "" if measured is None else f"{number(measured)} {unit}"


def _cause(one: Difference) -> str:
    return f"{', '.join(one.hosts)}: {one.description}" if one.hosts else one.description


def _plain(text: str) -> str:
    """Return a text as it stands in Markdown: on one line, without marks and control characters."""
    shown = "".join(letter if letter.isprintable() else "?" for letter in " ".join(text.split()))
    return _MARKS.sub(r"\\\1", shown)
