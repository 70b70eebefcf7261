"""The judge of a nightly run: which cells are to be measured again, and what each cell's numbers say against its baseline.

Two stages. A screen at 5 % in each cell finds suspects; these are measured again in the same nightly run, and only the fresh
values decide, by Holm's procedure over all that the screen found. What the two stages share, the luck of the nightly run and
the baseline, is allowed for: a fresh p is the probability under no change *given* that the screen found the cell, with
correlation and spread as the baseline shows them (`noise`). No random numbers.
"""

import math
from collections.abc import Iterable, Sequence
from functools import lru_cache
from itertools import starmap, takewhile

from taco_launch.bench.model.runs import MetricKey
from taco_launch.bench.stats import drift, noise, student_t
from taco_launch.bench.stats.estimates import Interval, percent
from taco_launch.bench.stats.noise import NoiseEstimate
from taco_launch.bench.stats.verdicts import JudgeRules, Series, Verdict, VerdictKind
from taco_launch.core.frozen import dataclass

# A loss of a quarter or a gain of a third is never called OK, however noisy the nightly runs are.
_LARGE = math.log(4 / 3)
# Below so many nightly runs the baseline tells little about how they differ: what lies beyond the luck of runs is not OK.
_FEW = 8
# So many nightly runs in a row, each of them unsure, lose something together.
_ROW = 3


def suspects(series: Sequence[Series], rules: JudgeRules) -> tuple[MetricKey, ...]:
    """Return the keys to be measured again: those that differ at the screen's level, unless surely by too little.

    Raises:
        ValueError: two series of one key.
    """
    return tuple(cell.series.key for cell in _judged(series, rules) if cell.suspected(rules))


def verdicts(series: Sequence[Series], rules: JudgeRules) -> tuple[Verdict, ...]:
    """Return a verdict for each series, in their order; `fresh` counts only of those that `suspects` gives.

    Raises:
        ValueError: two series of one key.
    """
    judged = _judged(series, rules)
    found = [cell for cell in judged if cell.p <= rules.screen]
    adjusted = _holm([cell.p_fresh(rules) for cell in found])
    fresh = {cell.series.key: p for cell, p in zip(found, adjusted, strict=True)}
    said = {cell.series.key: _verdict(cell, rules, fresh.get(cell.series.key, 1.0)) for cell in judged}
    for cell in judged:
        # against runs that are not accepted yet, only a loss is reported
        if cell.is_provisional and said[cell.series.key].kind is not VerdictKind.REGRESSION:
            del said[cell.series.key]
    return tuple(said.get(each.key) or _unjudged(each, rules) for each in series)


@dataclass(frozen=True)
class _Cell:
    """A series that can be judged, with how noisy it is; differences are of logarithms, to the baseline's level.

    `p` is the screen's, `p_drift` Holm's of a drift; `noise` has a slope where that is up to JudgeRules.level. One that
    `is_provisional` is held against runs that wait as well, because the accepted ones are too few.
    """

    series: Series
    noise: NoiseEstimate
    tonight: float
    p: float
    p_drift: float
    is_provisional: bool

    @property
    def fresh(self) -> float:
        return noise.centre(_logs(self.series.fresh)) - self.noise.level

    def suspected(self, rules: JudgeRules) -> bool:
        """Return whether the screen found it, and its interval reaches what matters."""
        if self.p > rules.screen:
            return False
        found = self.change(self.tonight, len(self.series.tonight), 1 - rules.screen)
        assert found.low is not None
        assert found.high is not None
        return (found.low if self.tonight < 0 else -found.high) <= -rules.min_effect

    def is_clear(self, rules: JudgeRules) -> bool:
        """Return whether both measurements of tonight lie wholly beyond what matters, on one side."""
        values = self.series.tonight, self.series.fresh
        found = [
            self.change(*each, rules.clear) for each in zip((self.tonight, self.fresh), map(len, values), strict=True)
        ]
        return any(all(_is_beyond(each, rules.min_effect, side) for each in found) for side in (-1, 1))

    def change(self, difference: float, count: int, level: float) -> Interval:
        half = student_t.quantile((1 - level) / 2, self.noise.freedom) * self.noise.error(count)
        return Interval(*(math.expm1(each) for each in (difference, difference - half, difference + half)))

    def p_fresh(self, rules: JudgeRules) -> float:
        """Return the probability of fresh values as far off on the side that was suspected, given that it was; else 1."""
        if not (self.series.fresh and self.suspected(rules)):
            return 1.0
        off = math.copysign(self.fresh, self.fresh * self.tonight)
        counts = len(self.series.fresh), len(self.series.tonight)
        error = self.noise.error(counts[0])
        if off <= 0 or error == 0:
            return float(off <= 0)
        freedom = self.noise.freedom
        limit = student_t.quantile(rules.screen / 2, freedom)
        both = student_t.both_tail(off / error, limit, self.noise.correlation(*counts), freedom)
        return min(both / (rules.screen / 2), 1.0)


