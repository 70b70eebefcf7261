"""Begin a ladder: its id, its seed, its folder, and advice on its repeats."""

import os
import secrets
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from taco_launch.agent.store.folders import state_folder
from taco_launch.bench.history.history import Ladder, LadderKind
from taco_launch.bench.model.matrix import Variant
from taco_launch.bench.run.run_ladder import ladder_id
from taco_launch.bench.stats.estimates import spread

_SEED_BITS = 31
# As many repeats as the shipped matrices have.
_ENOUGH = 5


def ladders_folder(environ: Mapping[str, str]) -> Path:
    """Return the folder in which each ladder has one for the logs of its jobs."""
    return state_folder(environ, os.geteuid()) / "ladders"


def new_seed() -> int:
    """Draw a seed; 0 would leave the order as it is."""
    return 1 + secrets.randbits(_SEED_BITS)


def new_ladder(
    name: str, kind: LadderKind, digest: str, seed: int, cluster: str, variants: Sequence[Variant] = ()
) -> Ladder:
    """Return a ladder that starts now; `name` and `variants` are the matrix's."""
    one = ladder_id(name, secrets.token_hex(3))
    return Ladder(one, name, kind, digest, seed, cluster, time.time(), variants=tuple(each.name for each in variants))


def describe_few_repeats(repeats: int, *, nightly: bool = False) -> str:
    """Return what a measurement with few repeats will not show, "" if they are enough; a nightly run is compared with others.

    Raises:
        TacoLaunchError: scipy is not installed.
    """
    if repeats >= _ENOUGH:
        return ""
    few = f"1 repeat gives no confidence intervals, so {'only large differences' if nightly else 'no difference'} will show"
    if repeats > 1:
        few = (
            f"{repeats} repeats give intervals of ±{spread(repeats):.1f} standard deviations, "
            f"{_ENOUGH} give ±{spread(_ENOUGH):.1f}: only large differences will show"
        )
    return f"{few} ({f'repeats: {_ENOUGH} in the matrix' if nightly else f'--repeats {_ENOUGH}'})"
