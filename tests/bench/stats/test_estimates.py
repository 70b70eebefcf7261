"""Intervals: numbers of t tables worked out by hand, what must hold of any values, what is refused."""

import math
import random
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from taco_launch.bench.stats import student_t
from taco_launch.bench.stats.estimates import Interval, interval, percent, ratio, require
from taco_launch.core.errors import TacoLaunchError

RATES = st.lists(st.floats(1e-3, 1e6), min_size=2, max_size=8)


def close(found: Interval, value: float, low: float, high: float) -> bool:
    assert found.low is not None
    assert found.high is not None
    seen = (found.value, found.low, found.high)
    return all(math.isclose(one, other, rel_tol=1e-5) for one, other in zip(seen, (value, low, high), strict=True))


def test_a_mean() -> None:
    # standard error sqrt(2.5 / 5); t of 4 degrees of freedom: 2.77645 (0.975), 2.13185 (0.95)
    assert close(interval([1, 2, 3, 4, 5]), 3, 3 - 1.96324, 3 + 1.96324)
    assert close(interval([5, 3, 1, 4, 2], level=0.9), 3, 3 - 1.50745, 3 + 1.50745)
    assert interval([7.0, 7.0]) == Interval(7.0, 7.0, 7.0)


def test_a_ratio() -> None:
    # relative standard error 0.01 with one degree of freedom: exp(0.127062); the reference adds nothing
    assert close(ratio([99, 101], [50, 50, 50]), 2, 2 / 1.135487, 2 * 1.135487)
    # alike on both sides: sqrt(2 / 3) / 100 with four: exp(2.77645 * 0.00816497)
    assert close(ratio([99, 100, 101], [99, 100, 101]), 1, 1 / 1.022928, 1.022928)
    assert ratio([12, 12], [10, 10]) == Interval(1.2, 1.2, 1.2)


def test_one_value_has_no_interval() -> None:
    assert interval([5.0]) == Interval(5.0, None, None)
    assert ratio([6.0], [4.0, 2.0]) == ratio([5.0, 7.0], [3.0]) == Interval(2.0, None, None)


@given(RATES, RATES)
def test_the_inverse_of_a_ratio(values: list[float], reference: list[float]) -> None:
    one, other = ratio(values, reference), ratio(reference, values)
    assert one.low is not None
    assert one.high is not None
    assert other.low is not None
    assert other.high is not None
    assert 0 <= one.low <= one.value <= one.high
    if one.low > 1e-300:  # a wide one may reach where doubles end
        assert math.isclose(one.low * other.high, 1, rel_tol=1e-6)
        assert math.isclose(one.value * other.value, 1, rel_tol=1e-9)


def test_intervals_hold_the_truth_as_often_as_they_say() -> None:
    chance = random.Random(5)
    draws = [([chance.gauss(130, 3) for _ in range(5)], [chance.gauss(100, 1) for _ in range(4)]) for _ in range(2000)]
    ratios = [ratio(*each, level=0.9) for each in draws]
    means = [interval(values, level=0.9) for values, _reference in draws]
    for found, truth in ((ratios, 1.3), (means, 130)):
        held = sum(each.low is not None and each.high is not None and each.low <= truth <= each.high for each in found)
        assert 0.88 < held / 2000 < 0.92  # 3 standard errors


@pytest.mark.parametrize("values", [(), (1.0, math.nan), (math.inf, 1.0)])
def test_what_is_no_number_is_refused(values: tuple[float, ...]) -> None:
    with pytest.raises(ValueError, match="an estimate of"):
        interval(values)
    for pair in ((values, (1.0,)), ((1.0,), values)):
        with pytest.raises(ValueError, match="an estimate of"):
            ratio(*pair)


@pytest.mark.parametrize("bad", [0.0, -1.0])
def test_a_ratio_of_what_is_not_positive_is_refused(bad: float) -> None:
    for pair in (([1.0, bad], [1.0]), ([1.0], [bad])):
        with pytest.raises(ValueError, match="positive"):
            ratio(*pair)


@pytest.mark.parametrize("level", [0.0, 1.0, 95.0])
def test_a_level_that_is_none_is_refused(level: float) -> None:
    with pytest.raises(ValueError, match="level"):
        interval([1.0, 2.0], level)


def test_in_words() -> None:
    assert percent(Interval(-0.0512, -0.0689, 0.0004)) == "-5.1 % [-6.9, 0.0]"
    assert percent(Interval(-0.0004, -0.00049, 0.1)) == "+0.0 % [0.0, 10.0]"
    assert percent(Interval(0.31, None, None)) == "+31.0 %"


def test_without_scipy_one_line_says_what_to_type(monkeypatch: pytest.MonkeyPatch) -> None:
    student_t.special.cache_clear()
    monkeypatch.delattr("scipy.special", raising=False)
    monkeypatch.setitem(sys.modules, "scipy.special", None)
    assert interval([5.0]) == Interval(5.0, None, None)  # one run needs none
    for act in (require, lambda: interval([1.0, 2.0]), lambda: ratio([1.0, 2.0], [1.0, 2.0])):
        with pytest.raises(TacoLaunchError, match="need scipy") as refused:
            act()
        assert refused.value.hint == "pip install 'taco-launch[bench]'"
