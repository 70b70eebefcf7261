"""Which cells a matrix comes to, on hosts with so many slots."""

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from taco_launch.bench.model.ladder import LadderStep, again, complete_rounds, order, remaining_steps, seconds_left
from taco_launch.bench.model.matrix import ALL, LogFormat, Matrix, MatrixPart, Size, Variant, Workload, cells
from taco_launch.bench.model.runs import Cell
from taco_launch.core.errors import SpecError
from tests.support.ladders import run

SIZES = st.lists(st.integers(1, 40) | st.just(ALL), min_size=1, max_size=5, unique=True)


def matrix(sizes: tuple[Size, ...], only: tuple[MatrixPart, ...] = ()) -> Matrix:
    workloads = tuple(Workload(name, LogFormat.HOROVOD, (name,)) for name in ("w1", "w2"))
    return Matrix("m", workloads, (Variant("a"), Variant("b")), sizes, only=only)


def test_every_cell_in_the_order_of_the_matrix() -> None:
    found = cells(matrix((1, 8)), {"a": 8, "b": 8})
    assert found.cells == tuple(Cell(w, v, n) for w in ("w1", "w2") for v in "ab" for n in (1, 8))
    assert found.dropped == ()


def test_all_is_as_many_as_there_are_and_one_cell_with_its_number() -> None:
    found = cells(matrix((8, 16, ALL)), {"a": 16, "b": 12})
    assert [cell.ranks for cell in found.cells if cell == Cell("w1", cell.variant, cell.ranks)] == [8, 16, 8, 12]
    assert found.dropped == (Cell("w1", "b", 16), Cell("w2", "b", 16))


def test_only_the_cells_that_a_part_names() -> None:
    only = (MatrixPart(variants=("a",), sizes=(1,)), MatrixPart(workloads=("w2",), sizes=(ALL,)))
    found = cells(matrix((1, 2, ALL), only), {"a": 2, "b": 4})
    assert found.cells == (Cell("w1", "a", 1), Cell("w2", "a", 1), Cell("w2", "a", 2), Cell("w2", "b", 4))


def test_sizes_that_are_all_too_large() -> None:
    with pytest.raises(SpecError, match="the hosts have 4 slots, but the smallest size is 8 ranks"):
        cells(matrix((16, 8)), {"a": 4, "b": 3})


@given(SIZES, st.integers(1, 20), st.integers(1, 20))
def test_each_cell_is_measured_or_dropped_and_fits(sizes: list[Size], a: int, b: int) -> None:
    slots = {"a": a, "b": b}
    try:
        found = cells(matrix(tuple(sizes)), slots)
    except SpecError:
        assert all(size != ALL and size > max(a, b) for size in sizes)
        return
    both = (*found.cells, *found.dropped)
    assert len(set(both)) == len(both)
    wanted = {(v, slots[v] if size == ALL else size) for v in slots for size in sizes}
    assert {(cell.variant, cell.ranks) for cell in both} == wanted
    assert all((cell.ranks <= slots[cell.variant]) == (cell in found.cells) for cell in both)


# --- The order of a ladder: each block has every cell, shuffled alike everywhere; what is left of it, and for how long


CELLS = tuple(Cell("w", variant, ranks) for variant in "ab" for ranks in (1, 2))
A1, A2, B1, B2 = CELLS
SEEDS = st.integers(0, (1 << 63) - 1)


@given(SEEDS, st.integers(1, 6), st.integers(0, 2))
def test_each_block_has_each_cell_once(seed: int, repeats: int, warm_ups: int) -> None:
    steps = order(CELLS, repeats, warm_ups, seed)
    assert [step.position for step in steps] == list(range(len(CELLS) * (repeats + warm_ups)))
    for block in range(repeats + warm_ups):
        mine = [step for step in steps if step.block == block]
        assert Counter(step.cell for step in mine) == Counter(CELLS)
        assert {(step.warm_up, step.repeat) for step in mine} == {
            (block < warm_ups, block if block < warm_ups else block - warm_ups)
        }
    assert order(CELLS, repeats, warm_ups, seed) == steps


def test_a_seed_gives_the_same_order_on_each_machine() -> None:
    """A cell's place is that of `printf "(7, 0, 'w', 'a', 1)" | sha256sum` among those of the others."""
    first = [step.cell for step in order(CELLS, 1, 0, 7)]
    assert first == [A2, B2, A1, B1]
    assert [step.cell for step in order(tuple(reversed(CELLS)), 1, 0, 7)] == first
    assert [step.cell for step in order((B2, A1), 2, 0, 0)] == [B2, A1, B2, A1]  # 0: as they are listed


def test_no_cell_comes_first_more_often_than_another() -> None:
    blocks = 400
    first = Counter(step.cell for step in order(CELLS, blocks, 0, 11) if step.position % len(CELLS) == 0)
    # binomial(400, 1/4): 100 +- 8.7; five of these
    assert all(56 < first[cell] < 144 for cell in CELLS), first


def test_more_runs_of_some_cells_stand_behind_the_others() -> None:
    steps = order(CELLS, 2, 1, 7)
    more = again(steps, {A2, B1}, 3, 7)
    assert [step.position for step in more] == list(range(12, 18))
    assert [step.block for step in more] == [3, 3, 4, 4, 5, 5]
    assert [step.repeat for step in more if step.cell == B1] == [2, 3, 4]
    assert Counter(step.cell for step in more) == {A2: 3, B1: 3}
    assert again(steps, [B1, A2], 3, 7) == more
    assert not any(step.warm_up for step in more)


def test_what_is_left_and_which_rounds_are_complete() -> None:
    steps = order(CELLS, 2, 0, 7)
    assert [step.position for step in remaining_steps(steps, {0, 1, 2, 3, 4, 6})] == [5, 7]
    made = [run(1.0, cell=step.cell, repeat=step.repeat, warm_up=step.warm_up) for step in order(CELLS, 2, 1, 7)]
    assert complete_rounds(made) == tuple(made)
    assert complete_rounds(made[:11]) == tuple(made[:8])
    assert complete_rounds(made[:7]) == tuple(made[:7]), "of a first round all count"
    assert complete_rounds(made[:3]) == tuple(made[:3])
    assert complete_rounds(()) == ()


@pytest.mark.parametrize(
    ("seen", "expected"),
    [
        ({}, None),
        ({A1: [10.0, 1.0, 4.0]}, 8.0),  # both as long as the one that was seen
        ({A1: [10.0, 1.0, 4.0], B2: [30.0]}, 34.0),
        ({A2: [6.0, 8.0]}, 14.0),
    ],
)
def test_the_time_left(seen: dict[Cell, list[float]], expected: float | None) -> None:
    steps = (LadderStep(0, 0, A1, 0), LadderStep(1, 0, B2, 0))
    assert seconds_left(steps, seen) == expected
