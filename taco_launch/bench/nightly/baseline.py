"""List the nightly runs of a matrix: which count, which are far from the others, and which of those that wait are not."""

import math
from collections.abc import Sequence

from taco_launch.bench.history.history import History, Ladder, LadderKind
from taco_launch.bench.model.runs import Cell
from taco_launch.bench.nightly.summary import NightlyOutcome, cell_name
from taco_launch.bench.stats import noise
from taco_launch.core.frozen import dataclass

# The outcome of a nightly run that a person has taken out, and of one that counts by a person's word alone.
REJECTED, ACCEPTED = "rejected", "accepted"
# The outcomes of nightly runs that wait for a person.
WAITING = NightlyOutcome.UNSURE.value, NightlyOutcome.PENDING.value
_COUNTING = {each.value for each in NightlyOutcome if each.counts}
# By cell, hosts and metric, by the place of the nightly run: the logarithms of what it measured.
_Values = dict[tuple[Cell, tuple[str, ...], str], dict[int, list[float]]]


@dataclass(frozen=True)
class BaselineEntry:
    """A nightly run; `outlier` says in which cell it is how far from the others that count, "" where it is not."""

    ladder: Ladder
    outlier: str = ""

    @property
    def outcome(self) -> str:
        """The outcome of the run, or what the user decided later."""
        by_word = self.ladder.accepted and self.ladder.outcome not in _COUNTING
        return ACCEPTED if by_word else self.ladder.outcome

    @property
    def why_not(self) -> str:
        """Why a run whose outcome counts by itself does not count, "" where it does, or where the outcome tells why."""
        if self.ladder.accepted or self.ladder.outcome not in {*_COUNTING, ACCEPTED}:
            return ""
        return "imported without --baseline" if self.ladder.imported else "before the baseline reset"


def entries(history: History, matrix: str, cluster: str) -> tuple[BaselineEntry, ...]:
    """Return the nightly runs of a matrix on a cluster that have ended, the newest first."""
    counting = history.baseline(matrix, cluster)
    far = _outliers(_values(history, counting))
    outliers = {one.id: far.get(place, "") for place, one in enumerate(counting)}
    return tuple(
        BaselineEntry(one, outliers.get(one.id) or (far_off(history, one) if one.outcome in WAITING else ""))
        for one in history.ladders(LadderKind.NIGHTLY_RUN, matrix)
        if one.cluster == cluster and (one.accepted or one.ended is not None)
    )


def newest(history: History, matrix: str, cluster: str) -> Ladder | None:
    """Return the newest nightly run that counts and is no outlier: what tonight's circumstances are held against."""
    counting = history.baseline(matrix, cluster)
    far = _outliers(_values(history, counting))
    return next((one for place, one in enumerate(counting) if place not in far), None)


def far_off(history: History, one: Ladder) -> str:
    """Return in which cell a nightly run is how far from the others that count, "" where none is off by a quarter."""
    others = [other for other in history.baseline(one.matrix, one.cluster) if other.id != one.id]
    for (cell, _hosts, _metric), of_run in _values(history, [one, *others]).items():
        own, *rest = (of_run.get(place) for place in range(len(others) + 1))
        counted = [each for each in rest if each]
        change = noise.off(own, counted) if own and counted else 0.0
        if abs(change) > noise.OUTLIER:
            return f"{cell_name(cell)}: {100 * math.expm1(change):+.0f} %"
    return ""


def agreeing(history: History, matrix: str, cluster: str) -> tuple[str, ...]:
    """Return the ids of nightly runs that wait and are near the middle of those that count or wait, the oldest first."""
    nightly_runs = [
        one
        for one in reversed(history.ladders(LadderKind.NIGHTLY_RUN, matrix))
        if one.cluster == cluster and (one.accepted or one.outcome in WAITING)
    ]
    far: set[int] = set()
    for of_run in _values(history, nightly_runs).values():
        together = [*of_run.values()]
        far |= {place for place, own in of_run.items() if noise.off_from_few(together, own, noise.OUTLIER)}
    return tuple(one.id for place, one in enumerate(nightly_runs) if not one.accepted and place not in far)


def _outliers(values: _Values) -> dict[int, str]:
    """Return by place which nightly runs are far from the others, with the first cell and metric that shows it."""
    far: dict[int, str] = {}
    for (cell, _hosts, _metric), of_run in values.items():
        places = list(of_run)
        measured = [of_run[place] for place in places]
        for at in noise.outliers(measured):
            change = math.expm1(noise.off(measured[at], measured[:at] + measured[at + 1 :]))
            far.setdefault(places[at], f"{cell_name(cell)}: {100 * change:+.0f} %")
    return far


def _values(history: History, nightly_runs: Sequence[Ladder]) -> _Values:
    values: _Values = {}
    for place, nightly_run in enumerate(nightly_runs):
        for _at, run in history.runs(nightly_run.id):
            for reading in () if run.warm_up else run.readings:
                of_run = values.setdefault((run.cell, run.hosts, reading.metric.name), {})
                of_run.setdefault(place, []).append(math.log(reading.value))
    return values
