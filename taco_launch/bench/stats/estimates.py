"""A mean, and a ratio of two means, with what the values carry: confidence intervals after Student and Welch."""

import math
from collections.abc import Sequence
from statistics import fmean, stdev

from taco_launch.bench.stats import student_t
from taco_launch.core.frozen import dataclass


@dataclass(frozen=True)
class Interval:
    """An estimate and its confidence interval; bounds are None where there are too few values for any."""

    value: float
    low: float | None
    high: float | None


def require() -> None:
    """See that intervals can be had, before a long measuring starts.

    Raises:
        TacoLaunchError: scipy is not installed; says how it is.
    """
    student_t.special()


def interval(values: Sequence[float], level: float = 0.95) -> Interval:
    """Return the mean with Student's interval; without bounds where there is one value only.

    Raises:
        TacoLaunchError: scipy is not installed.
        ValueError: no values, one that is not finite, or a level that is not between 0 and 1.
    """
    _check(values, level)
    mean = fmean(values)
    if len(values) < 2:
        return Interval(mean, None, None)
    half = spread(len(values), level) * stdev(values, mean)
    return Interval(mean, mean - half, mean + half)


def spread(count: int, level: float = 0.95) -> float:
    """Return half the length of Student's interval of `count` values, at least 2, in their standard deviations.

    Raises:
        TacoLaunchError: scipy is not installed.
    """
    return student_t.quantile((1 - level) / 2, count - 1) / math.sqrt(count)


def ratio(values: Sequence[float], reference: Sequence[float], level: float = 0.95) -> Interval:
    """Return the mean of `values` by that of `reference`; without bounds where either is one value only.

    The interval is Welch's, made of the logarithms of the means: it never reaches below 0, and that of the inverse is
    its inverse. A mean's standard error, relative to the mean, is that of its logarithm (the delta method).

    Raises:
        TacoLaunchError: scipy is not installed.
        ValueError: no values, one that is not finite or not positive, or a level that is not between 0 and 1.
    """
    for each in (values, reference):
        _check(each, level)
        if min(each) <= 0:
            raise ValueError(f"a ratio of {min(each)!r}: rates and times are positive")
    over, under = fmean(values), fmean(reference)
    counts = (len(values), len(reference))
    if min(counts) < 2:
        return Interval(over / under, None, None)
    parts = (_squared_error(values, over) / over**2, _squared_error(reference, under) / under**2)
    both = math.fsum(parts)
    if both == 0:
        return Interval(over / under, over / under, over / under)
    # Welch and Satterthwaite; shares of the whole, since the square of a tiny variance may be 0
    freedom = 1 / math.fsum((part / both) ** 2 / (count - 1) for part, count in zip(parts, counts, strict=True))
    factor = math.exp(student_t.quantile((1 - level) / 2, freedom) * math.sqrt(both))
    return Interval(over / under, over / under / factor, over / under * factor)


def percent(change: Interval) -> str:
    """Return a change, a fraction, as `-5.1 % [-6.9, -3.2]`; never as -0.0."""
    value, *bounds = (
        round(100 * each, 1) or 0.0 for each in (change.value, change.low, change.high) if each is not None
    )
    return f"{value:+.1f} % [{', '.join(f'{bound:.1f}' for bound in bounds)}]" if bounds else f"{value:+.1f} %"


def _squared_error(values: Sequence[float], mean: float) -> float:
    """Return the variance of the mean."""
    return math.fsum((value - mean) ** 2 for value in values) / (len(values) - 1) / len(values)


def _check(values: Sequence[float], level: float) -> None:
    if not values:
        raise ValueError("an estimate of no values")
    if not all(map(math.isfinite, values)):
        raise ValueError(f"an estimate of a value that is not finite: {list(values)!r}")
    if not 0 < level < 1:
        raise ValueError(f"a confidence level of {level!r}: it must lie between 0 and 1")