def _judged(series: Sequence[Series], rules: JudgeRules) -> tuple[_Cell, ...]:
    if len({each.key for each in series}) < len(series):
        raise ValueError("two series of one key")
    held = [(each, _held_against(each, rules)) for each in series if each.tonight]
    can = [(each, nightly_runs) for each, nightly_runs in held if nightly_runs]
    known = [_known(nightly_runs, math.log1p(rules.min_effect)) for _series, nightly_runs in can]
    steady = _holm([trend.p if trend and trend.steady else 1.0 for _noise, trend in known])
    own = [
        noise.along(each, trend.slope) if trend and p <= rules.level else each
        for (each, trend), p in zip(known, steady, strict=True)
    ]
    judged = [each for each, _nightly_runs in can]
    provisional = [not _enough(_counting(each.baseline, rules), rules) for each in judged]
    return tuple(starmap(_cell, zip(judged, noise.moderated(own), steady, provisional, strict=True)))


def _held_against(series: Series, rules: JudgeRules) -> tuple[tuple[float, ...], ...]:
    """Return the nightly runs that tonight is held against: those that count; if they are too few, those that wait, too.

    Empty if even these are too few.
    """
    every = (*series.baseline, *series.waiting)
    choices = (_counting(series.baseline, rules), _counting(every, rules), every[-rules.nightly_runs :])
    return next((nightly_runs for nightly_runs in choices if _enough(nightly_runs, rules)), ())


def _counting(nightly_runs: tuple[tuple[float, ...], ...], rules: JudgeRules) -> tuple[tuple[float, ...], ...]:
    """Return the last nightly runs, without outliers: one that is far off widens the spread so far that anything is as before."""
    nightly_runs = nightly_runs[-rules.nightly_runs :]
    off = noise.outliers([_logs(nightly_run) for nightly_run in nightly_runs])
    return tuple(nightly_run for place, nightly_run in enumerate(nightly_runs) if place not in off)


def _enough(nightly_runs: Sequence[Sequence[float]], rules: JudgeRules) -> bool:
    return len(nightly_runs) >= rules.least_nightly_runs and sum(map(len, nightly_runs)) >= rules.least


# A nightly run is judged twice: for its suspects, then with what these gave.
@lru_cache(maxsize=1024)
def _known(nightly_runs: tuple[tuple[float, ...], ...], least: float) -> tuple[NoiseEstimate, drift.Trend | None]:
    known = noise.of([_logs(nightly_run) for nightly_run in nightly_runs])
    return known, drift.trend(known.nightly_runs, least)


def _cell(series: Series, known: NoiseEstimate, p_drift: float, is_provisional: bool) -> _Cell:
    tonight = noise.centre(_logs(series.tonight)) - known.level
    error = known.error(len(series.tonight))
    p = 2 * student_t.tail(abs(tonight) / error, known.freedom) if error else float(abs(tonight) < noise.ROUNDING)
    return _Cell(series, known, tonight, p, p_drift, is_provisional)


