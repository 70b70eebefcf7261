"""nightly baseline: what nightly runs are held against, shown, added to, and started anew."""

import json
import time
from pathlib import Path

import pytest

from taco_launch.bench.history.history import Ladder, LadderKind, open_history
from tests.conftest import Taco
from tests.support.ladders import run

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
                f"tiny-{ago}", "tiny", LadderKind.NIGHTLY_RUN, "", 1, "local", began, began, outcome, outcome == "ok"
            )
            history.begin(night)
            history.add(night.id, 0, run(1.0))
        history.begin(Ladder("tiny-x", "tiny", LadderKind.LADDER, "", 1, "local", now, now, "done"))
        history.begin(Ladder("tiny-bare", "tiny", LadderKind.NIGHTLY_RUN, "", 1, "local", now - DAY / 2, now, "failed"))
        history.begin(Ladder("tiny-now", "tiny", LadderKind.NIGHTLY_RUN, "", 1, "local", now))
    return ["tiny-3", "tiny-2", "tiny-1"]


def counted(taco: Taco) -> list[str]:
    done = taco.ok("nightly", "baseline", "show", "tiny", "--json")
    return [night["id"] for night in json.loads(done.stdout)["nightly_runs"] if night["accepted"]]


@pytest.mark.usefixtures("nights")
def test_a_red_night_counts_once_it_is_accepted(taco: Taco) -> None:
    assert counted(taco) == ["tiny-1", "tiny-3"]
    assert taco("nightly", "baseline", "accept", "tiny-2").returncode == 0
    assert counted(taco) == ["tiny-1", "tiny-2", "tiny-3"]
    outcomes = {
        row[0]: row[3:] for row in map(str.split, taco("nightly", "baseline", "show", "tiny").stdout.splitlines())
    }
    assert outcomes["tiny-2"] == ["accepted", "yes"]
    assert outcomes["tiny-bare"] == ["failed", "no"]
    assert "tiny-now" not in outcomes, "it runs"


def test_good_nights_are_offered_once_the_slow_one_is_rejected(taco: Taco) -> None:
    with open_history(taco.state / "history.db") as history:
        for at, (ladder, outcome, rate) in enumerate(
            (("slow", "ok", 10.0), ("good1", "pending", 100.0), ("wild", "pending", 900.0), ("good2", "unsure", 104.0))
        ):
            history.begin(Ladder(ladder, "m", LadderKind.NIGHTLY_RUN, "", 1, "local", at, at, outcome, outcome == "ok"))
            history.add(ladder, 0, run(rate))
    said = taco("nightly", "baseline", "reject", "slow").stderr.splitlines()
    offer = "2 waiting nightly runs agree with the rest; to accept: taco-launch "
    assert said == ["the results of slow do not count in the baseline", f"{offer}nightly baseline accept good1 good2"]
    assert taco(*said[1].removeprefix(offer).split()).returncode == 0
    table = taco("nightly", "baseline", "show", "m").stdout.splitlines()[1:]
    shown = {words[0]: words[3:5] for words in map(str.split, table)}
    assert shown == {
        "good2": ["accepted", "yes"], "wild": ["pending", "no"], "good1": ["accepted", "yes"], "slow": ["rejected", "no"],
    }  # fmt: skip


@pytest.mark.usefixtures("nights")
def test_a_name_that_no_night_has(taco: Taco) -> None:
    for words, more in (
        (("baseline", "show", "tinny"), "\nhint: did you mean 'tiny'?"),
        (("uninstall", "tinny"), " (neither cron nor systemd has it)"),
    ):
        refused = taco("nightly", *words)
        assert (refused.returncode, refused.stderr) == (2, f"error: no such nightly run: tinny{more}\n")
    refused = taco("nightly", "status", "tiny")
    assert refused.returncode == 2
    assert refused.stderr == (
        "error: no such nightly run: tiny (neither cron nor systemd has it)\n"
        "hint: runs that were started by hand are listed by their matrix: taco-launch nightly baseline show MATRIX\n"
    )
    (taco.state / "nights" / "tiny").mkdir(parents=True)
    hint = taco("nightly", "status", "tiny").stderr.splitlines()[1]
    assert hint == "hint: to see its last run that ended: taco-launch nightly report tiny --format md"
    assert taco("nightly", "baseline", "show", "lab").returncode == 0, "it is shipped, and was not run yet"


