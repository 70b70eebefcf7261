"""What a nightly run clears away, and how many before it were unsure."""

from pathlib import Path

import pytest

from taco_launch.bench.history.history import open_history
from taco_launch.nightly.run import clear_logs, unsure_before
from tests.bench.ladders import ladder


def test_the_logs_of_old_nights_go(tmp_path: Path) -> None:
    logs = tmp_path / "ladders"
    nights = [ladder(number) for number in range(1, 61)]
    other = ladder(1, id="other", cluster="other")
    with open_history(tmp_path / "history.db") as history:
        for night in (*nights, other):
            history.begin(night)
            (logs / night.id).mkdir(parents=True)
        assert clear_logs(history, "taco", "hcc", logs, 31.0) == 30
        assert clear_logs(history, "taco", "hcc", logs, 31.0) == 0
    assert sorted(path.name for path in logs.iterdir()) == sorted(night.id for night in (*nights[30:], other))


@pytest.mark.parametrize(
    ("outcomes", "unsure"),
    [
        ((), 0),
        (("ok", "unsure", "unsure"), 2),
        (("unsure", "unsure accepted", "unsure"), 1),
        (("unsure", "rejected", "unsure"), 1),
        (("unsure", "interrupted", "the head was lost", "", "unsure"), 2),
        (("unsure", "regression"), 0),
    ],
)
def test_unsure_nights_in_a_row(tmp_path: Path, outcomes: tuple[str, ...], unsure: int) -> None:
    with open_history(tmp_path / "history.db") as history:
        for number, words in enumerate(outcomes, 1):
            outcome = words.removesuffix(" accepted")
            history.begin(ladder(number, ended=float(number), outcome=outcome, accepted=outcome != words))
        history.begin(ladder(50, id="other", cluster="other", ended=51.0, outcome="ok"))
        tonight = ladder(100)
        history.begin(tonight)
        assert unsure_before(history, tonight) == unsure