def _holm(found: Sequence[float]) -> list[float]:
    """Return Holm's adjusted p of each (1979), in their order: to be held against the level of all together."""
    adjusted, largest = [1.0] * len(found), 0.0
    for before, place in enumerate(sorted(range(len(found)), key=found.__getitem__)):
        largest = max(largest, min((len(found) - before) * found[place], 1.0))
        adjusted[place] = largest
    return adjusted


def _unjudged(series: Series, rules: JudgeRules) -> Verdict:
    if not series.tonight:
        return Verdict(series.key, VerdictKind.NO_SAMPLE, None, None, "no run gave a number")
    nightly_runs = _counting(series.baseline, rules)
    values = sum(map(len, nightly_runs))
    if not nightly_runs and series.waiting:
        count = len(series.waiting)
        why = f"no nightly run is in the baseline, and {count} wait{'' if count > 1 else 's'} for review: accept those with correct results"
        return Verdict(series.key, VerdictKind.PENDING, None, None, why)
    if nightly_runs:
        off = noise.off_from_few(
            [_logs(nightly_run) for nightly_run in nightly_runs], _logs(series.tonight), math.log1p(rules.min_effect)
        )
        if off:
            change = Interval(math.expm1(off), None, None)
            so_far = f"{len(nightly_runs)} nightly run{'s' if nightly_runs[1:] else ''} so far"
            why = f"{percent(change)} against the {so_far}: accept or reject this run; if the earlier runs are wrong, reject them"
            return Verdict(series.key, VerdictKind.PENDING, change, None, why)
    count, values = len(nightly_runs) + 1, values + len(series.tonight)
    why = f"has {count} of {rules.least_nightly_runs} nightly runs"
    if values < rules.least:
        why += f", {values} of {rules.least} values"
    if count >= rules.least_nightly_runs and values >= rules.least:
        why = "is complete: the next nightly run will be judged"
    why = f"with this one the baseline {why}"
    return Verdict(series.key, VerdictKind.NO_VERDICT_YET, None, None, why)


def _verdict(cell: _Cell, rules: JudgeRules, fresh: float) -> Verdict:
    key, known, series = cell.series.key, cell.noise, cell.series
    change, p = cell.change(cell.tonight, len(series.tonight), rules.clear), cell.p
    against = f"against {'the drift of ' if known.slope else ''}{len(known.nightly_runs)} nightly runs"
    left_out = len(series.baseline[-rules.nightly_runs :]) - len(known.nightly_runs)
    if cell.is_provisional:
        against += ", of which some wait to be accepted"
    elif left_out:
        against += f" ({left_out} outlier{'s' if left_out > 1 else ''} left out)"
    why = f"{percent(change)} {against}"
    if cell.suspected(rules):
        why = f"{_side(cell, cell.tonight)}: {why}"
        if not series.fresh:
            kind, told = VerdictKind.NO_SAMPLE, "but measuring it again gave no number"
            kind, told = (VerdictKind.UNSURE, "and it was not measured again") if series.cut else (kind, told)
            return Verdict(key, kind, change, p, f"{why}, {told}")
        again = f"measured again {_times(series.fresh)}"
        change, p = cell.change(cell.fresh, len(series.fresh), rules.clear), fresh
        if (p <= rules.level and abs(change.value) >= rules.min_effect) or cell.is_clear(rules):
            side = _side(cell, cell.fresh)
            kind = VerdictKind.IMPROVEMENT if side == "better" else VerdictKind.REGRESSION
            why = f"{side}: {percent(change)} {against}, {again}: {_since(cell)}"
            if kind is VerdictKind.IMPROVEMENT and abs(cell.fresh) >= _LARGE:
                kind, why = VerdictKind.PENDING, f"{why}; a gain this large counts only after you accept it"
            return Verdict(key, kind, change, p, why)
        why += f", but {percent(change)} when {again}"
        if (
            abs(change.value) >= rules.min_effect
            and not known.slope
            and _side(cell, cell.fresh) == _side(cell, cell.tonight)
        ):
            unsure = Verdict(key, VerdictKind.UNSURE, change, p, f"{why}: the nightly runs differ too much to be sure")
            return _together(cell, rules) or unsure
    if known.slope:
        total = known.slope * (len(known.nightly_runs) - 1)
        change = Interval(math.expm1(total), None, None)
        why = f"{_side(cell, total)}: {percent(change)} in {len(known.nightly_runs)} nightly runs, gradually, without a step"
        return Verdict(key, VerdictKind.DRIFT, change, cell.p_drift, why)
    kind = VerdictKind.OK
    if abs(change.value) >= rules.min_effect:
        why += ": the nightly runs differ too much to be sure"
        large = abs(math.log1p(change.value)) >= _LARGE
        kind = VerdictKind.UNSURE if large or _is_off_from_few(cell, rules) else kind
        if kind is VerdictKind.UNSURE:
            return _together(cell, rules) or Verdict(key, kind, change, p, why)
    elif p <= rules.screen:
        why += f": less than minEffect, which is {100 * rules.min_effect:g} %"
    return Verdict(key, kind, change, p, why)


