"""The judge of a nightly run: what it says of nightly runs made up by hand, numbers worked out apart, what it refuses."""

import math
import random
from dataclasses import replace
from typing import Any

import pytest

from taco_launch.bench.model.runs import MetricKey
from taco_launch.bench.stats import judge, noise
from taco_launch.bench.stats.judge import suspects, verdicts
from taco_launch.bench.stats.verdicts import JudgeRules, Series, Verdict, VerdictKind

# per cent, around 0: of the runs of a nightly run, and of nightly runs
RUNS = (-0.9, 0.3, 1.4, -0.2, 0.5)
NIGHTS = (0.3, -0.4, 0.1, 0.5, -0.2, 0.0, -0.5, 0.2, 0.4, -0.3, 0.1, -0.1)
Night = tuple[float, ...]
AGAINST = "[?, ?] against 20 nightly runs"
AGAIN = "measured again 10 times"
NEW = "a step that none of the accepted nightly runs shows"
LESS = "less than minEffect, which is 3 %"
SHOWN, BESIDES = "a step that the last accepted nightly run shows too", "a step in addition to the drift"
REVIEW = "accept or reject this run; if the earlier runs are wrong, reject them"
LARGE = "a gain this large counts only after you accept it"
GRADUALLY = "gradually, without a step"
WITH_THIS = "with this one the baseline"


def key(variant: str = "rdma") -> MetricKey:
    return MetricKey(("gpu1", "gpu2"), "A100", "resnet50", variant, 16, "img/sec")


def night(level: float, turn: int = 0, count: int = 5) -> Night:
    """Return so many runs around a level, the noise of which starts at another run each time."""
    return tuple(level * (1 + RUNS[(turn + run) % 5] * (1 + 0.3 * (turn % 3)) / 100) for run in range(count))


def baseline(*levels: float) -> tuple[Night, ...]:
    return tuple(night(level * (1 + NIGHTS[at % 12] / 100), at) for at, level in enumerate(levels))


FLAT = baseline(*[1000] * 20)
SLOW, FASTER = (baseline(*[1000 * each**at for at in range(20)]) for each in (0.997, 1.003))
UNEVEN, FALLEN = baseline(*[1000 + 80 * (-1) ** at for at in range(10)]), baseline(*[1000] * 19, 945)


def one(nights: tuple[Night, ...], tonight: Night, fresh: Night = (), *, higher: bool = True) -> Verdict:
    return verdicts([Series(key(), higher, nights, tonight, fresh)], JudgeRules())[0]


