"""How many ranks a host takes whose slots nobody declares."""

from typing import Optional


def slots_of(gpus: Optional[int], cpus: Optional[int]) -> Optional[int]:
    """Return how many ranks a host takes whose slots nobody declares: its GPUs, without any max(2, CPUs).

    `cpus` counts hardware threads; None is "not known", and so is the answer where it depends on such a number.
    """
    if gpus is None or gpus > 0:
        return gpus
    return None if cpus is None else max(2, cpus)
