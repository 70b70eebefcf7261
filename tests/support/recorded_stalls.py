"""Situations that `record.py` recorded of real programs, as looks at their ranks; and what is made of such looks."""

import json
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from taco_launch.core.model.run.rank_samples import Life, LifeVerdict, RankSample
from taco_launch.core.model.stalls import RankLook
from taco_launch.core.stalls.dumps import of_threads
from taco_launch.core.stalls.judge import judge
from taco_launch.core.stalls.quiet import QuietHost
from tests.support.paths import TESTS

FOLDER = TESTS / "core/stalls/cases"


class Recorded(NamedTuple):
    """The looks at a rank, and the state of its process at each."""

    rank: int
    host: str
    looks: tuple[RankSample, ...]
    states: tuple[str, ...]


def situation(name: str) -> tuple[Recorded, ...]:
    """Return the looks at the two ranks (one with `alone`) of a situation, on gpu1 and gpu2."""
    told = json.loads((FOLDER / f"{name}.json").read_text("utf-8"))
    return tuple(
        Recorded(
            rank,
            f"gpu{rank + 1}",
            tuple(_look(look, told["dumps"]) for look in looks),
            tuple(look["state"] for look in looks),
        )
        for rank, looks in enumerate(told["ranks"])
    )


def _look(told: dict[str, Any], dumps: list[Any]) -> RankSample:
    stack = None if told["dump"] is None else of_threads(dumps[told["dump"]])
    names = ("time", "output", "sockets", "read", "written", "cpu", "main_cpu")
    return RankSample(stack=stack, **{name: told[name] for name in names})


def without_stacks(ranks: Sequence[Recorded]) -> tuple[Recorded, ...]:
    """Return what is seen where the ranks may not be traced."""
    return tuple(rank._replace(looks=tuple(replace(look, stack=None) for look in rank.looks)) for rank in ranks)


def verdict(ranks: Sequence[Recorded], seconds: float, ended: tuple[int, ...] = ()) -> LifeVerdict:
    """Do what the guard of each host does with the looks at its rank, and then what the supervisor does."""
    standing, silent = [], []
    for rank in ranks:
        host = QuietHost(seconds)
        for look in rank.looks:
            host.add(look.time, {rank.rank: replace(look, stack=None)})
            if look.stack is not None:
                host.add_stacks({rank.rank: look.stack})
        silent.append(host.silent)
        if host.silent < seconds:
            return LifeVerdict(Life.WORKING, host.sign)
        standing.append(host.standing(RankLook(rank.rank, 7, "python3", rank.states[-1], host=rank.host)))
    return judge(standing, ended, f"for {min(silent):.0f} s")
