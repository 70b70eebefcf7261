"""How noisy a cell is: the centre of a nightly run's values, how nightly runs differ, and what is to be expected of the next one.

Numbers are logarithms of what was measured, so that a difference is a relative one. A nightly run's value is

    level of the cell + luck of the nightly run + luck of the run

and all runs of a nightly run share the nightly run's luck. A run's luck has heavy tails (a run that something disturbed), therefore
the centre of a nightly run is a trimmed mean; centres are close to normal.
"""

import math
from collections.abc import Sequence
from dataclasses import replace
from statistics import fmean, median

from taco_launch.bench.stats import student_t
from taco_launch.bench.stats.estimates import Interval
from taco_launch.core.frozen import dataclass

# Benchmarks print fewer than nine digits: what differs by less is the rounding of sums.
ROUNDING = 1e-9
# What accepted nightly runs may differ by before one is called an outlier.
OUTLIER = math.log(1.25)


@dataclass(frozen=True)
class NoiseEstimate:
    """The noise of one cell in a baseline; `nightly_runs` are the centres of its runs, oldest first, at least three.

    `variance` is that of a nightly run's centre, known with `freedom` degrees of freedom; `run` that of a centre by the
    luck of runs alone, as if it were made of one value; `runs` the mean of 1 / values of each. `slope` is by how much
    a nightly run differs from the one before, 0 without a drift.
    """

    nightly_runs: tuple[float, ...]
    variance: float
    freedom: float
    run: float
    runs: float
    slope: float

    @property
    def level(self) -> float:
        """Return what the next nightly run is expected to be at."""
        return fmean(self.nightly_runs) + self.slope * (len(self.nightly_runs) + 1) / 2

    @property
    def level_error(self) -> float:
        """Return the variance of `level`: of a line to the next nightly run over four times that of a mean."""
        count = len(self.nightly_runs)
        return self.variance / count * (1 + 3 * (count + 1) / (count - 1) if self.slope else 1)

    @property
    def shared(self) -> float:
        """Return the variance that all centres of one nightly run share, held against the baseline: luck of the nightly run, level."""
        return max(self.variance - self.run * self.runs, 0.0) + self.level_error

    def error(self, count: int) -> float:
        """Return the standard error of a new nightly run's centre of `count` values less the level.

        Never below what the luck of runs alone makes: where nightly runs seem to differ by less, that is chance.
        """
        own = self.run / count
        centre = max(self.variance + own - self.run * self.runs, own)
        return math.sqrt(centre + self.level_error)

    def correlation(self, count: int, other: int) -> float:
        """Return the correlation of the centres of so many values, both of one new nightly run, less the level."""
        return min(self.shared / (self.error(count) * self.error(other)), 0.999)


def centre(values: Sequence[float]) -> float:
    """Return the mean without the lowest and the highest fifth; of fewer than five values the mean.

    Of 5 runs with tails as heavy as those of Student's t with 3 (4) degrees of freedom its variance is 0.6 (0.8) of
    the mean's, of normal runs 1.1.
    """
    return _centre(sorted(values))


def of(nightly_runs: Sequence[Sequence[float]]) -> NoiseEstimate:
    """Return how noisy a cell without a drift is, by at least three nightly runs of its own alone."""
    ordered = [sorted(values) for values in nightly_runs]
    return _of(
        tuple(map(_centre, ordered)), _of_runs(ordered), fmean([1 / len(values) for values in nightly_runs]), 0.0
    )


def off_from_few(nightly_runs: Sequence[Sequence[float]], tonight: Sequence[float], least: float) -> float:
    """Return by how much tonight differs from the few nightly runs before it, 0 where that may be the luck of runs.

    How nightly runs differ is not known yet, so only the spread within them counts: three standard errors and `least`.
    """
    ordered = [sorted(values) for values in (*nightly_runs, tonight)]
    found = off(tonight, nightly_runs)
    error = math.sqrt(_of_runs(ordered) * (1 / len(tonight) + 1 / sum(map(len, nightly_runs))))
    return found if abs(found) > least + 3 * error else 0.0


def off(values: Sequence[float], others: Sequence[Sequence[float]]) -> float:
    """Return by how much a nightly run's centre differs from the median of others."""
    return centre(values) - median(map(centre, others))


def outliers(nightly_runs: Sequence[Sequence[float]]) -> tuple[int, ...]:
    """Return the places of nightly runs that are far from the others: more than 25 % and five robust standard deviations.

    The median absolute deviation times 1.4826 is the standard deviation of normal values. Of few nightly runs it is often
    small by chance: it is at least what the luck of runs makes of a centre, and five are 35 of three nightly runs, 20 of
    four and 10 of eight (by simulation, scripts/benchmarks/judge_power.py: the same false alarms and power as without
    outliers left out). Of two, it is unknown which is off.
    """
    if len(nightly_runs) < 3:
        return ()
    ordered = [sorted(values) for values in nightly_runs]
    centres = [_centre(values) for values in ordered]
    middle = median(centres)
    luck = math.sqrt(_of_runs(ordered) * fmean([1 / len(values) for values in nightly_runs]))
    spread = max(1.4826 * median(abs(each - middle) for each in centres), luck)
    far = max(OUTLIER, 5 * (1 + 6 / (len(nightly_runs) - 2)) * spread + ROUNDING)
    return tuple(place for place, each in enumerate(centres) if abs(each - middle) > far)


