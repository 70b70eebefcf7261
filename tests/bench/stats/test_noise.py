"""What the judge's verdicts rest on: robust centres, spreads that the other cells tell of, Student's t, drifts and steps."""

import math
import random
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from taco_launch.bench.stats import drift, noise, student_t
from taco_launch.bench.stats.estimates import Interval, interval, percent, ratio, require
from taco_launch.core.errors import TacoLaunchError


def test_a_centre_leaves_a_fifth_out_on_each_side() -> None:
    assert noise.centre([5.0, 1.0, 900.0, 4.0, 3.0]) == 4.0
    assert noise.centre([-50.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 90.0, -20.0]) == 3.5
    assert noise.centre([1.0, 2.0, 3.0, 10.0]) == 4.0
    assert noise.centre([7.0]) == 7.0


def test_the_noise_of_runs_and_nights() -> None:
    """By hand: winsorized, 1 2 4 7 20 is 2 2 4 7 7 with squares of 25.2, by 3 * 2; each night the same, a level apart."""
    runs = [1.0, 2.0, 4.0, 7.0, 20.0]
    known = noise.of([[value + level for value in runs] for level in (0, 0, 30, 30)])
    assert known.level == pytest.approx(13 / 3 + 15)
    assert known.variance == pytest.approx(300)  # 4 * 15 ** 2 / 3
    assert known.run == pytest.approx(5 * 25.2 / 6)
    assert known.error(5) == pytest.approx(math.sqrt(300 * 5 / 4))
    # ten runs tell of a nightly run what five do not, down to a tenth of what one does
    assert known.error(10) == pytest.approx(math.sqrt(300 - 21 / 5 + 21 / 10 + 300 / 4))
    assert known.correlation(5, 10) == pytest.approx((300 - 4.2 + 75) / known.error(5) / known.error(10))


def test_nights_that_happen_to_agree_are_as_noisy_as_their_runs() -> None:
    known = noise.of([[1.0, 2.0, 4.0, 7.0, 20.0]] * 10)
    assert known.variance == pytest.approx(4.2)
    assert known.error(10) == pytest.approx(math.sqrt(2.1 + 0.42))


def cells(chance: random.Random, spreads: list[float]) -> list[noise.NoiseEstimate]:
    return [noise.of([[chance.gauss(0, spread)] for _night in range(10)]) for spread in spreads]


def test_cells_that_are_alike_tell_of_each_other() -> None:
    known = cells(random.Random(1), [0.01] * 60)
    drawn = noise.moderated(known)
    assert all(new.variance >= old.variance for old, new in zip(known, drawn, strict=True))
    assert min(old.variance for old in known) < 0.4e-4
    assert min(new.variance for new in drawn) > 0.7e-4  # the truth is 1e-4
    assert all(new.freedom > 50 for new in drawn)


def test_two_cells_tell_no_more_than_both_know() -> None:
    known = cells(random.Random(1), [0.01])[0]
    assert noise.moderated([known, known])[0].freedom == 18


def test_a_cell_that_drifts() -> None:
    """Around the line of 1 by night: eight residuals of 1, so 8 / (10 - 2); the next night by the textbook's formula."""
    residuals = [1.0, -1.0, -1.0, 1.0, 0.0, 0.0, 1.0, -1.0, -1.0, 1.0]
    known = noise.along(noise.of([[at + by] for at, by in enumerate(residuals)]), 1.0)
    assert (known.variance, known.freedom, known.level) == pytest.approx((1, 8, 10))
    assert known.error(1) == pytest.approx(math.sqrt(1 + 1 / 10 + 5.5**2 / 82.5))


def test_cells_that_differ_tell_little_of_each_other() -> None:
    known = cells(random.Random(2), [0.0005 * 1.3**step for step in range(20)])
    drawn = noise.moderated(known)
    assert all(9 < new.freedom < 12 for new in drawn)
    assert drawn[0].variance < 5 * known[0].variance


def test_a_cell_that_is_noisier_than_the_others_keeps_its_own() -> None:
    known = cells(random.Random(3), [0.01] * 29 + [0.04])
    assert noise.moderated(known)[-1].variance == known[-1].variance


