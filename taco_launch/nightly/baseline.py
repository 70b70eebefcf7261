"""List the nightly runs that a baseline is made of, which are far from the others, and those that wait or were rejected."""

import math
from collections.abc import Sequence

from taco_launch.bench.history.history import History, Ladder, LadderKind
from taco_launch.bench.runs import Cell, Run
from taco_launch.bench.stats import noise
from taco_launch.frozen import dataclass
from taco_launch.nightly.summary import NightlyOutcome, cell_name

# The outcome of a nightly run that a person has taken out.
REJECTED = "rejected"


@dataclass(frozen=True)
class BaselineEntry:
    """A nightly run; `outlier` says in which cell it is how far from the others that count, "" where it is not."""

    ladder: Ladder
    outlier: str = ""


def entries(history: History, matrix: str, cluster: str) -> tuple[BaselineEntry, ...]:
    """Return the nightly runs of a matrix on a cluster that count, wait for a decision or were rejected, the newest first."""
    others = [
        one
        for one in history.ladders(LadderKind.NIGHT, matrix)
        if one.cluster == cluster and not one.accepted and (one.outcome == REJECTED or _waits(one.outcome))
    ]
    counting = history.baseline(matrix, cluster)
    far = _outliers([[run for _at, run in history.runs(one.id)] for one in counting])
    found = [BaselineEntry(one, far.get(place, "")) for place, one in enumerate(counting)]
    found += map(BaselineEntry, others)
    return tuple(sorted(found, key=lambda entry: entry.ladder.started, reverse=True))


def _waits(outcome: str) -> bool:
    return outcome in {each.value for each in NightlyOutcome if each.waits}


def _outliers(nights: Sequence[Sequence[Run]]) -> dict[int, str]:
    """Return by place which nightly runs are far from the others, with the first cell and metric that shows it."""
    values: dict[tuple[Cell, str], dict[int, list[float]]] = {}
    for place, runs in enumerate(nights):
        for run in runs:
            for reading in () if run.warm_up else run.readings:
                of_night = values.setdefault((run.cell, reading.metric.name), {})
                of_night.setdefault(place, []).append(math.log(reading.value))
    far: dict[int, str] = {}
    for (cell, _metric), of_night in values.items():
        places = list(of_night)
        measured = [of_night[place] for place in places]
        for at in noise.outliers(measured):
            change = math.expm1(noise.off(measured[at], measured[:at] + measured[at + 1 :]))
            far.setdefault(places[at], f"{cell_name(cell)}: {100 * change:+.0f} %")
    return far
