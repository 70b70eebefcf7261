"""Tells a slow drift of nightly runs from a step: whether they trend, and whether a line or one step fits them better.

Everything here is of ranks and medians: a nightly run that stands out does not make a trend.
"""

import math
from collections.abc import Sequence
from itertools import combinations
from statistics import median

from taco_launch.core.frozen import dataclass


@dataclass(frozen=True)
class Trend:
    """The trend of consecutive nightly runs: `slope` per run (Theil and Sen), and `p` of Kendall's test against no trend.

    `steady` says that a line fits no worse than one step.
    """

    slope: float
    p: float
    steady: bool


def trend(nightly_runs: Sequence[float], least: float) -> Trend | None:
    """Return the trend of at least three nightly runs, oldest first; None where it does not sum up to `least`."""
    count = len(nightly_runs)
    slope = median(
        [(nightly_runs[at + by] - nightly_runs[at]) / by for by in range(1, count) for at in range(count - by)]
    )
    if abs(slope) * (count - 1) < least:
        return None
    level = median(value - slope * place for place, value in enumerate(nightly_runs))
    line = math.fsum(abs(value - level - slope * place) for place, value in enumerate(nightly_runs))
    return Trend(slope, _kendall(nightly_runs), steady=line <= _step(nightly_runs)[1])


def since(nightly_runs: Sequence[float]) -> int:
    """Return the place of the first nightly run after the one step that fits best."""
    return _step(nightly_runs)[0]


def _step(nightly_runs: Sequence[float]) -> tuple[int, float]:
    """Return the place of the best step, and how far the nightly runs lie from its two levels, summed up."""
    fits = (
        (_scatter(nightly_runs[:place]) + _scatter(nightly_runs[place:]), place)
        for place in range(1, len(nightly_runs))
    )
    scatter, place = min(fits)
    return place, scatter


def _scatter(values: Sequence[float]) -> float:
    middle = median(values)
    return math.fsum(abs(value - middle) for value in values)


def _kendall(nightly_runs: Sequence[float]) -> float:
    """Return the two-sided p of Kendall's test: normal, with the correction for continuity.

    Never below the exact one from 10 nightly runs on where that is under 0.05; ties, which are not allowed for, make it
    larger too.
    """
    count = len(nightly_runs)
    score = abs(sum((later > one) - (later < one) for one, later in combinations(nightly_runs, 2)))
    spread = math.sqrt(count * (count - 1) * (2 * count + 5) / 18)
    return math.erfc(max(score - 1, 0) / spread / math.sqrt(2))
