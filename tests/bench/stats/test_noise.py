"""What the judge's verdicts rest on: robust centres, spreads that the other cells tell of, Student's t, drifts and steps."""

import math
import random

import pytest

from taco_launch.bench.stats import drift, noise, student_t


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
