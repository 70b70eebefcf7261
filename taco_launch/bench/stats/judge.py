"""The judge of a nightly run: which cells are to be measured again, and what each cell's numbers say against its baseline.

Two stages. A screen at 5 % in each cell finds suspects; these are measured again in the same night, and only the fresh
values decide, by Holm's procedure over all that the screen found. What the two stages share, the luck of the nightly run and
the baseline, is allowed for: a fresh p is the probability under no change *given* that the screen found the cell, with
correlation and spread as the baseline shows them (`noise`). No random numbers.
"""

import math
from collections.abc import Iterable, Sequence
from enum import Enum
from functools import lru_cache
from itertools import starmap

from taco_launch.bench.runs import MetricKey
from taco_launch.bench.stats import drift, noise, student_t
from taco_launch.bench.stats.estimates import Interval, percent
from taco_launch.bench.stats.noise import NoiseEstimate
from taco_launch.frozen import dataclass

# A loss of a quarter or a gain of a third is never called OK, however noisy the nightly runs are.
_LARGE = math.log(4 / 3)
# Below so many nightly runs the baseline tells little about how they differ: what lies beyond the luck of runs is not OK.
_FEW = 8


class VerdictKind(Enum):
    """What is said of a cell.

    UNSURE is what differed twice by what matters, or by a quarter, where the nightly runs of the baseline differ too much among
    themselves.
    PENDING is what differs from the few nightly runs of a baseline that is being built, or gained so much that an error is
    likelier: a person accepts or rejects it.
    """

    OK = "ok"
    UNSURE = "unsure"
    REGRESSION = "regression"
    IMPROVEMENT = "improvement"
    DRIFT = "drift"
    PENDING = "pending"
    NO_VERDICT_YET = "no verdict yet"
    NO_SAMPLE = "no sample"


@dataclass(frozen=True)
class JudgeRules:
    """What the judge goes by.

    `min_effect` is the smallest change that matters, as a fraction, of the point estimate. `screen` is the level of the
    first stage in each cell, `level` that of all verdicts of a nightly run together: of nightly runs in which nothing changed, no
    more than about this fraction has a change called. The baseline are the last `nights` accepted nightly runs, with at
    least `least` values, of at least `least_nights`: the runs of one nightly run share its luck, so that only nightly runs tell how
    nightly runs differ. `fresh` is how many values of a suspect are to be measured. Whatever `level` says, a change is called
    where the interval of both measurements at the level `clear` lies wholly beyond `min_effect`.

    Raises:
        ValueError: a rule that cannot be.
    """

    min_effect: float = 0.03
    screen: float = 0.05
    level: float = 0.01
    nights: int = 20
    least: int = 10
    least_nights: int = 3
    fresh: int = 10
    clear: float = 0.98

    def __post_init__(self) -> None:
        """Refuse what cannot be."""
        for name in ("min_effect", "screen", "level", "clear"):
            value = getattr(self, name)
            if not 0 < value < 1:
                raise ValueError(f"{name} of {value!r}: it lies between 0 and 1")
        if not 3 <= self.least_nights <= self.nights:
            raise ValueError(
                f"least_nights of {self.least_nights!r}: 3 or more, and no more than {self.nights!r} nightly runs"
            )
        for name in ("least", "fresh"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} of {getattr(self, name)!r}: 1 or more")


@dataclass(frozen=True)
class Series:
    """All numbers of a key: of each accepted nightly run, oldest first; of tonight; and those measured again tonight.

    Raises:
        ValueError: a number that is not finite or not positive, or a nightly run of the baseline without any.
    """

    key: MetricKey
    higher_is_better: bool
    baseline: tuple[tuple[float, ...], ...]
    tonight: tuple[float, ...]
    fresh: tuple[float, ...] = ()

    def __post_init__(self) -> None:
        """Refuse what no benchmark gives."""
        for values in (*self.baseline, self.tonight, self.fresh):
            for value in values:
                if not 0 < value < math.inf:
                    raise ValueError(f"{_named(self.key)}: {value!r} is no rate, size or time")
        if not all(self.baseline):
            raise ValueError(f"{_named(self.key)}: a nightly run of the baseline has no values")


