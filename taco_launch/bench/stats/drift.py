"""Tells a slow drift of nightly runs from a step: whether they trend, and whether a line or one step fits them better.

Everything here is of ranks and medians: a nightly run that stands out does not make a trend.
"""

import math
from collections.abc import Sequence
from itertools import combinations
from statistics import median

from taco_launch.frozen import dataclass


@dataclass(frozen=True)
class Trend:
    """What nightly runs in a row say: `slope` by night (Theil and Sen), `p` that of Kendall's test against no trend.

    `steady` says that a line fits no worse than one step.
    """

    slope: float
    p: float
    steady: bool


def trend(nights: Sequence[float], least: float) -> Trend | None:
    """Return the trend of at least three nightly runs, oldest first; None where it does not sum up to `least`."""
    count = len(nights)
    slope = median([(nights[at + by] - nights[at]) / by for by in range(1, count) for at in range(count - by)])
    if abs(slope) * (count - 1) < least:
        return None
    level = median(value - slope * place for place, value in enumerate(nights))
    line = math.fsum(abs(value - level - slope * place) for place, value in enumerate(nights))
    return Trend(slope, _kendall(nights), steady=line <= _step(nights)[1])


def since(nights: Sequence[float]) -> int:
    """Return the place of the first night after the one step that fits best."""
    return _step(nights)[0]


def _step(nights: Sequence[float]) -> tuple[int, float]:
    """Return the place of the best step, and how far the nightly runs lie from its two levels, summed up."""
    fits = ((_scatter(nights[:place]) + _scatter(nights[place:]), place) for place in range(1, len(nights)))
    scatter, place = min(fits)
    return place, scatter


def _scatter(values: Sequence[float]) -> float:
    middle = median(values)
    return math.fsum(abs(value - middle) for value in values)


def _kendall(nights: Sequence[float]) -> float:
    """Return the two-sided p of Kendall's test: normal, with the correction for continuity.

    Never below the exact one from 10 nightly runs on where that is under 0.05; ties, which are not allowed for, make it
    larger too.
    """
    count = len(nights)
    score = abs(sum((later > one) - (later < one) for one, later in combinations(nights, 2)))
    spread = math.sqrt(count * (count - 1) * (2 * count + 5) / 18)
    return math.erfc(max(score - 1, 0) / spread / math.sqrt(2))
