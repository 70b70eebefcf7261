"""What is measured: a cell of a ladder, one run of it, and what the run was made on."""

import time
from dataclasses import dataclass

# In any unit: from less than a picosecond in hours to more bytes than there are.
_LEAST, _GREATEST = 1e-18, 1e30


@dataclass(frozen=True, order=True)
class Cell:
    """One place of a ladder's table; `workload` and `variant` are names in its matrix, `ranks` the number of ranks."""

    workload: str
    variant: str
    ranks: int

    @property
    def name(self) -> str:
        """Return it as `bench diff` takes it, without its sweep."""
        return f"{self.workload}/{self.variant}/{self.ranks}"


@dataclass(frozen=True, order=True)
class Metric:
    """What a workload measures: `img/sec`, or `busbw 8388608 B` in GB/s; `name` is one of a kind within a workload."""

    name: str
    unit: str
    higher_is_better: bool = True


@dataclass(frozen=True)
class Measurement:
    """One number that a run gave: see `is_reading`."""

    metric: Metric
    value: float


def is_reading(value: float) -> bool:
    """Return whether something can measure this: a positive number, whose square and whose sums are numbers as well."""
    return _LEAST <= value <= _GREATEST


@dataclass(frozen=True)
class RunEnvironment:
    """What a run was made on: (host, what, value), sorted; host is "" for what holds for all.

    `what` are the words of `bench.circumstances`: driver, NCCL, kernel, image, knobs ...
    """

    facts: tuple[tuple[str, str, str], ...] = ()


@dataclass(frozen=True)
class Run:
    """One run of a cell: either it has readings, or `why` says why there are none.

    `repeat` counts from 0 within its cell; a run with `warm_up` is kept and never counted. `hosts` are those that had
    ranks, in the order of ranks, `gpu` the model of their GPUs ("" without, or where they differ). Times are seconds,
    `started` since the epoch. `log` is where the job's log lies: a path, after `HOST:` where it is on a head elsewhere.
    """

    cell: Cell
    repeat: int
    warm_up: bool
    job: str
    started: float
    seconds: float
    hosts: tuple[str, ...]
    gpu: str
    readings: tuple[Measurement, ...]
    why: str
    log: str
    circumstances: RunEnvironment = RunEnvironment()


@dataclass(frozen=True, order=True)
class MetricKey:
    """What makes numbers of different nightly runs comparable; `metric` is a metric's name, the others are as in Run."""

    hosts: tuple[str, ...]
    gpu: str
    workload: str
    variant: str
    ranks: int
    metric: str


def when(seconds: float) -> str:
    """Return a time of day here, to the minute."""
    return time.strftime("%Y-%m-%d %H:%M", time.localtime(seconds))


def to_the_second(seconds: float) -> str:
    """Return a time of day here, to the second."""
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(seconds))