@dataclass(frozen=True)
class Verdict:
    """What is said of one key, and `why` in one plain sentence.

    `change` is tonight's centre by the baseline's, less 1, with its interval at the level `clear`, which holds the luck of nightly runs; it is
    made of the fresh values of a suspect that has any. Of a drift it is what the line says of all nightly runs, without an
    interval; where there is one, tonight is held against that line instead of the baseline's centre. `p` is Holm's of a
    suspect with fresh values and of a drift (called up to JudgeRules.level), else the screen's. None where nothing was
    judged.
    """

    key: MetricKey
    kind: VerdictKind
    change: Interval | None
    p: float | None
    why: str


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
    return tuple(said.get(each.key) or _unjudged(each, rules) for each in series)


@dataclass(frozen=True)
class _Cell:
    """A series that can be judged, with how noisy it is; differences are of logarithms, to the baseline's level.

    `p` is the screen's, `p_drift` Holm's of a drift; `noise` has a slope where that is up to JudgeRules.level.
    """

    series: Series
    noise: NoiseEstimate
    tonight: float
    p: float
    p_drift: float

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
        return all(each.high is not None and each.high <= -rules.min_effect for each in found) or all(
            each.low is not None and each.low >= rules.min_effect for each in found
        )

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
    held = [(each, _counting(each, rules)) for each in series if each.tonight]
    can = [(each, nights) for each, nights in held if _enough(nights, rules)]
    known = [_known(nights, math.log1p(rules.min_effect)) for _series, nights in can]
    steady = _holm([trend.p if trend and trend.steady else 1.0 for _noise, trend in known])
    own = [
        noise.along(each, trend.slope) if trend and p <= rules.level else each
        for (each, trend), p in zip(known, steady, strict=True)
    ]
    judged = [each for each, _nights in can]
    return tuple(starmap(_cell, zip(judged, noise.moderated(own), steady, strict=True)))


def _counting(series: Series, rules: JudgeRules) -> tuple[tuple[float, ...], ...]:
    """Return the nightly runs of the baseline that tonight is held against: the last ones, without outliers.

    One that is far off widens the spread so far that anything is as before.
    """
    nights = series.baseline[-rules.nights :]
    off = noise.outliers([_logs(night) for night in nights])
    return tuple(night for place, night in enumerate(nights) if place not in off)


def _enough(nights: Sequence[Sequence[float]], rules: JudgeRules) -> bool:
    return len(nights) >= rules.least_nights and sum(map(len, nights)) >= rules.least


# A nightly run is judged twice: for its suspects, then with what these gave.
@lru_cache(maxsize=1024)
def _known(nights: tuple[tuple[float, ...], ...], least: float) -> tuple[NoiseEstimate, drift.Trend | None]:
    known = noise.of([_logs(night) for night in nights])
    return known, drift.trend(known.nights, least)


def _cell(series: Series, known: NoiseEstimate, p_drift: float) -> _Cell:
    tonight = noise.centre(_logs(series.tonight)) - known.level
    error = known.error(len(series.tonight))
    p = 2 * student_t.tail(abs(tonight) / error, known.freedom) if error else float(abs(tonight) < noise.ROUNDING)
    return _Cell(series, known, tonight, p, p_drift)


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
    nights = _counting(series, rules)
    values = sum(map(len, nights))
    if nights:
        off = noise.off_from_few(
            [_logs(night) for night in nights], _logs(series.tonight), math.log1p(rules.min_effect)
        )
        if off:
            change = Interval(math.expm1(off), None, None)
            so_far = f"{len(nights)} nightly run{'s' if nights[1:] else ''} so far"
            why = f"{percent(change)} against the {so_far}: accept it or reject it; if the earlier ones are wrong, reject those"
            return Verdict(series.key, VerdictKind.PENDING, change, None, why)
    count, values = len(nights) + 1, values + len(series.tonight)
    why = f"has {count} of {rules.least_nights} nightly runs, {values} of {rules.least} values"
    if count >= rules.least_nights and values >= rules.least:
        why = "is complete: the next nightly run is judged"
    why = f"with this one the baseline {why}"
    return Verdict(series.key, VerdictKind.NO_VERDICT_YET, None, None, why)


