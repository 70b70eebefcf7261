"""The table of sizes: the TACO guide's numbers, and what is compared with what."""

import json
import math

import pytest

from taco_launch.bench.parse import Sample
from taco_launch.bench.scaling import Row, rows, to_json


def sample(ranks: int, img_per_sec: float, model: str = "resnet50", batch_size: int = 256) -> Sample:
    return Sample(ranks, img_per_sec, 1.0, img_per_sec / ranks, model, batch_size, 10)


@pytest.mark.parametrize(("ranks", "total", "per_cent"), [(8, 6469, 98.73), (16, 12299, 93.85), (16, 12532, 95.63)])
def test_the_guide(ranks: int, total: float, per_cent: float) -> None:
    """One GPU gives 819 img/sec; the guide cuts its percentages after two digits."""
    single, row = rows([sample(1, 819), sample(ranks, total)])
    assert single == Row(1, 819, 819, 1.0)
    assert row.linear_speedup is not None
    assert math.floor(row.linear_speedup * 10_000) / 100 == per_cent
    assert row == Row(ranks, total, total / ranks, total / (ranks * 819))


def test_without_a_run_of_one_rank_there_is_no_speedup() -> None:
    assert rows([sample(2, 100.0), sample(4, 180.0)]) == (Row(2, 100.0, 50.0, None), Row(4, 180.0, 45.0, None))


def test_the_fewest_ranks_come_first_and_repeats_stay_in_order() -> None:
    table = rows([sample(4, 40.0), sample(1, 10.0), sample(4, 36.0), sample(1, 30.0)])
    assert [(row.np, row.img_per_sec) for row in table] == [(1, 10.0), (1, 30.0), (4, 40.0), (4, 36.0)]
    # two runs of one rank: compared with their mean, 20
    assert [row.linear_speedup for row in table] == [0.5, 1.5, 0.5, 0.45]


@pytest.mark.parametrize("single", [sample(1, 10.0, model="vgg16"), sample(1, 10.0, batch_size=64)])
def test_another_model_or_batch_size_is_not_compared_with(single: Sample) -> None:
    assert [row.linear_speedup for row in rows([single, sample(2, 18.0)])] == [1.0, None]


def test_json() -> None:
    assert json.loads(json.dumps(to_json(rows([sample(1, 10.0), sample(2, 18.0), sample(2, 9.0, model="vgg16")])))) == {
        "rows": [
            {"np": 1, "img_per_sec": 10.0, "img_per_sec_per_rank": 10.0, "linear_speedup": 1.0},
            {"np": 2, "img_per_sec": 18.0, "img_per_sec_per_rank": 9.0, "linear_speedup": 0.9},
            {"np": 2, "img_per_sec": 9.0, "img_per_sec_per_rank": 4.5, "linear_speedup": None},
        ]
    }
    assert to_json(()) == {"rows": []}
