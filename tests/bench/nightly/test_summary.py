"""What a nightly run came to, in words: one line, Markdown, JSON, JUnit XML; whatever names and reasons hold."""

import json
import re
from dataclasses import replace
from xml.etree import ElementTree as ET

import pytest
from hypothesis import given
from hypothesis import strategies as st

pytest.importorskip("scipy")

from taco_launch.bench.compare.differences import Difference
from taco_launch.bench.model.runs import Cell
from taco_launch.bench.nightly.junit import junit
from taco_launch.bench.nightly.summary import NightlyOutcome, Summary, line, markdown, next_steps, to_json
from taco_launch.bench.stats.verdicts import VerdictKind
from tests.support.nights import NIGHT, SLOWER, judged

TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=30)


def test_the_line_names_the_worst_and_what_changed() -> None:
    assert line(SLOWER, "/n/x.md") == (
        "nightly taco: REGRESSION: resnet50 RDMA at 8 ranks -8.0 % [-9.0, -7.0]; "
        "changed since the last accepted run: gpu2: NIC rate eth0: 100 Gbit/s -> 25 Gbit/s; summary: /n/x.md"
    )


def test_the_line_tells_how_long_hosts_were_waited_for() -> None:
    assert line(replace(NIGHT, waited=754.0), "/n/x.md").endswith("; waited 12.6 min for hosts; summary: /n/x.md")
    assert "waited" not in line(NIGHT, "/n/x.md")


@pytest.mark.parametrize(("hosts", "level"), [(("gpu1", "gpu2"), "pairs"), (("gpu1",), "full")])
def test_a_slow_host_is_looked_for_as_its_hosts_allow(hosts: tuple[str, ...], level: str) -> None:
    """`check --level pairs` requires two hosts."""
    slower = replace(SLOWER, judged=(judged(VerdictKind.REGRESSION, -0.08, hosts=hosts),))
    commands = [command for command, _what in next_steps(slower)]
    assert [each for each in commands if " check " in each] == [f"taco-launch check --level {level}"]


@pytest.mark.parametrize(
    ("night", "outcome", "words"),
    [
        (
            replace(NIGHT, judged=(judged(VerdictKind.OK), judged(VerdictKind.DRIFT, -0.05))),
            "drift",
            "resnet50 RDMA at 16 ranks -5.0 % [-6.0, -4.0]: gradually, without a step",
        ),
        (replace(NIGHT, judged=(judged(VerdictKind.NO_VERDICT_YET),)), "ok", "1 cell without a verdict yet: "),
        (
            replace(NIGHT, judged=(judged(VerdictKind.UNSURE, -0.9), judged(VerdictKind.PENDING, -0.5))),
            "unsure",
            "resnet50 RDMA at 16 ranks -90.0 % [-91.0, -89.0]: the nightly runs differ too much to be sure",
        ),
        (
            replace(NIGHT, judged=(judged(VerdictKind.PENDING, -0.5), judged(VerdictKind.OK))),
            "pending",
            "resnet50 RDMA at 16 ranks -50.0 % [-51.0, -49.0]: accept or reject this run: it differs from the earlier nightly runs",
        ),
        (
            replace(SLOWER, judged=(judged(VerdictKind.NO_VERDICT_YET),)),
            "pending",
            "1 cell without a verdict yet: so it is; changed since the last accepted run: gpu2: NIC rate",
        ),
        (
            replace(NIGHT, judged=(judged(VerdictKind.IMPROVEMENT, 0.2),)),
            "ok",
            "1 cell faster (resnet50 RDMA at 16 ranks +20.0 % [19.0, 21.0])",
        ),
        (replace(NIGHT, judged=(judged(VerdictKind.NO_SAMPLE),)), "failed", "1 cell without a sample"),
        (replace(NIGHT, unfit="gpu2: no route"), "cluster not fit", "gpu2: no route"),
        (replace(NIGHT, broken="the head was lost"), "failed", "the head was lost"),
        (
            replace(NIGHT, failed=((Cell("a", "b", 1), "exit 3"), (Cell("a", "b", 2), "exit 4"))),
            "failed",
            "no sample of a b at 1 rank: exit 3 (and 1 more cell)",
        ),
        (
            replace(NIGHT, judged=(judged(VerdictKind.OK),), lost="2 of 5 runs failed: exit 3"),
            "pending",
            "2 of 5 runs failed: exit 3; accept the run if the failures have nothing to do with what is measured",
        ),
        (
            replace(NIGHT, judged=(judged(VerdictKind.OK),), lost="3 of 5 runs failed: exit 3", mostly_lost=True),
            "failed",
            "3 of 5 runs failed: exit 3; summary: ",
        ),
        (replace(SLOWER, failed=((Cell("a", "b", 1), "exit 3"),)), "regression", "resnet50 RDMA at 8 ranks -8.0 %"),
    ],
)
def test_outcomes(night: Summary, outcome: str, words: str) -> None:
    assert night.outcome.value == outcome
    assert line(night, "x").startswith(f"nightly taco: {outcome.upper()}: {words}")
    codes = {"ok": 0, "drift": 0, "unsure": 0, "pending": 0, "regression": 6, "cluster not fit": 5, "failed": 1}
    assert night.exit_code == codes[outcome]
    waits = outcome in ("unsure", "pending")
    assert replace(night, strict=True).exit_code == (6 if waits else codes[outcome])
    failures = ET.fromstring(junit(replace(night, strict=True))).findall("testcase/failure")
    assert bool(failures) == (outcome == "regression" or bool(night.of(VerdictKind.UNSURE, VerdictKind.PENDING)))
    errors = ET.fromstring(junit(night)).findall("testcase/error")
    assert bool(errors) == bool(outcome in ("failed", "cluster not fit") or night.failed or night.lost)