@pytest.mark.parametrize(
    ("nights", "tonight", "fresh", "kind", "why"),
    [
        (FLAT, 1002, None, "ok", f"+0.3 % {AGAINST}"),
        (FLAT[:2], 1002, None, "no verdict yet", f"{WITH_THIS} is complete: the next nightly run will be judged"),
        (FLAT[:1], 1002, None, "no verdict yet", f"{WITH_THIS} has 2 of 3 nightly runs"),
        (FLAT[:2], 900, None, "pending", f"-9.9 % against the 2 nightly runs so far: {REVIEW}"),
        (FLAT[:3], 1002, None, "ok", "+0.3 % [?, ?] against 3 nightly runs"),
        (((1000.0,),) * 3, 1000, None, "no verdict yet", f"{WITH_THIS} has 4 of 3 nightly runs, 8 of 10 values"),
        (FLAT, None, None, "no sample", "no run gave a number"),
        ((), None, None, "no sample", "no run gave a number"),
        (FLAT, 950, None, "no sample", f"worse: -4.9 % {AGAINST}, but measuring it again gave no number"),
        (FLAT, 950, 952, "regression", f"worse: -4.8 % {AGAINST}, {AGAIN}: {NEW}"),
        (FLAT, 1050, 1060, "improvement", f"better: +6.0 % {AGAINST}, {AGAIN}: {NEW}"),
        (FLAT, 40_000, 40_000, "pending", f"better: +3899.9 % {AGAINST}, {AGAIN}: {NEW}; {LARGE}"),
        (FLAT, 25, 25, "regression", None),
        (FLAT, 960, 999, "ok", f"worse: -3.9 % {AGAINST}, but -0.1 % [?, ?] when {AGAIN}"),
        (FLAT, 960, 1050, "ok", None),  # the other side was not suspected
        (FLAT, 980, None, "ok", f"-1.9 % {AGAINST}: {LESS}"),
        (FLAT, 970, 975, "ok", f"worse: -2.9 % {AGAINST}, but -2.5 % [?, ?] when {AGAIN}: {LESS}"),
        (UNEVEN, 920, None, "ok", "-7.7 % [?, ?] against 10 nightly runs: the nightly runs differ too much to be sure"),
        (FALLEN, 945, 945, "regression", f"worse: -5.2 % {AGAINST}, {AGAIN}: {SHOWN}"),
        (SLOW, 1000 * 0.997**20, None, "drift", f"worse: -5.6 % in 20 nightly runs, {GRADUALLY}"),
        (
            SLOW,
            890,
            890,
            "regression",
            f"worse: -5.5 % [?, ?] against the drift of 20 nightly runs, {AGAIN}: {BESIDES}",
        ),
        (FASTER, 1000 * 1.003**20, None, "drift", f"better: +5.8 % in 20 nightly runs, {GRADUALLY}"),
        # a step among the accepted nightly runs is no drift
        (baseline(*[1000] * 10, *[960] * 10), 962, None, "ok", None),
        # as much by night, but too little in all
        (baseline(*[1000 * 0.9985**at for at in range(20)]), 972, None, "ok", None),
        # numbers that never varied
        (((819.0,) * 5,) * 10, 819.0, None, "ok", "+0.0 % [?, ?] against 10 nightly runs"),
        (((819.1,) * 5,) * 12, 819.0, None, "ok", f"+0.0 % [?, ?] against 12 nightly runs: {LESS}"),
    ],
)
def test_what_is_said(
    nights: tuple[Night, ...], tonight: float | None, fresh: float | None, kind: str, why: str | None
) -> None:
    constant = bool(nights) and len(set(nights[0])) == 1
    runs = () if tonight is None else (tonight,) * 5 if constant else night(tonight, 2)
    found = one(nights, runs, () if fresh is None else night(fresh, 1, 10))
    assert (found.key, found.kind.value) == (key(), kind)
    assert why is None or _without_bounds(found.why) == why


def _without_bounds(text: str) -> str:
    parts = text.split("[")
    return "[".join([parts[0], *(f"?, ?]{part.partition(']')[2]}" for part in parts[1:])])


def test_a_time_is_worse_when_it_grows() -> None:
    found = one(FLAT, night(1050, 2), night(1060, 1, 10), higher=False)
    assert found.kind is VerdictKind.REGRESSION
    assert found.why.startswith("worse: +6.0 % ")
    assert one(FLAT, night(950, 2), night(950, 1, 10), higher=False).kind is VerdictKind.IMPROVEMENT


def single(*logs: float) -> tuple[Night, ...]:
    return tuple((math.exp(log),) for log in logs)


def test_the_screen_is_students_of_nights() -> None:
    """Of ten nightly runs with a variance of 0.001 / 9 one more differs by 0.03: t = 2.7136 with 9 degrees of freedom."""
    series = Series(key(), True, single(*[0.01, -0.01] * 5), (math.exp(-0.03),))
    found = verdicts([series], JudgeRules())[0]
    assert found.p == pytest.approx(0.0238564, rel=1e-5)
    assert found.change is not None
    assert found.change.value == pytest.approx(math.exp(-0.03) - 1)
    # t of 0.99: 2.8214379, times sqrt(0.001 / 9 * 1.1)
    assert (found.change.low, found.change.high) == pytest.approx(
        (math.exp(-0.03 - 0.0311922) - 1, math.exp(-0.03 + 0.0311922) - 1), rel=1e-4
    )
    assert suspects([series], JudgeRules()) == (key(),)
    assert suspects([series], JudgeRules(screen=0.0238)) == ()
    # surely less than 6 %
    assert suspects([series], JudgeRules(min_effect=0.06)) == ()
    assert suspects([replace(series, tonight=(math.exp(0.03),))], JudgeRules(min_effect=0.055)) == (key(),)


