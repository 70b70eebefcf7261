"""Input and output of the nightly judge: the numbers of a cell, the rules, the verdict."""

import math
from enum import Enum

from taco_launch.bench.model.runs import MetricKey
from taco_launch.bench.stats.estimates import Interval
from taco_launch.core.frozen import dataclass


class VerdictKind(Enum):
    """The verdict about a cell.

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
    """The rules of the judge.

    `min_effect` is the smallest change that matters, as a fraction, of the point estimate. `screen` is the level of the
    first stage in each cell, `level` that of all verdicts of a nightly run together: of nightly runs in which nothing changed, no
    more than about this fraction has a change called. The baseline are the last `nightly_runs` accepted nightly runs, with at
    least `least` values, of at least `least_nightly_runs`: the runs of one nightly run share its luck, so that only nightly runs tell how
    nightly runs differ. `fresh` is how many values of a suspect are to be measured. Whatever `level` says, a change is called
    where the interval of both measurements at the level `clear` lies wholly beyond `min_effect`.

    Raises:
        ValueError: a rule that cannot be.
    """

    min_effect: float = 0.03
    screen: float = 0.05
    level: float = 0.01
    nightly_runs: int = 20
    least: int = 10
    least_nightly_runs: int = 3
    fresh: int = 10
    clear: float = 0.98

    def __post_init__(self) -> None:
        """Refuse what cannot be."""
        for name in ("min_effect", "screen", "level", "clear"):
            value = getattr(self, name)
            if not 0 < value < 1:
                raise ValueError(f"{name} of {value!r}: it must lie between 0 and 1")
        if not 3 <= self.least_nightly_runs <= self.nightly_runs:
            raise ValueError(
                f"least_nightly_runs of {self.least_nightly_runs!r}: it must be from 3 to nightly_runs, which is {self.nightly_runs!r}"
            )
        for name in ("least", "fresh"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} of {getattr(self, name)!r}: it must be at least 1")


@dataclass(frozen=True)
class Series:
    """All numbers of a key: of each accepted nightly run, oldest first; of tonight; and those measured again tonight.

    `waiting` are the nightly runs since the oldest accepted one that are unsure or pending, oldest first.
    `cut` says that tonight's measuring ended early, so that some may not have been measured again.

    Raises:
        ValueError: a number that is not finite or not positive, or an earlier nightly run without any.
    """

    key: MetricKey
    higher_is_better: bool
    baseline: tuple[tuple[float, ...], ...]
    tonight: tuple[float, ...]
    fresh: tuple[float, ...] = ()
    waiting: tuple[tuple[float, ...], ...] = ()
    cut: bool = False

    def __post_init__(self) -> None:
        """Refuse what no benchmark gives."""
        for values in (*self.baseline, *self.waiting, self.tonight, self.fresh):
            for value in values:
                if not 0 < value < math.inf:
                    raise ValueError(f"{_named(self.key)}: {value!r} is not a rate, size or time")
        if not all((*self.baseline, *self.waiting)):
            raise ValueError(f"{_named(self.key)}: an earlier nightly run has no values")


@dataclass(frozen=True)
class Verdict:
    """The verdict about one key, with its reason (`why`) in one sentence.

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


def _named(key: MetricKey) -> str:
    return f"{key.workload}, {key.variant}, {key.ranks} rank(s), {key.metric}"