def test_an_interrupted_run_tells_what_was_clear_already() -> None:
    why = "3 of 9 runs were made; the run does not count in the baseline"
    night = replace(SLOWER, interrupted=why, judged=(*SLOWER.judged, judged(VerdictKind.UNSURE, -0.4)))
    assert (night.outcome, night.exit_code, night.outcome.counts) == (NightlyOutcome.INTERRUPTED, 130, False)
    assert line(night, "/n/x.md") == (
        "nightly taco: INTERRUPTED: slower: resnet50 RDMA at 8 ranks -8.0 % [-9.0, -7.0]; "
        f"slower, but not confirmed: resnet50 RDMA at 16 ranks -40.0 % [-41.0, -39.0]; {why}; summary: /n/x.md"
    )
    text = markdown(night)
    assert text.startswith("# Nightly run taco: interrupted\n")
    assert "- this run is incomplete: it does not count" in text
    assert "| resnet50 RDMA at 8 ranks | regression |" in text
    assert (to_json(night)["outcome"], to_json(night)["exit_code"]) == ("interrupted", 130)
    assert f'<error message="{why}" />' in junit(night)


def test_several_unsure_nights_in_a_row_are_told() -> None:
    once = replace(NIGHT, judged=(judged(VerdictKind.UNSURE, -0.2),), in_a_row=1)
    assert "in a row" not in line(once, "x") + markdown(once)
    thrice = replace(once, in_a_row=3)
    assert "to be sure; unsure 3 nightly runs in a row: look for a cause, as for a regression; " in line(thrice, "x")
    assert "\n\nIt was unsure 3 nightly runs in a row: look for a cause" in markdown(thrice)
    pending = replace(thrice, judged=(judged(VerdictKind.PENDING, -0.5),))
    assert "; pending 3 nightly runs in a row: none of them counts until you accept or reject it" in line(pending, "x")


def test_nothing_counts_by_itself_once_all_were_rejected() -> None:
    night = replace(NIGHT, judged=(judged(VerdictKind.NO_VERDICT_YET),), emptied=True)
    assert night.outcome.value == "pending"
    assert "PENDING: all earlier nightly runs were rejected: accept this one" in line(night, "x")
    assert replace(night, judged=(judged(VerdictKind.OK),)).outcome.value == "ok"


def test_other_hosts_are_named_where_there_is_no_verdict_yet() -> None:
    moved = (Difference("hosts", (), "gpu1", "gpu2"), Difference("image", (), "a", "b"))
    night = replace(NIGHT, judged=(judged(VerdictKind.NO_VERDICT_YET),), differences=moved)
    assert "; changed since the last accepted run: hosts: gpu1 -> gpu2; summary: x" in line(night, "x")
    assert "changed since" not in line(replace(night, differences=moved[1:]), "x")


def test_the_summary_says_what_to_type_next() -> None:
    text = markdown(SLOWER)
    assert text.startswith("# Nightly run taco: regression\n\nresnet50 RDMA at 8 ranks -8.0 %")
    assert "| NIC rate eth0 | gpu2 | 100 Gbit/s | 25 Gbit/s |" in text
    assert "`taco-launch bench diff taco-111111 taco-3fa2c1`" in text
    assert "`taco-launch nightly baseline accept taco-3fa2c1`" in text
    steps = markdown(replace(SLOWER, typed="taco-launch -i b.yaml")).partition("## Next")[2]
    assert steps.count("`taco-launch -i b.yaml ") == steps.count("\n- `") > 2
    waiting = markdown(replace(NIGHT, judged=(judged(VerdictKind.PENDING, 3.0),)))
    assert "`taco-launch nightly baseline reset taco-3fa2c1`: the results are the new normal" in waiting
    assert text.index("at 8 ranks | regression") < text.index("at 16 ranks | ok")


@given(TEXT, TEXT, TEXT)
def test_no_name_or_reason_breaks_what_is_written(name: str, why: str, host: str) -> None:
    one = judged(VerdictKind.REGRESSION, -0.1, why=why)
    key = replace(one.verdict.key, workload=name)
    night = replace(
        SLOWER,
        judged=(replace(one, verdict=replace(one.verdict, key=key)),),
        failed=((Cell(name, name, 2), why),),
        differences=(Difference(name, (host,), why, host),),
        notes=(why,),
    )
    assert len(line(night, "x").splitlines()) == 1
    assert markdown(night).replace("\n", "").isprintable()  # L6 of the second attack: it is read on a terminal, too
    rows = [row for row in markdown(night).split("\n") if row.startswith("|")]
    columns = [len(re.findall(r"(?<!\\)(?:\\\\)*\|", row)) for row in rows]
    assert columns == [5, 5, 5, 6, 6, 6]
    assert json.loads(json.dumps(to_json(night)))["failed"][0]["why"] == why
    suite = ET.fromstring(junit(night))
    assert [case[0].tag for case in suite] == ["failure", "error"]


def test_junit_counts() -> None:
    suite = ET.fromstring(junit(replace(SLOWER, judged=(*SLOWER.judged, judged(VerdictKind.NO_VERDICT_YET, ranks=1)))))
    assert {name: suite.get(name) for name in ("tests", "failures", "errors", "skipped")} == {
        "tests": "3",
        "failures": "1",
        "errors": "0",
        "skipped": "1",
    }
    assert NightlyOutcome.NOT_FIT.exit_code(strict=True) == 5