def test_what_a_night_does_to_all_its_runs_is_no_proof() -> None:
    """Runs that agree within a nightly run say nothing new of it: given the screen's find, the fresh ones were to be expected."""
    nights = tuple((math.exp(log),) * 5 for log in [0.03, -0.03] * 5)
    found = one(nights, (math.exp(-0.10),) * 5, (math.exp(-0.10),) * 10)
    # the screen's own p is 2 P(t > 3.015) = 0.0146, so that given the screen, at 0.05, a p of 0.0146 / 0.05 is due
    assert found.p == pytest.approx(0.0146 / 0.05, rel=0.02)
    assert found.kind is VerdictKind.UNSURE
    # where nightly runs do not differ, ten fresh runs are a proof of their own
    steady = baseline(*[1000] * 10)
    again = one(steady, night(950, 2), night(950, 1, 10)).p
    assert again is not None
    assert again < 1e-4


def test_fresh_values_are_judged_given_what_the_screen_found() -> None:
    """By hand: nightly runs have a variance of 0.001 / 9, of which runs make 6 e-5 (of winsorized ones: 4 e-4 / (3 * 2)).

    With 9 degrees of freedom the fresh t is 0.04 / sqrt(8 e-4 / 9) = 4.2426, its correlation with the screen's
    5 / sqrt(88) = 0.5330; both above 4.2426 and 2.2622, by integrating the density: 6.3346 e-4 of 0.025.
    """
    logs = [0.01, -0.01] * 5
    runs = (-0.02, -0.01, 0.0, 0.01, 0.02)
    nights = tuple(tuple(math.exp(log + run) for run in runs) for log in logs)
    tonight = tuple(math.exp(run - 0.04) for run in runs)
    assert one(nights, tonight, tonight * 2).p == pytest.approx(0.0253385, rel=1e-4)


def test_the_more_suspects_the_more_each_has_to_show() -> None:
    """Holm: of three alike that the screen found the p counts three times; what it did not find does not count."""
    three = [Series(key(name), True, FLAT, night(950, 2), night(950, 1, 10)) for name in "abc"]
    two = [*three[:2], replace(three[2], tonight=night(1000, 2), fresh=())]
    found = [[verdict.p for verdict in verdicts(each, JudgeRules())] for each in (three, two)]
    assert found[0][0] == found[0][1] == found[0][2]
    assert found[0][0] == pytest.approx(3 / 2 * (found[1][0] or 0.0), abs=0)
    # the least three times, the next twice, and never less than the one before
    assert judge._holm([0.03, 0.01, 0.04, 0.4]) == pytest.approx([0.09, 0.04, 0.09, 0.4])


def test_a_bad_run_of_five_changes_nothing() -> None:
    nights = baseline(*[1000] * 12)
    hit = (*night(1001, 1)[:4], 400.0)
    assert suspects([Series(key(), True, nights, hit)], JudgeRules()) == ()
    # nor does one in the baseline hide a loss
    broken = (*nights[:5], (*nights[5][:4], 300.0), *nights[6:])
    assert one(broken, night(950, 2), night(950, 1, 10)).kind is VerdictKind.REGRESSION


def test_the_last_nights_count() -> None:
    series = Series(key(), True, (*baseline(*[2000] * 30), *FLAT), night(1000, 3))
    found = verdicts([series], JudgeRules())[0]
    assert found == verdicts([replace(series, baseline=FLAT)], JudgeRules())[0]
    assert verdicts([series], JudgeRules(nightly_runs=10))[0].why.endswith("against 10 nightly runs")


