"""Which cells a matrix comes to, on hosts with so many slots."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from taco_launch.bench.model.matrix import ALL, LogFormat, Matrix, MatrixPart, Size, Variant, Workload, cells
from taco_launch.bench.model.runs import Cell
from taco_launch.core.errors import SpecError

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
