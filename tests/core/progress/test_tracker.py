"""Values appear after three lines that agree, are measured by their times, and cost little, whatever a rank writes."""

import re
import time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from taco_launch.core.progress import lines, pattern
from taco_launch.core.progress.reading import TrainingProgress
from taco_launch.core.progress.tracker import Tracker


def nanogpt(step: int) -> str:
    return f"iter {step}: loss 3.5000, time 500.00ms, mfu 15.34%"


def bar(step: int, total: int = 100, epoch: int = 0, about: str = "Epoch {epoch}: ") -> str:
    return f"{about.format(epoch=epoch)}{step * 100 // total:3}%|####      | {step}/{total} [00:10<00:20,  2.00it/s]"


def test_the_third_line_is_the_first_that_counts() -> None:
    tracker = Tracker()
    for count, step in enumerate((10, 20, 30)):
        assert tracker.best() is None
        tracker.feed(100.0 + count, 0, nanogpt(step))
    found = tracker.best()
    assert found is not None
    assert (found.step, found.loss, found.rate, found.steps_per_second) == (30, 3.5, 2.0, 10.0)


def test_a_step_that_goes_back_begins_anew() -> None:
    tracker = Tracker()
    for step in (10, 20, 30, 5, 6):
        tracker.feed(float(step), 0, nanogpt(step))
    assert tracker.best() is None
    tracker.feed(100.0, 0, nanogpt(7))
    assert tracker.best() is not None


def test_the_speed_and_the_eta_are_measured() -> None:
    tracker = Tracker()
    for step in range(1, 31):
        tracker.feed(1000.0 + 4 * step, 0, bar(step))
    found = tracker.best()
    assert found is not None
    assert found.steps_per_second == pytest.approx(0.25)
    assert found.eta == pytest.approx(70 / 0.25)
    assert found.rate == 2.0  # what the bar says of itself


def test_lines_that_came_at_once_have_no_speed() -> None:
    tracker = Tracker()
    tracker.feed(5.0, 0, "\n".join(bar(step) for step in range(1, 9)))
    found = tracker.best()
    assert found is not None
    assert (found.steps_per_second, found.eta) == (None, None)


def test_the_next_epoch_goes_on() -> None:
    tracker = Tracker()
    for step in (98, 99, 100):
        tracker.feed(float(step), 0, bar(step))
    tracker.feed(101.0, 0, bar(1, epoch=1))
    found = tracker.best()
    assert found is not None
    assert (found.epoch, found.step, found.steps_per_second) == (1, 1, None)


def test_another_total_is_another_bar() -> None:
    tracker = Tracker()
    for step in (1, 2, 3):
        tracker.feed(float(step), 0, bar(step, about="train: "))
    tracker.feed(4.0, 0, bar(4, total=50, about="train: "))
    assert tracker.best() is None


def test_the_first_rank_that_says_something_is_shown() -> None:
    tracker = Tracker()
    for step in (1, 2, 3):
        for rank in (7, 3):
            tracker.feed(float(step), rank, nanogpt(step + rank))
    found = tracker.best()
    assert found is not None
    assert (found.rank, found.step) == (3, 6)
    assert tracker.of_rank(0) is None
    other = tracker.of_rank(7)
    assert other is not None
    assert other.step == 10


def test_a_bar_of_validation_does_not_replace_that_of_the_training() -> None:
    tracker = Tracker()
    for step in (1, 2, 3):
        tracker.feed(float(step), 0, bar(step))
        tracker.feed(float(step), 0, bar(step, total=10, about="Validation DataLoader 0: "))
    found = tracker.best()
    assert found is not None
    assert found.total == 100


@given(st.text())
def test_any_line_is_read(text: str) -> None:
    tracker = Tracker()
    for _ in range(3):
        tracker.feed(1.0, 0, text)
    assert lines.read(text) is None or isinstance(lines.read(text), TrainingProgress)


@given(st.integers(0, 60), st.sampled_from([nanogpt(1234), bar(1234, 5000), "Iter #7: 123.4 img/sec per GPU"]))
def test_a_line_that_is_cut_says_nothing_wrong(cut: int, line: str) -> None:
    """What is cut within a number would be another number."""
    whole, part = lines.read(line), lines.read(line[: max(0, len(line) - 1 - cut)])
    assert whole is not None
    assert part is None or (part.step, part.total) == (whole.step, whole.total)


def test_long_and_hard_lines_take_little_time() -> None:
    hard = [
        "x" * 100_000,
        "loss " * 399,
        "iteration 1/ 2 |" + " a: 1 |" * 270,
        "{'loss': 1.0, " + "'a': 1, " * 240 + "'epoch'",
        "Epoch 1: " + "a " * 100 + " 10%|" + "#" * 400,
        "  1/100 " + "1/" * 900 + "it/s",
        "step 1/2 | loss 1 |" + " | 1 tok/" * 200,
        "\x1b[1m" * 400 + "it/s",
    ]
    begun = time.process_time()
    for _ in range(50):
        for line in hard:
            lines.read(line)
    assert time.process_time() - begun < 5


