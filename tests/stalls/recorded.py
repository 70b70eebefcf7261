"""Situations that `record.py` recorded of real programs, as looks at their ranks."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

from taco_launch.model.run.looks import Look, RankLooks
from taco_launch.stalls.dumps import of_threads

FOLDER = Path(__file__).parent / "cases"


def situation(name: str) -> tuple[RankLooks, ...]:
    """Return the looks at the two ranks (one with `alone`) of a situation, on gpu1 and gpu2."""
    told = json.loads((FOLDER / f"{name}.json").read_text("utf-8"))
    return tuple(
        RankLooks(rank, f"gpu{rank + 1}", tuple(_look(look, told["dumps"]) for look in looks))
        for rank, looks in enumerate(told["ranks"])
    )


def _look(told: dict[str, Any], dumps: list[Any]) -> Look:
    stack = None if told["dump"] is None else of_threads(dumps[told["dump"]])
    names = ("time", "output", "sockets", "read", "written", "cpu", "main_cpu", "state")
    return Look(stack=stack, **{name: told[name] for name in names})


def without_stacks(ranks: tuple[RankLooks, ...]) -> tuple[RankLooks, ...]:
    """Return what is seen where nobody may trace the ranks."""
    return tuple(replace(rank, looks=tuple(replace(look, stack=None) for look in rank.looks)) for rank in ranks)
