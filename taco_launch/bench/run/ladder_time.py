"""Compute the time that runs of a ladder took and will take: pure."""

from collections.abc import Mapping, Sequence

from taco_launch.bench.model.ladder import LadderStep, remaining_steps, seconds_left
from taco_launch.bench.model.runs import Cell, Run


def spent(done: Mapping[int, Run]) -> float:
    """Return how many seconds the runs that are done have taken."""
    return sum(run.seconds for run in done.values())


def left(steps: Sequence[LadderStep], done: Mapping[int, Run], budget: float | None) -> float | None:
    """Return how many seconds the other runs will take, at most until the budget is used up; None if not known."""
    seconds = seconds_left(remaining_steps(steps, done), _seen(done))
    return seconds if seconds is None or budget is None else min(seconds, max(0.0, budget - spent(done)))


def of_step(step: LadderStep, done: Mapping[int, Run]) -> float:
    """Return how many seconds a run will take, 0 if not known."""
    return seconds_left([step], _seen(done)) or 0.0


def _seen(done: Mapping[int, Run]) -> dict[Cell, list[float]]:
    seen: dict[Cell, list[float]] = {}
    for run in done.values():
        seen.setdefault(run.cell, []).append(run.seconds)
    return seen
