"""The tables of a ladder: the TACO guide's numbers, intervals by a printed t table, and what is never claimed."""

from dataclasses import replace

import pytest

pytest.importorskip("scipy")

from taco_launch.bench.compare import tables
from taco_launch.bench.model.runs import Cell, Measurement, Metric, Run, RunEnvironment
from taco_launch.bench.stats.estimates import Interval
from tests.support.measured import made, run

GUIDE = {("horovod", 1): 819, ("horovod", 8): 6469, ("horovod", 16): 12299, ("light", 16): 12532}


def lines(grid: tables.Grid) -> list[str]:
    return [" | ".join(row) for row in (grid.header, *grid.rows)]


def test_the_guide() -> None:
    """One variant alone was measured on one GPU, and its rate stands for both; the guide cuts 93.857 to 93.85."""
    found = made({key: [value] for key, value in GUIDE.items()})
    (rates, ratios) = tables.grids(found, "GPUs")
    assert rates.title == "resnet50, img/sec"
    assert lines(rates) == [
        "GPUs | horovod | horovod LINEAR | light | light LINEAR",
        "1 | 819.0 | - | no sample | -",
        "8 | 6469.0 | 98.73% | no sample | -",
        "16 | 12299.0 | 93.86% | 12532.0 | 95.63%",
    ]
    assert lines(ratios) == ["VARIANT | 1 GPU | 8 GPUs | 16 GPUs", "light | - | - | +1.9 %"]
    assert tables.sentences(found, "GPUs") == ("resnet50: horovod to light: at 16 GPUs +1.9 % (no interval)",)
    assert tables.legend(found) == (
        "each number comes from one run: it has no interval and cannot show a difference\n"
        "linear speedup of light: relative to one rank of horovod, since light was not measured with one rank"
    )


def test_a_mean_and_its_interval() -> None:
    """Student's t table, 2 degrees of freedom, 95 %: 4.303; times 10 / sqrt(3)."""
    found = made({("a", 1): [90, 100, 110], ("a", 2): [180, 200, 220]})
    (rates,) = tables.grids(found, "ranks")
    assert [row[1] for row in rates.rows] == ["100.0 ±24.8", "200.0 ±49.7"]
    assert rates.rows[1][2].startswith("100.00% [")
    assert "± and [ ] show 95 % confidence intervals, for each number separately, from 3 repeats" in tables.legend(
        found
    )


def test_layers_are_told_against_the_one_before_and_never_more_than_is_shown() -> None:
    found = made(
        {
            ("tcp", 8): [100.0, 101.0, 99.0, 100.5],
            ("rdma", 8): [131.0, 130.0, 132.0, 131.5],
            ("gdr", 8): [131.0, 130.5, 134.0, 129.0],
        }
    )
    first, second = tables.sentences(found, "GPUs")
    assert first.startswith("resnet50: tcp to rdma: at 8 GPUs +31.0 % [")
    assert "no difference" not in first
    assert second.startswith("resnet50: rdma to gdr: at 8 GPUs +0.0 % [-")
    assert second.endswith("]: no difference shown")
    gdr = found[0].entry("gdr", 8)
    assert gdr is not None
    assert gdr.to_first is not None
    assert gdr.to_first.value == pytest.approx(131.125 / 100.125)


@pytest.mark.parametrize(
    ("ratio", "shown"),
    [
        (Interval(1.1, 1.02, 1.2), True),
        (Interval(0.9, 0.8, 0.99), True),
        (Interval(1.1, 1.0, 1.2), False),
        (Interval(1.0, 0.9, 1.1), False),
        (Interval(9.0, None, None), False),
    ],
)
def test_what_an_interval_carries(ratio: Interval, shown: bool) -> None:
    assert tables.shows(ratio) is shown


@pytest.mark.parametrize(
    ("ratio", "text"),
    [
        (Interval(1.3124, 1.28, 1.3449), "+31.2 % [28.0, 34.5]"),
        (Interval(0.9999, 0.9996, 1.0002), "+0.0 % [0.0, 0.0]"),  # never -0.0
        (Interval(0.5, None, None), "-50.0 %"),
    ],
)
def test_a_ratio_as_a_change(ratio: Interval, text: str) -> None:
    assert tables.change(ratio) == text


