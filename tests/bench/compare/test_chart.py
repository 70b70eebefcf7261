"""The bars of a ladder: as long as the rates are high."""

import pytest

pytest.importorskip("scipy")

from taco_launch.bench.compare.chart import bars
from tests.support.measured import made


def test_bars_are_as_long_as_rates_are_high() -> None:
    (table,) = made({("tcp", 2): [50], ("tcp", 1): [40], ("rdma", 2): [100], ("rdma", 1): [0.6]})
    assert bars(table) == [
        ("1", "tcp", "█" * 16, "40.00"),
        ("1", "rdma", "▎", "0.600000"),
        ("2", "tcp", "█" * 20, "50.00"),
        ("2", "rdma", "█" * 40, "100.0"),
    ]