# Three nightly runs of a noisy machine, img/s, and one over a link of 50 Mbit/s.
NOISY = tuple(night(level, turn) for turn, level in enumerate((26745, 22548, 16013)))


@pytest.mark.parametrize(
    ("tonight", "kind"),
    [
        (695, VerdictKind.REGRESSION),
        (2_000_000, VerdictKind.PENDING),
        (9_000, VerdictKind.UNSURE),
        (18_000, VerdictKind.OK),
    ],
)
def test_what_lies_wholly_beyond_what_matters_is_called_however_noisy_the_baseline(
    tonight: float, kind: VerdictKind
) -> None:
    rules = JudgeRules(min_effect=0.3)
    series = Series(key(), True, NOISY, night(tonight), night(tonight, 1, 10))
    assert verdicts([series], rules)[0].kind is kind
    if kind is VerdictKind.REGRESSION:  # by the interval alone: three nightly runs prove little
        assert verdicts([series], replace(rules, clear=0.9999))[0].kind is VerdictKind.UNSURE


@pytest.mark.parametrize("nights", [baseline(25, 25, 25, 1000), baseline(1000, 1030, 950, 120, 990)])
def test_a_wild_nightly_run_of_the_baseline_hides_nothing(nights: tuple[Night, ...]) -> None:
    slow = nights[0][0] * 0.12
    found = one(nights, night(slow), night(slow, 1, 10))
    assert found.kind is VerdictKind.REGRESSION
    assert f"against {len(nights) - 1} nightly runs (1 outlier left out)" in found.why
    # where too few are left for a verdict a person decides
    assert one((nights[0], nights[0], nights[3]), night(slow)).kind is VerdictKind.PENDING


@pytest.mark.parametrize(("count", "kind"), [(3, VerdictKind.UNSURE), (7, VerdictKind.UNSURE), (8, VerdictKind.OK)])
def test_a_tenth_is_not_ok_after_few_nightly_runs_that_differ_as_much(count: int, kind: VerdictKind) -> None:
    """Three of 960, 1000 and 1040 may be luck, and 900 after them may be none."""
    nights = baseline(*[1000 + 40 * (at % 3 - 1) for at in range(count)])
    assert one(nights, night(920)).kind is kind
    assert one(nights, night(975)).kind is VerdictKind.OK


def held(nights: tuple[Night, ...], waiting: tuple[Night, ...], tonight: float, fresh: float) -> Verdict:
    series = Series(key(), True, nights, night(tonight), night(fresh, 1, 10), waiting)
    return verdicts([series], JudgeRules())[0]


def test_a_loss_against_all_that_was_measured_is_called_before_the_baseline_is_complete() -> None:
    """The first run was a quarter faster than the next ones, which wait: a loss of 95 % is one against all of them."""
    first, waiting = baseline(1250), baseline(1000, 990)
    found = held(first, waiting, 50, 50)
    assert found.kind is VerdictKind.REGRESSION
    assert found.why.startswith("worse: -95.")
    assert "of which some wait to be accepted" in found.why
    assert held(first, waiting, 1000, 1000).kind is VerdictKind.PENDING
    assert held(baseline(1000, 1000), baseline(25), 25, 25).kind is VerdictKind.PENDING, "which is right is not known"


def test_nothing_counts_by_itself_while_only_runs_that_wait_are_there() -> None:
    found = held((), baseline(1000, 1000, 50), 50, 50)
    assert (found.kind, found.change) == (VerdictKind.PENDING, None)
    assert found.why == "no nightly run is in the baseline, and 3 wait for review: accept those with correct results"