def test_what_is_kept_is_limited() -> None:
    tracker = Tracker()
    for rank in range(5000):
        tracker.feed(1.0, rank, nanogpt(1))
    assert len(tracker._series) <= 4096


@pytest.mark.parametrize(
    ("text", "line", "expected"),
    [
        (r"step=(?P<step>\d+) loss=(?P<loss>[\d.]+)", "I step=12 loss=0.5", {"step": 12, "loss": 0.5}),
        (r"(?P<step>[\d,]+) of (?P<total>[\d,]+)", "1,200 of 5,000", {"step": 1200, "total": 5000}),
        (r"(?P<rate>\d+(?:\.\d+)?) img/s", "34.5 img/s", {"rate": 34.5, "unit": "img/s"}),
        (r"rate (?P<rate>\d+)", "rate 34", {"rate": 34, "unit": "per second"}),
        (r"epoch (?P<epoch>\d+)", "step 3", None),
        (r"loss (?P<loss>\S+)", "loss nothing", None),
        (r"loss (?P<loss>\S+)", "loss 1e-3" + " " * 600, None),
    ],
)
def test_a_pattern_of_ones_own(text: str, line: str, expected: dict[str, Any] | None) -> None:
    progress = None if expected is None else TrainingProgress("--progress", **expected)
    assert pattern.read(pattern.compiled(text), line) == progress


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("(", "not a valid regular expression"),
        ("x" * 301, "longer than 300"),
        (r"step \d+", r"no group is named step, epoch, loss or rate: write, for example, (?P<step>\d+)"),
        (r"(?P<total>\d+)", r"no group is named step, epoch, loss or rate: write, for example, (?P<step>\d+)"),
        (r"(?P<steps>\d+)", "'steps' is unknown: use step, total"),
        (r"(?P<step>(\d+)+)$", "a+)+, can take years: repeat single characters only"),
        (r"(?P<step>(?:\d*\d*)+)$", "a+)+, can take years: repeat single characters only"),
        (r"(?P<step>(?:a|a)+\d)", "a choice inside a repeat"),
        (r"(?P<step>\d+)(?P=step)", "groupref is not allowed: back references"),
        (r"(?=a)(?P<step>\d+)", "assert is not allowed: back references and look-around"),
        (r"(?P<step>\d+)" + ".*" * 12, "more than 12 repetitions (*, +, ?, {n})"),
    ],
)
def test_a_pattern_that_cannot_be_used(text: str, reason: str) -> None:
    with pytest.raises(pattern.PatternError, match=re.escape(reason)):
        pattern.compiled(text)


def test_a_pattern_of_ones_own_needs_three_lines_too() -> None:
    ready = pattern.compiled(r"done (?P<step>\d+)")
    tracker = Tracker()
    for step in (1, 2, 3):
        assert tracker.best() is None
        reading = pattern.read(ready, f"done {step}")
        assert reading is not None
        tracker.take(float(step), 0, reading)
    assert tracker.best() is not None


@given(st.text(alphabet="a1(){}[]|*+?.\\dPstep<>=:^$,", max_size=40))
def test_any_pattern_is_refused_or_quick(text: str) -> None:
    """Simple repeats one after the other are left: `agent.bounded` ends those."""
    try:
        ready = pattern.compiled(f"(?P<step>1){text}")
    except pattern.PatternError:
        return
    if text.count("*") + text.count("+") + text.count("{") > 2:
        return
    begun = time.process_time()
    pattern.read(ready, "a1" * 256)
    assert time.process_time() - begun < 2


def test_a_rank_that_has_ended_does_not_hide_the_slowest_of_the_others() -> None:
    tracker = Tracker()
    for step in (1, 2, 3, 4):
        for rank, behind in ((0, 0), (1, -10), (2, -20)):
            tracker.feed(float(step), rank, nanogpt(100 + step + behind))
    steps = [(found.rank, found.step) for found in map(tracker.best, ((), (0,), (0, 2), (0, 1, 2))) if found]
    assert steps == [(0, 104), (2, 84), (1, 94)]


@pytest.mark.parametrize(
    ("line", "rate", "unit"),
    [
        ("step 5/30 loss=0.5 100 img/s", 100.0, "img/s"),
        ("step 5/30, loss 0.5, 1.5 samples/sec", 1.5, "samples/s"),
        ("step 5/30 loss=0.5", None, ""),
        ("step 5/30 loss=0.5 100 images", None, ""),
        ("step 5/30 loss=0.5 lr=0.1 100 img/s", None, ""),
    ],
)
def test_the_rate_behind_the_loss(line: str, rate: float | None, unit: str) -> None:
    found = lines.read(line)
    assert found is not None
    assert (found.step, found.loss, found.rate, found.unit) == (5.0, 0.5, rate, unit)
