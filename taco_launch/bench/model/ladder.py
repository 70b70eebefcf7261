"""The order of a ladder's runs, which of them are left, and how long those will take: pure."""

import hashlib
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from statistics import median

from taco_launch.bench.model.runs import Cell, Run
from taco_launch.core.frozen import dataclass


@dataclass(frozen=True)
class LadderStep:
    """One run that is to be made: the `position`th of its ladder, counted from 0, in a block that has each cell once.

    `repeat` counts from 0 within its cell, those of warm-ups apart.
    """

    position: int
    block: int
    cell: Cell
    repeat: int
    warm_up: bool = False


def order(cells: Sequence[Cell], repeats: int, warm_ups: int, seed: int) -> tuple[LadderStep, ...]:
    """Return the runs of a ladder: the blocks of warm-ups, then those that count, each block with each cell once.

    Within a block cells are shuffled by `seed`, the same on each machine and with each Python, and anew in each block:
    what drifts while a ladder is measured (heat, a busy network) so meets all of them alike. With seed 0 they stay as
    they are listed.
    """
    return tuple(_blocks(cells, warm_ups, repeats, seed))


def again(steps: Sequence[LadderStep], cells: Collection[Cell], repeats: int, seed: int) -> tuple[LadderStep, ...]:
    """Return further runs of some cells, without warm-ups, to stand behind `steps`: in blocks and shuffled as there."""
    blocks = max((step.block for step in steps), default=-1) + 1
    made = {cell: sum(step.cell == cell and not step.warm_up for step in steps) for cell in cells}
    return tuple(
        replace(
            step,
            position=len(steps) + step.position,
            block=blocks + step.block,
            repeat=made[step.cell] + step.repeat,
        )
        for step in _blocks(sorted(cells), 0, repeats, seed, blocks)
    )


def _blocks(cells: Sequence[Cell], warm_ups: int, repeats: int, seed: int, first: int = 0) -> Iterator[LadderStep]:
    position = 0
    for block in range(warm_ups + repeats):
        warm_up = block < warm_ups
        for cell in _shuffled(cells, seed, first + block):
            yield LadderStep(position, block, cell, block if warm_up else block - warm_ups, warm_up)
            position += 1


def _shuffled(cells: Sequence[Cell], seed: int, block: int) -> Sequence[Cell]:
    if not seed:
        return cells

    def drawn(cell: Cell) -> bytes:
        return hashlib.sha256(repr((seed, block, cell.workload, cell.variant, cell.ranks)).encode()).digest()

    return sorted(cells, key=drawn)


def remaining_steps(steps: Iterable[LadderStep], done: Collection[int]) -> tuple[LadderStep, ...]:
    """Return the runs that are still to be made, in their order; `done` are the positions of those that were."""
    return tuple(step for step in steps if step.position not in done)


def complete_rounds(runs: Sequence[Run]) -> tuple[Run, ...]:
    """Return the runs without those of a round that was not made to its end: each cell then has as many as any other.

    Warm-ups stay; before a first round is complete all stay.
    """
    repeats: dict[Cell, int] = {}
    for run in runs:
        repeats[run.cell] = repeats.get(run.cell, 0) + (not run.warm_up)
    rounds = min(repeats.values(), default=0)
    return tuple(run for run in runs if run.warm_up or not rounds or run.repeat < rounds)


def seconds_left(steps: Iterable[LadderStep], seen: Mapping[Cell, Sequence[float]]) -> float | None:
    """Return how many seconds some runs will take, by the medians of those `seen` of their cells.

    A cell that was never seen counts as the median of all that were; None before any was.
    """
    every = [seconds for found in seen.values() for seconds in found]
    if not every:
        return None
    usual = median(every)
    return sum(median(seen[step.cell]) if seen.get(step.cell) else usual for step in steps)