def test_unsure_losses_in_a_row_add_up() -> None:
    nights, lost = (night(1000), night(780), night(1010)), tuple(map(night, (480, 520)))
    assert held(nights, (), 500, 500).kind is VerdictKind.UNSURE
    assert held(nights, lost[:1], 500, 500).kind is VerdictKind.UNSURE
    found = held(nights, lost, 500, 500)
    assert found.kind is VerdictKind.REGRESSION
    assert "in the last 3 nightly runs combined, compared with the 3 before them" in found.why
    assert held(nights, (night(480), night(900)), 500, 500).kind is VerdictKind.UNSURE, "not in a row"


def test_what_a_noisy_cell_is_seen_to_vary_by_is_no_outlier() -> None:
    assert noise.outliers([[0.0], [0.3], [0.9]]) == ()
    assert noise.outliers([[0.0, 0.4], [0.0, 0.4], [1.2, 1.6]]) == ()
    assert noise.outliers([[0.0, 0.01], [0.0, 0.01], [1.2, 1.21]]) == (2,)


def test_units_and_the_order_of_runs_do_not_count() -> None:
    chance = random.Random(2)
    nights = tuple(tuple(chance.gauss(100, 1) for _ in range(chance.choice([3, 5, 7, 10]))) for _night in range(12))
    series = Series(
        key(), True, nights, tuple(chance.gauss(95, 1) for _ in range(4)), tuple(chance.gauss(95, 1) for _ in range(10))
    )
    found = verdicts([series], JudgeRules())[0]
    turned = replace(series, baseline=tuple(each[::-1] for each in nights), tonight=series.tonight[::-1])
    assert verdicts([turned], JudgeRules())[0] == found
    scaled = Series(key(), True, *[_scaled(each) for each in (nights, series.tonight, series.fresh)])
    again = verdicts([scaled], JudgeRules())[0]
    assert (again.kind, again.why) == (VerdictKind.REGRESSION, found.why)
    assert again.p == pytest.approx(found.p, rel=1e-6)


def _scaled(values: Any) -> Any:
    return tuple(map(_scaled, values)) if isinstance(values, tuple) else 1e6 * values


def test_verdicts_come_in_the_order_of_the_series() -> None:
    series = [
        Series(key("d"), True, (), ()),
        Series(key("c"), True, FLAT, night(950, 2)),
        Series(key("b"), True, FLAT[:2], night(950, 2)),
        Series(key("a"), True, FLAT[::-1], night(1000)),
    ]
    assert [verdict.key.variant for verdict in verdicts(series, JudgeRules())] == ["d", "c", "b", "a"]
    assert suspects(series, JudgeRules()) == (key("c"),)
    assert verdicts([], JudgeRules()) == ()
    assert suspects([], JudgeRules()) == ()


@pytest.mark.parametrize("bad", [math.nan, math.inf, 0.0, -5.0])
def test_numbers_that_no_benchmark_gives_are_refused(bad: float) -> None:
    for part in ({"baseline": ((1.0,), (2.0, bad))}, {"tonight": (bad,)}, {"fresh": (1.0, bad)}):
        values: dict[str, Any] = {"baseline": (), "tonight": (), **part}
        with pytest.raises(ValueError, match=r"resnet50, rdma, 16 rank\(s\), img/sec: .* is not a rate"):
            Series(key(), True, **values)


def test_what_cannot_be_is_refused() -> None:
    with pytest.raises(ValueError, match="no values"):
        Series(key(), True, ((1.0,), ()), ())
    series = Series(key(), True, FLAT, ())
    for act in (suspects, verdicts):
        with pytest.raises(ValueError, match="two series of one key"):
            act([series, series], JudgeRules())
    wrong: list[dict[str, Any]] = [{"min_effect": 0.0}, {"level": 1.0}, {"screen": math.nan}]
    for rules in [*wrong, {"least_nightly_runs": 2}, {"least": 0}, {"fresh": 0}]:
        with pytest.raises(ValueError, match=f"^{next(iter(rules))} of "):
            JudgeRules(**rules)
    with pytest.raises(ValueError, match="least_nightly_runs of 3: it must be from 3 to nightly_runs, which is 2"):
        JudgeRules(nightly_runs=2)
