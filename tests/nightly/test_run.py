"""What a nightly run clears away: the logs of nightly runs that are older, however many there were since."""

from pathlib import Path

from taco_launch.bench.history.history import open_history
from taco_launch.nightly.run import clear_logs
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