def _of_runs(ordered: Sequence[Sequence[float]]) -> float:
    """Return the variance that the luck of runs makes of a centre, as if it were made of one value."""
    several = [len(values) * _squared_error(values) for values in ordered if len(values) > 1]
    return fmean(several) if several else 0.0


def of_row(known: NoiseEstimate, row: Sequence[float], level: float) -> Interval:
    """Return the change of several nightly runs together, given by how much each is off: Student's test with one spread."""
    mean = fmean(row)
    freedom = known.freedom + len(row) - 1
    spread = (known.freedom * known.variance + math.fsum((off - mean) ** 2 for off in row)) / freedom
    error = math.sqrt(spread * (1 / len(row) + 1 / len(known.nightly_runs)))
    half = student_t.quantile((1 - level) / 2, freedom) * error
    return Interval(*map(math.expm1, (mean, mean - half, mean + half)))


def along(known: NoiseEstimate, slope: float) -> NoiseEstimate:
    """Return how noisy a cell is that drifts by `slope` each nightly run: by what is left of its nightly runs without that."""
    return _of(known.nightly_runs, known.run, known.runs, slope)


def _of(centres: tuple[float, ...], run: float, runs: float, slope: float) -> NoiseEstimate:
    freedom = len(centres) - (2 if slope else 1)
    variance = _variance([value - slope * place for place, value in enumerate(centres)], freedom)
    # no less than the luck of runs alone makes of a nightly run
    return NoiseEstimate(centres, max(variance, run * runs), freedom, run, runs, slope)


def moderated(known: Sequence[NoiseEstimate]) -> tuple[NoiseEstimate, ...]:
    """Return each cell's noise, of which the other cells of the matrix say something too.

    Ten nightly runs say little of how nightly runs differ: a cell seems quiet by chance, and then every night an event. As far as
    the cells are alike, a cell's variance is therefore drawn to what is usual of them and known with more degrees of
    freedom (Smyth 2004, Linear models and empirical Bayes methods for assessing differential expression: the prior's
    variance and degrees of freedom from mean and variance of the logarithms). It is only ever drawn up: a cell that
    really is noisier than the others keeps its own. Where cells differ widely, nothing is drawn. A cell that never
    varied is left as it is.
    """
    vary = [each for each in known if each.variance > 0]
    if len(vary) < 2:
        return tuple(known)
    off = [student_t.log_chi2(each.freedom) for each in vary]
    logs = [math.log(each.variance) - mean for each, (mean, _variance) in zip(vary, off, strict=True)]
    between = _variance(logs, len(logs) - 1) - fmean(of_log for _mean, of_log in off)
    # no more than all of them together can tell
    most = math.fsum(each.freedom for each in vary)
    freedom = min(2 * student_t.inverse_trigamma(max(between, 1 / most)), most)
    usual = math.exp(fmean(logs) + student_t.log_chi2(freedom)[0])
    return tuple(_drawn(each, usual, freedom, most) if each.variance > 0 else each for each in known)


def _drawn(own: NoiseEstimate, usual: float, freedom: float, most: float) -> NoiseEstimate:
    both = own.freedom + freedom
    variance = max(own.variance, (own.freedom * own.variance + freedom * usual) / both)
    return replace(own, variance=variance, freedom=min(both, most))


def _variance(values: Sequence[float], freedom: int) -> float:
    mean = fmean(values)
    found = math.fsum((value - mean) ** 2 for value in values) / freedom
    return found if found > ROUNDING**2 else 0.0


def _centre(ordered: Sequence[float]) -> float:
    cut = len(ordered) // 5
    return fmean(ordered[cut : len(ordered) - cut])


def _squared_error(ordered: Sequence[float]) -> float:
    """Return the variance of the centre: of the winsorized values (Yuen 1974), with the trimmed mean's divisor."""
    cut = len(ordered) // 5
    kept = ordered[cut : len(ordered) - cut]
    ends = (kept[0], kept[-1])
    middle = (math.fsum(kept) + cut * math.fsum(ends)) / len(ordered)
    squares = [(value - middle) ** 2 for value in kept] + [cut * (value - middle) ** 2 for value in ends]
    found = math.fsum(squares) / (len(kept) * (len(kept) - 1))
    return found if found > ROUNDING**2 else 0.0