def test_a_cell_alone_and_one_that_never_varied_are_left_as_they_are() -> None:
    known = cells(random.Random(4), [0.01, 0.0])
    assert noise.moderated(known) == tuple(known)
    # nor does the rounding of sums make it vary
    assert noise.of([[0.3] * 3, [0.1 + 0.2] * 3, [0.3] * 4]).variance == 0
    more = cells(random.Random(4), [0.01, 0.01, 0.0])
    assert noise.moderated(more)[-1] == more[-1]


def test_students_t() -> None:
    """Of printed tables."""
    for freedom, above, t in ((9, 0.025, 2.262157), (4, 0.05, 2.131847), (1, 0.025, 12.7062), (30, 0.005, 2.749996)):
        assert student_t.quantile(above, freedom) == pytest.approx(t, rel=1e-6)
        assert student_t.tail(t, freedom) == pytest.approx(above, rel=1e-5)


@pytest.mark.parametrize("freedom", [3, 9, 250])
@pytest.mark.parametrize("correlation", [0.0, 0.4, 0.9])
def test_both_of_two_t(correlation: float, freedom: float) -> None:
    """Above 0 both are in 1/4 + asin(correlation) / 2 pi of all, whatever the degrees of freedom (Sheppard 1899)."""
    quadrant = 0.25 + math.asin(correlation) / (2 * math.pi)
    assert student_t.both_tail(0, 0, correlation, freedom) == pytest.approx(quadrant, rel=1e-3)
    assert student_t.both_tail(3, 1, correlation, freedom) == pytest.approx(
        student_t.both_tail(1, 3, correlation, freedom), rel=1e-3
    )
    assert student_t.both_tail(3, -50, correlation, freedom) == pytest.approx(student_t.tail(3, freedom), rel=1e-3)
    # with as many degrees of freedom as make it normal, and no correlation, the product
    assert student_t.both_tail(2, 1, 0.0, 1e6) == pytest.approx(0.0227501 * 0.1586553, rel=1e-4)
    assert student_t.both_tail(1e9, 2, correlation, 250) < 1e-30


@pytest.mark.parametrize("value", [1e-3, 0.25, math.pi**2 / 6, 5.0, 1e4])
def test_the_inverse_of_trigamma(value: float) -> None:
    """Trigamma is the sum of 1 / (x + n)^2; the rest of the sum after many is close to an integral. At 1 it is pi^2/6."""
    x = student_t.inverse_trigamma(value)
    many = 20_000
    total = math.fsum(1 / (x + n) ** 2 for n in range(many)) + 1 / (x + many - 0.5)
    assert total == pytest.approx(value, rel=1e-6)


def test_a_line_and_a_step_are_told_apart() -> None:
    chance = random.Random(6)
    wobble = [chance.gauss(0, 0.3) for _night in range(20)]
    line = drift.trend([0.4 * at + by for at, by in enumerate(wobble)], least=4.0)
    assert line is not None
    assert line.steady
    assert line.slope == pytest.approx(0.4, abs=0.05)
    stepped = [(6.0 if at >= 12 else 0.0) + by for at, by in enumerate(wobble)]
    step = drift.trend(stepped, least=4.0)
    assert step is None or not step.steady
    assert drift.since(stepped) == 12
    assert drift.since([0.1, -0.1, 0.0, 0.1, 5.0]) == 4
    # one nightly run that stands out is neither
    assert drift.trend([*wobble[:10], 90.0, *wobble[10:]], least=4.0) is None


def test_kendalls_p_is_never_too_small() -> None:
    """Of ten nightly runs, exact: all in order 2 / 10!, all but one neighbouring pair 2 * (1 + 9) / 10!."""
    ordered = [float(at) for at in range(10)]
    swapped = [*ordered[:8], 9.0, 8.0]
    for nights, exact in ((ordered, 2), (ordered[::-1], 2), (swapped, 20)):
        found = drift.trend(nights, least=0.0)
        assert found is not None
        assert exact / math.factorial(10) < found.p < 3e-4
    # 11 of 45 pairs the wrong way round: 0.0466 in Kendall's table
    doubtful = drift.trend([4.0, 3.0, 2.0, 1.0, 0.0, 5.0, 6.0, 7.0, 9.0, 8.0], least=0.0)
    assert doubtful is not None
    assert 0.0466 < doubtful.p < 0.05
    mixed = drift.trend([1.0, 0.0] * 5, least=0.0)
    assert mixed is not None
    assert mixed.p > 0.5


# --- Intervals: numbers of t tables worked out by hand, what must hold of any values, what is refused


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
