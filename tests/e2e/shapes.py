"""The shapes of victims: which ones the gate tries, and of how many processes each is."""

from collections.abc import Sequence

import pytest

Shape = tuple[str, ...]
WORST: Shape = ("wipe", "daemon", "deaf")


def shapes(gate: Sequence[Shape], nightly: Sequence[Shape]) -> list[object]:
    """Return the parameters of a test: each shape, and which of them are tried in the full run only."""
    return [
        *(pytest.param(shape, id="+".join(shape)) for shape in gate),
        *(pytest.param(shape, id="+".join(shape), marks=pytest.mark.nightly) for shape in nightly),
    ]


def processes(shape: Sequence[str]) -> int:
    """Return how many processes a rank of this shape consists of once it has taken it."""
    return 2 if {"daemon", "fork"} & set(shape) else 1
