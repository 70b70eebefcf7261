"""What is to be measured: a matrix of workloads, variants and sizes, and the cells that it comes to on given hosts."""

import enum
from collections.abc import Iterator, Mapping
from dataclasses import field
from typing import Literal

from taco_launch.bench.model.runs import Cell
from taco_launch.core.errors import Fault, SpecError
from taco_launch.core.frozen import dataclass
from taco_launch.core.model.host.hosts import Notice
from taco_launch.core.model.job_request import JobRequest

# A size: a number of ranks, or as many as the hosts have slots.
ALL: Literal["all"] = "all"
Size = int | Literal["all"]


class LogFormat(enum.Enum):
    """Which program's output a log is read as: Horovod's synthetic benchmark or ours, ..., or a user's pattern."""

    HOROVOD = "horovod"
    TF_CNN = "tf_cnn"
    NCCL_TESTS = "nccl-tests"
    REGEX = "regex"


@dataclass(frozen=True)
class Workload:
    """A program that measures something.

    `pattern` with its one group, `unit`, `higher_is_better` and `last` (of several different matches the last one counts;
    else there may be only one) say what a log of kind REGEX holds; the other kinds know that themselves.
    """

    name: str
    kind: LogFormat
    command: tuple[str, ...]
    pattern: str = ""
    unit: str = ""
    higher_is_better: bool = True
    last: bool = False


@dataclass(frozen=True)
class Variant:
    """A way to run a workload: `args` go behind its command, `job` is what else its jobs are to be.

    What the matrix gives for all its variants is among that already.
    """

    name: str
    args: tuple[str, ...] = ()
    job: JobRequest = field(default_factory=JobRequest)


@dataclass(frozen=True)
class MatrixPart:
    """Some of a matrix's cells: those of these workloads, variants and sizes; none named is all of them."""

    workloads: tuple[str, ...] = ()
    variants: tuple[str, ...] = ()
    sizes: tuple[Size, ...] = ()

    def holds(self, workload: str, variant: str, size: Size) -> bool:
        """Return whether a cell is one of them."""
        return (
            workload in (self.workloads or (workload,))
            and variant in (self.variants or (variant,))
            and size in (self.sizes or (size,))
        )


@dataclass(frozen=True)
class Matrix:
    """What is to be measured: every workload in every variant at every size, or those cells that `only` names.

    The first variant is the one that ratios refer to. Each cell is run `warm_ups` times and then `repeats` times;
    `min_effect` is the smallest change that matters, as a fraction; `time_budget` is in seconds, None for no end; without
    a `seed` one is drawn. `source` is where it was read from, `digest` stands for its text (SHA-256).
    """

    name: str
    workloads: tuple[Workload, ...]
    variants: tuple[Variant, ...]
    sizes: tuple[Size, ...]
    repeats: int = 5
    warm_ups: int = 1
    min_effect: float = 0.03
    time_budget: float | None = None
    seed: int | None = None
    # Who gets messages about its nightly runs.
    notify: tuple[Notice, ...] = ()
    only: tuple[MatrixPart, ...] = ()
    source: str = ""
    digest: str = ""

    @property
    def most_ranks(self) -> int:
        """Return the largest size, as far as it is known before the slots of the hosts are: `all` is at least 2."""
        return max(2 if size == ALL else size for size in self.sizes)

    def workload(self, name: str) -> Workload:
        """Return the workload of that name."""
        return next(workload for workload in self.workloads if workload.name == name)

    def variant(self, name: str) -> Variant:
        """Return the variant of that name."""
        return next(variant for variant in self.variants if variant.name == name)


@dataclass(frozen=True)
class Cells:
    """The cells of a matrix, in its order; `dropped` are those with more ranks than the hosts have slots."""

    cells: tuple[Cell, ...]
    dropped: tuple[Cell, ...]


def cells(matrix: Matrix, slots: Mapping[str, int]) -> Cells:
    """Return the cells of a matrix, each once, where the hosts of each variant (by its name) have so many slots.

    Raises:
        SpecError: none is left, since all sizes are larger than the hosts.
    """
    every = tuple(dict.fromkeys(_every(matrix, slots)))
    kept = tuple(cell for cell in every if cell.ranks <= slots[cell.variant])
    if not kept:
        most, least = max(slots.values()), min(cell.ranks for cell in every)
        problem = f"the hosts have {most} slots, but the smallest size is {least} ranks"
        raise SpecError(
            matrix.source or matrix.name, (Fault("sizes", "", problem, "add a smaller size, or the size all"),)
        )
    return Cells(kept, tuple(cell for cell in every if cell not in set(kept)))


def _every(matrix: Matrix, slots: Mapping[str, int]) -> Iterator[Cell]:
    for workload in matrix.workloads:
        for variant in matrix.variants:
            for size in matrix.sizes:
                part = not matrix.only or any(one.holds(workload.name, variant.name, size) for one in matrix.only)
                if part:
                    yield Cell(workload.name, variant.name, slots[variant.name] if size == ALL else size)
