"""The ring tables against every order of the GPUs, and the rings that are shown."""

from itertools import permutations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from taco_launch.core.placement.rings import MOST_GPUS, Matrix, order, rings


@st.composite
def matrices(draw: st.DrawFn, most: int = 7) -> Matrix:
    """Return symmetric bandwidths: few different ones, as hosts have, or one for each pair."""
    count = draw(st.integers(1, most))
    values = st.integers(1, draw(st.sampled_from([1, 2, 4, 50])))
    found = [[0.0] * count for _ in range(count)]
    for one in range(count):
        for other in range(one):
            found[one][other] = found[other][one] = float(draw(values))
    return tuple(map(tuple, found))


def slowest(matrix: Matrix, ring: tuple[int, ...]) -> float:
    return min(matrix[one][other] for one, other in zip(ring, (*ring[1:], ring[0]), strict=True))


def members(mask: int) -> tuple[int, ...]:
    return tuple(gpu for gpu in range(MOST_GPUS) if mask >> gpu & 1)


@given(matrices())
def test_every_set_against_every_order_of_it(matrix: Matrix) -> None:
    found = rings(matrix)
    for mask in range(1, 1 << len(matrix)):
        first, *others = members(mask)
        if not others:
            assert found.bottleneck(mask) is None
            continue
        best = max(slowest(matrix, (first, *rest)) for rest in permutations(others))
        assert found.bottleneck(mask) == best
        ring = order(matrix, members(mask), best)
        assert (ring[0], sorted(ring)) == (first, list(members(mask)))
        assert slowest(matrix, ring) == best
        assert order(matrix, tuple(reversed(members(mask))), best) == ring


def test_sixteen_gpus() -> None:
    """A chain of fast links, closed by one: the ring over all is as fast as the links, no smaller one is."""
    around = {frozenset((gpu, (gpu + 1) % MOST_GPUS)) for gpu in range(MOST_GPUS)}
    every = range(MOST_GPUS)
    matrix = tuple(
        tuple(0.0 if one == other else 50.0 if {one, other} in around else 6.0 for other in every) for one in every
    )
    found = rings(matrix)
    assert found.bottleneck((1 << MOST_GPUS) - 1) == 50
    assert order(matrix, every, 50.0) == tuple(every)
    assert {found.bottleneck(((1 << MOST_GPUS) - 1) & ~(1 << gpu)) for gpu in every} == {6.0}
    with pytest.raises(ValueError, match="at most 16"):
        rings(((0.0,) * 17,) * 17)