@pytest.mark.usefixtures("nights")
def test_the_runs_of_another_cluster_are_named(taco: Taco, tmp_path: Path) -> None:
    (tmp_path / "b.yaml").write_text("{cluster: b, hosts: {gpu1: {}}}")
    refused = taco("-i", str(tmp_path / "b.yaml"), "nightly", "baseline", "show", "tiny")
    assert refused.returncode == 1
    assert "no nightly run of tiny has ended on cluster b; it ran on: local\n" in refused.stderr


@pytest.mark.usefixtures("nights")
def test_what_is_far_from_the_others_is_marked_and_rejected(taco: Taco) -> None:
    now = time.time()
    with open_history(taco.state / "history.db") as history:
        for ladder, outcome, accepted, rate in (("far", "ok", True, 0.1), ("waits", "pending", False, 0.2)):
            night = Ladder(ladder, "tiny", LadderKind.NIGHTLY_RUN, "", 1, "local", now, now, outcome, accepted)
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
    assert " rejected  no" in taco("nightly", "baseline", "show", "tiny").stdout
    told = taco("nightly", "baseline", "accept", "far").stderr
    assert "far is far from the other runs that count (" in told
    assert "If it is the new normal, start the baseline over with it: taco-launch nightly baseline reset far\n" in told
    assert " accepted  yes" in taco("nightly", "baseline", "show", "tiny").stdout
    assert taco("nightly", "baseline", "reject", "far").returncode == 0
    assert taco("nightly", "baseline", "accept", "waits").returncode == 0
    assert counted(taco) == ["waits", "tiny-1", "tiny-2", "tiny-3"]


@pytest.mark.usefixtures("nights")
def test_the_baseline_begins_with_the_new_normal(taco: Taco) -> None:
    done = taco("nightly", "baseline", "reset", "tiny-2")
    assert done.returncode == 0
    told, undo = done.stderr.splitlines()
    assert told == "the baseline of tiny starts with tiny-2; 1 nightly run before it no longer counts"
    assert counted(taco) == ["tiny-1", "tiny-2"]
    table = taco("nightly", "baseline", "show", "tiny").stdout.splitlines()
    assert [line.split()[0] for line in table if " yes" in line] == ["tiny-1", "tiny-2"]
    assert next(line for line in table if line.startswith("tiny-3")).endswith(
        "  ok        no: before the baseline reset"
    )
    for command in undo.removeprefix("undo it: ").split(" && "):
        assert taco(*command.removeprefix("taco-launch ").split()).returncode == 0
    assert counted(taco) == ["tiny-1", "tiny-3"]
    assert "undo" not in taco("nightly", "baseline", "reset", "tiny-3").stderr, "it changes nothing"


@pytest.mark.usefixtures("nights")
def test_a_good_night_that_was_imported_shows_why_it_does_not_count(taco: Taco) -> None:
    now = time.time()
    with open_history(taco.state / "history.db") as history:
        history.begin(Ladder("there", "tiny", LadderKind.NIGHTLY_RUN, "", 1, "local", now, now, "ok", imported=True))
    found = json.loads(taco("nightly", "baseline", "show", "tiny", "--json").stdout)["nightly_runs"]
    told = {night["id"]: night["why_not"] for night in found}
    assert told.pop("there") == "imported without --baseline"
    assert set(told.values()) == {""}, "they count, or their outcome says why not"


@pytest.mark.usefixtures("nights")
@pytest.mark.parametrize(
    ("ladder", "words"),
    [
        ("tiny-x", "made by ladder, not by nightly run"),
        ("what", "not found in"),
        ("tiny-now", "has not ended"),
        ("tiny-bare", "tiny-bare measured nothing that can count"),
    ],
)
def test_what_is_no_night_is_refused(taco: Taco, ladder: str, words: str) -> None:
    for verb in ("accept", "reset"):
        refused = taco("nightly", "baseline", verb, ladder)
        assert refused.returncode == 2
        assert words in refused.stderr
    assert counted(taco) == ["tiny-1", "tiny-3"]


def test_without_a_history(taco: Taco) -> None:
    refused = taco("nightly", "baseline", "show", "tiny")
    assert refused.returncode == 1
    assert "there is no history yet" in refused.stderr