def _verdict(cell: _Cell, rules: JudgeRules, fresh: float) -> Verdict:
    key, known, series = cell.series.key, cell.noise, cell.series
    change, p = cell.change(cell.tonight, len(series.tonight), rules.clear), cell.p
    against = f"against {'the drift of ' if known.slope else ''}{len(known.nights)} nightly runs"
    left_out = len(series.baseline[-rules.nights :]) - len(known.nights)
    if left_out:
        against += f" ({left_out} outlier{'s' if left_out > 1 else ''} left out)"
    why = f"{percent(change)} {against}"
    if cell.suspected(rules):
        why = f"{_side(cell, cell.tonight)}: {why}"
        if not series.fresh:
            return Verdict(key, VerdictKind.NO_SAMPLE, change, p, f"{why}, but measuring it again gave no number")
        again = f"measured again {_times(series.fresh)}"
        change, p = cell.change(cell.fresh, len(series.fresh), rules.clear), fresh
        if (p <= rules.level and abs(change.value) >= rules.min_effect) or cell.is_clear(rules):
            side = _side(cell, cell.fresh)
            kind = VerdictKind.IMPROVEMENT if side == "better" else VerdictKind.REGRESSION
            why = f"{side}: {percent(change)} {against}, {again}: {_since(cell)}"
            if kind is VerdictKind.IMPROVEMENT and abs(cell.fresh) >= _LARGE:
                kind, why = VerdictKind.PENDING, f"{why}; a gain this large counts once it is accepted"
            return Verdict(key, kind, change, p, why)
        why += f", but {percent(change)} when {again}"
        if (
            abs(change.value) >= rules.min_effect
            and not known.slope
            and _side(cell, cell.fresh) == _side(cell, cell.tonight)
        ):
            return Verdict(key, VerdictKind.UNSURE, change, p, f"{why}: the nightly runs differ too much to be sure")
    if known.slope:
        total = known.slope * (len(known.nights) - 1)
        change = Interval(math.expm1(total), None, None)
        why = (
            f"{_side(cell, total)}: {percent(change)} in {len(known.nights)} nightly runs, little by little, by no step"
        )
        return Verdict(key, VerdictKind.DRIFT, change, cell.p_drift, why)
    kind = VerdictKind.OK
    if abs(change.value) >= rules.min_effect:
        why += ": the nightly runs differ too much to be sure"
        large = abs(math.log1p(change.value)) >= _LARGE
        kind = VerdictKind.UNSURE if large or _is_off_from_few(cell, rules) else kind
    elif p <= rules.screen:
        why += f": less than the {100 * rules.min_effect:g} % that matter"
    return Verdict(key, kind, change, p, why)


def _is_off_from_few(cell: _Cell, rules: JudgeRules) -> bool:
    """Return whether tonight lies beyond what the luck of runs explains, where few nightly runs were accepted so far."""
    nights = _counting(cell.series, rules)
    if len(nights) >= _FEW:
        return False
    least = math.log1p(rules.min_effect)
    return noise.off_from_few([_logs(night) for night in nights], _logs(cell.series.tonight), least) != 0


def _since(cell: _Cell) -> str:
    """Return where the step lies that fits the nightly runs and tonight best."""
    if cell.noise.slope:
        return "a step besides the drift"
    nights = cell.noise.nights
    after = len(nights) - drift.since((*nights, cell.noise.level + cell.fresh))
    if not after:
        return "a step that none of the accepted nightly runs shows"
    return f"a step that the last {f'{after} accepted nightly runs show' if after > 1 else 'accepted nightly run shows'} too"


def _side(cell: _Cell, difference: float) -> str:
    return "better" if (difference > 0) is cell.series.higher_is_better else "worse"


def _times(values: Sequence[float]) -> str:
    return f"{len(values)} times" if len(values) > 1 else "once"


def _named(key: MetricKey) -> str:
    return f"{key.workload}, {key.variant}, {key.ranks} rank(s), {key.metric}"


def _logs(values: Iterable[float]) -> list[float]:
    return [math.log(value) for value in values]
