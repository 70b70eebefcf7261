"""nightly baseline: what nightly runs are held against, shown, added to, and started anew."""

import json
import time
from pathlib import Path

import pytest

from taco_launch.bench.history.history import Ladder, LadderKind, open_history
from tests.bench.ladders import run
from tests.conftest import Taco

DAY = 86400.0


@pytest.fixture
def nights(taco: Taco) -> list[str]:
    """Three nightly runs of one matrix, the oldest first: the middle one red; and a ladder that is no night."""
    path: Path = taco.state / "history.db"
    now = time.time()
    with open_history(path) as history:
        for ago, outcome in ((3, "ok"), (2, "regression"), (1, "ok")):
            began = now - ago * DAY
            night = Ladder(
                f"tiny-{ago}", "tiny", LadderKind.NIGHT, "", 1, "local", began, began, outcome, outcome == "ok"
            )
            history.begin(night)
            history.add(night.id, 0, run(1.0))
        history.begin(Ladder("tiny-x", "tiny", LadderKind.LADDER, "", 1, "local", now, now, "done"))
        history.begin(Ladder("tiny-bare", "tiny", LadderKind.NIGHT, "", 1, "local", now - DAY / 2, now, "failed"))
        history.begin(Ladder("tiny-now", "tiny", LadderKind.NIGHT, "", 1, "local", now))
    return ["tiny-3", "tiny-2", "tiny-1"]


def counted(taco: Taco) -> list[str]:
    done = taco("nightly", "baseline", "show", "tiny", "--json")
    assert done.returncode == 0, done.stderr
    return [night["id"] for night in json.loads(done.stdout)["nights"] if night["accepted"]]


@pytest.mark.usefixtures("nights")
def test_a_red_night_counts_once_it_is_accepted(taco: Taco) -> None:
    assert counted(taco) == ["tiny-1", "tiny-3"]
    assert taco("nightly", "baseline", "accept", "tiny-2").returncode == 0
    assert counted(taco) == ["tiny-1", "tiny-2", "tiny-3"]


@pytest.mark.usefixtures("nights")
def test_what_is_far_from_the_others_is_marked_and_rejected(taco: Taco) -> None:
    now = time.time()
    with open_history(taco.state / "history.db") as history:
        for ladder, outcome, accepted, rate in (("far", "ok", True, 0.1), ("waits", "pending", False, 0.2)):
            night = Ladder(ladder, "tiny", LadderKind.NIGHT, "", 1, "local", now, now, outcome, accepted)
            history.begin(night)
            history.add(ladder, 0, run(rate))
        history.accept("tiny-2")
    table = taco("nightly", "baseline", "show", "tiny").stdout.splitlines()[1:]
    shown = {line.split()[0]: line.split()[3:] for line in table}
    assert [shown["waits"][0], shown["waits"][1]] == ["pending", "no"]
    assert shown["far"][:2] == ["ok", "yes"]
    assert shown["far"][-2:] == ["-90", "%"]
    assert shown["tiny-1"] == ["ok", "yes"]
    assert taco("nightly", "baseline", "reject", "far").returncode == 0
    assert " rejected    no" in taco("nightly", "baseline", "show", "tiny").stdout
    assert taco("nightly", "baseline", "accept", "waits").returncode == 0
    assert counted(taco) == ["waits", "tiny-1", "tiny-2", "tiny-3"]


@pytest.mark.usefixtures("nights")
def test_the_baseline_begins_with_the_new_normal(taco: Taco) -> None:
    done = taco("nightly", "baseline", "reset", "tiny-2")
    assert done.returncode == 0
    assert done.stderr == "the baseline of tiny starts with tiny-2; 1 night before it count no longer\n"
    assert counted(taco) == ["tiny-1", "tiny-2"]
    table = taco("nightly", "baseline", "show", "tiny").stdout.splitlines()
    assert [line.split()[0] for line in table] == ["LADDER", "tiny-1", "tiny-2"]


@pytest.mark.usefixtures("nights")
@pytest.mark.parametrize(
    ("ladder", "words"),
    [("tiny-x", "made by ladder, not by nightly run"), ("what", "no such ladder"), ("tiny-now", "has not ended")],
)
def test_what_is_no_night_is_refused(taco: Taco, ladder: str, words: str) -> None:
    for verb in ("accept", "reset"):
        refused = taco("nightly", "baseline", verb, ladder)
        assert refused.returncode == 2
        assert words in refused.stderr
    assert counted(taco) == ["tiny-1", "tiny-3"]


@pytest.mark.usefixtures("nights")
def test_a_baseline_begins_with_no_night_that_measured_nothing(taco: Taco) -> None:
    refused = taco("nightly", "baseline", "reset", "tiny-bare")
    assert refused.returncode == 2
    assert "tiny-bare has measured nothing" in refused.stderr
    assert counted(taco) == ["tiny-1", "tiny-3"]


def test_without_a_history(taco: Taco) -> None:
    refused = taco("nightly", "baseline", "show", "tiny")
    assert refused.returncode == 1
    assert "there is no history yet" in refused.stderr