def test_a_cell_without_a_sample_is_told_with_the_reason_of_its_last_run() -> None:
    good, half, bad, never = (Cell("w", variant, 2) for variant in ("good", "half", "bad", "never"))
    runs = [
        run(good, 1.0),
        run(good, warm_up=True, why="cold"),
        run(half, 2.0),
        run(half, why="lost"),
        run(bad, 9.0, warm_up=True),
        run(bad, why="first"),
        run(bad, why="last"),
    ]
    cells = (good, half, bad, never)
    assert [(gap.cell, gap.failed, gap.runs, gap.why) for gap in tables.missing(cells, runs)] == [
        (half, 1, 2, "lost"),
        (bad, 2, 2, "last"),
        (never, 0, 0, "it was not run"),
    ]
    (table,) = tables.tables(cells, runs)
    assert [entry.values for entry in table.entries] == [(1.0,), (2.0,)]
    assert tables.grids((table,), "ranks")[0].rows == (("2", "1.000", "2.000", "no sample", "no sample"),)
    assert tables.tables((bad,), [run(bad, why="x")]) == ()


def test_a_bus_has_no_linear_speedup_and_its_first_metric_stands_for_it() -> None:
    average, large = Metric("busbw average", "GB/s"), Metric("busbw 8388608 B", "GB/s")
    cells = tuple(Cell("nccl", variant, ranks) for variant in ("tcp", "rdma") for ranks in (1, 8))
    readings = {cell: (Measurement(average, 10.0), Measurement(large, 20.0)) for cell in cells}
    runs = [Run(cell, 0, False, "j", 0.0, 1.0, (), "", readings[cell], "", "") for cell in cells]
    found = tables.tables(cells, runs)
    rates = tables.grids(found, "GPUs")[0]
    assert rates.header == ("GPUs", "METRIC", "tcp", "rdma")
    assert [row[:2] for row in rates.rows][:3] == [
        ("1", "busbw average"),
        ("8", "busbw average"),
        ("1", "busbw 8388608 B"),
    ]
    assert len(tables.sentences(found, "GPUs")) == 1
    assert tables.sentences(found, "GPUs")[0].startswith("nccl, busbw average: tcp to rdma: at 1 GPU ")


def test_numbers_without_a_unit_have_a_linear_speedup() -> None:
    cells = (Cell("own", "run", 1), Cell("own", "run", 2))
    for unit, speedups in ((tables.UNNAMED, ("100.00%",)), ("ms", ("-",))):
        metric = Metric(unit, unit)
        made = [run(cell, 8.0 * cell.ranks, metric=metric) for cell in cells]
        (table,) = tables.tables(cells, made)
        assert tables.row(table.entries[1])[3:] == speedups


def test_less_is_better_is_told() -> None:
    found = made({("a", 1): [3.0], ("a", 2): [4.0]}, Metric("ms/sec", "ms/sec", higher_is_better=False))
    (rates,) = tables.grids(found, "ranks")
    assert rates.title == "resnet50, ms/sec, less is better"
    assert rates.header == ("RANKS", "a")


def test_json() -> None:
    (data,) = tables.to_json(made({("a", 1): [10.0, 10.0], ("b", 1): [20.0, 20.0]}))
    assert data["metric"] == {"name": "img/sec", "unit": "img/sec", "higher_is_better": True}
    first, second = data["rows"]
    assert (first["value"], first["low"], first["high"], first["ratio_to_first"]) == (10.0, 10.0, 10.0, None)
    assert (second["before"], second["ratio_to_before"]["value"], second["linear_speedup"]) == ("a", 2.0, None)


@pytest.mark.parametrize(("one", "two", "is_told"), [("2", "1", True), ("1", "1", False), ("", "1", False)])
def test_sizes_with_other_numbers_of_threads(one: str, two: str, *, is_told: bool) -> None:
    runs = [
        replace(run(Cell("w", "a", ranks), 1.0), circumstances=RunEnvironment((("", "knob OMP_NUM_THREADS", value),)))
        for ranks, value in ((2, two), (1, one))
    ]
    told = tables.differing_threads(runs)
    assert bool(told) is is_told
    assert not told or "OMP_NUM_THREADS was 2 for 1 rank, 1 for 2 ranks (" in told
    b, c = ([replace(each, cell=Cell("w", name, each.cell.ranks)) for each in runs] for name in "bc")
    together = tables.differing_threads([*runs, *b])
    assert together == told  # once for all
    same = [replace(each, circumstances=runs[0].circumstances) for each in c]
    together = tables.differing_threads([*runs, *b, *same])
    assert not is_told or "2 for 1 rank, 1 for 2 ranks (w, a; w, b) (" in together
    # each variant alone: a user may compare numbers of threads
    assert not tables.differing_threads([runs[0], replace(runs[1], cell=Cell("w", "b", 1))])


def test_bars_are_as_long_as_rates_are_high() -> None:
    (table,) = made({("tcp", 2): [50], ("tcp", 1): [40], ("rdma", 2): [100], ("rdma", 1): [0.6]})
    assert tables.bars(table) == [
        ("1", "tcp", "█" * 16, "40.00"),
        ("1", "rdma", "▎", "0.600000"),
        ("2", "tcp", "█" * 20, "50.00"),
        ("2", "rdma", "█" * 40, "100.0"),
    ]