def _is_off_from_few(cell: _Cell, rules: JudgeRules) -> bool:
    """Return whether tonight lies beyond what the luck of runs explains, where few nightly runs were accepted so far."""
    nightly_runs = _counting(cell.series.baseline, rules)
    if len(nightly_runs) >= _FEW:
        return False
    least = math.log1p(rules.min_effect)
    return (
        noise.off_from_few([_logs(nightly_run) for nightly_run in nightly_runs], _logs(cell.series.tonight), least) != 0
    )


def _together(cell: _Cell, rules: JudgeRules) -> Verdict | None:
    """Return that the last nightly runs in a row, each of which alone is unsure, lost something together; else None.

    They are held against all earlier ones, those that wait included: the accepted ones alone differ less than runs do.
    """
    series, least = cell.series, rules.min_effect
    tonight = noise.centre(_logs((*series.tonight, *series.fresh)))
    waiting = [noise.centre(_logs(nightly_run)) for nightly_run in series.waiting]
    lost = list(takewhile(lambda each: _is_loss(cell, each, least), reversed((*waiting, tonight))))
    before = series.baseline[-rules.nightly_runs :] + series.waiting[: len(waiting) + 1 - len(lost)]
    if cell.noise.slope or len(lost) < _ROW or len(before) < rules.least_nightly_runs:
        return None
    known = noise.of([_logs(nightly_run) for nightly_run in before])
    change = noise.of_row(known, [each - known.level for each in lost], rules.clear)
    is_large = abs(math.log1p(change.value)) >= _LARGE
    if not (is_large and _is_beyond(change, least, -1 if series.higher_is_better else 1)):
        return None
    why = f"worse: {percent(change)} in the last {len(lost)} nightly runs combined, compared with the {len(before)} before them"
    return Verdict(series.key, VerdictKind.REGRESSION, change, None, why)


def _is_beyond(change: Interval, least: float, side: int) -> bool:
    """Return whether an interval lies wholly beyond `least`, on the side of losses (-1) or gains (1) of a number."""
    assert change.low is not None
    assert change.high is not None
    return change.high <= -least if side < 0 else change.low >= least


def _is_loss(cell: _Cell, centre: float, least: float) -> bool:
    return _side(cell, centre - cell.noise.level) == "worse" and abs(centre - cell.noise.level) >= least


def _since(cell: _Cell) -> str:
    """Return where the step lies that fits the nightly runs and tonight best."""
    if cell.noise.slope:
        return "a step in addition to the drift"
    nightly_runs = cell.noise.nightly_runs
    after = len(nightly_runs) - drift.since((*nightly_runs, cell.noise.level + cell.fresh))
    if not after:
        return "a step that none of the accepted nightly runs shows"
    return f"a step that the last {f'{after} accepted nightly runs show' if after > 1 else 'accepted nightly run shows'} too"


def _side(cell: _Cell, difference: float) -> str:
    return "better" if (difference > 0) is cell.series.higher_is_better else "worse"


def _times(values: Sequence[float]) -> str:
    return f"{len(values)} times" if len(values) > 1 else "once"


def _logs(values: Iterable[float]) -> list[float]:
    return [math.log(value) for value in values]
