"""The metrics of nightly runs: the last result of each, from the records and summaries that `nightly run` writes."""

import fcntl
import json
import os
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from taco_launch.bench import nightly_metrics as metrics
from taco_launch.bench.model.runs import MetricKey
from taco_launch.bench.nightly import record
from taco_launch.bench.nightly.record import LOCK, Installation, LastRun
from taco_launch.bench.nightly.recorded_run import record_run
from taco_launch.bench.nightly.schedule import Schedule, ScheduledRun
from taco_launch.bench.nightly.summary import JudgedMetric, Summary
from taco_launch.bench.stats.estimates import Interval
from taco_launch.bench.stats.verdicts import Verdict, VerdictKind
from taco_launch.core.errors import TacoLaunchError
from taco_launch.jobs.metrics.families import rendered

NOON = datetime(2026, 3, 2, 12, tzinfo=timezone.utc)


def judged(kind: VerdictKind, change: float = 0.0, *, ranks: int = 16) -> JudgedMetric:
    key = MetricKey(("gpu1", "gpu2"), "A100", "resnet50", "RDMA", ranks, "img/sec")
    interval = Interval(change, change - 0.01, change + 0.01)
    return JudgedMetric(Verdict(key, kind, interval, 0.001, "why"), 900 * (1 + change), 900.0, "img/sec")


@pytest.fixture
def nights(tmp_path: Path) -> Path:
    return record.folder({"TACO_LAUNCH_STATE": str(tmp_path)}, 0, "taco")


def read(nights: Path) -> tuple[dict[str, dict[str, float]], tuple[str, ...]]:
    """Return the metrics by family and by the label that tells its samples apart, and the warnings."""
    results, warnings = metrics.results({"TACO_LAUNCH_STATE": str(nights.parent.parent)}, 0, NOON)
    values: dict[str, dict[str, float]] = {}
    for family in text_string_to_metric_families(rendered(metrics.families(results)).decode()):
        for sample in family.samples:
            key = sample.labels.get("outcome") or sample.labels.get("cell") or sample.labels["night"]
            values.setdefault(family.name.removeprefix("taco_launch_night_"), {})[key] = sample.value
    return values, warnings


def summary(*verdicts: JudgedMetric, **more: Any) -> Summary:
    return Summary("taco", "taco", "hcc", "1", 100.0, 200.0, judged=verdicts, **more)


def run(nights: Path, made: Summary) -> None:
    record_run(nights, "taco", None, lambda _started: made)


def test_the_last_result(nights: Path) -> None:
    run(nights, summary(judged(VerdictKind.OK, 0.01), judged(VerdictKind.REGRESSION, -0.08, ranks=8)))
    values, warnings = read(nights)
    assert warnings == ()
    assert {name for name, value in values["outcome"].items() if value} == {"regression"}
    assert set(values["outcome"]) >= {"ok", "drift", "failed", "broken off"}
    assert values["ratio"] == pytest.approx({"resnet50/RDMA/16": 1.01, "resnet50/RDMA/8": 0.92})
    assert values["end_timestamp_seconds"]["taco"] >= values["start_timestamp_seconds"]["taco"] > 1e9
    run(nights, summary(judged(VerdictKind.OK)))
    values, _warnings = read(nights)
    assert {name for name, value in values["outcome"].items() if value} == {"ok"}
    assert values["ratio"] == {"resnet50/RDMA/16": 1}


def test_while_it_runs_the_result_before_stays_and_one_that_was_killed_is_broken_off(nights: Path) -> None:
    run(nights, summary(judged(VerdictKind.DRIFT, -0.05)))
    record.write(nights, LastRun(300.0, os.getpid()))
    with (nights / LOCK).open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        values, _warnings = read(nights)
    assert {name for name, value in values["outcome"].items() if value} == {"drift"}
    assert (values["end_timestamp_seconds"], values["start_timestamp_seconds"]) == ({"taco": 200}, {"taco": 300})
    assert values["ratio"] == pytest.approx({"resnet50/RDMA/16": 0.95})
    values, _warnings = read(nights)
    assert {name for name, value in values["outcome"].items() if value} == {"broken off"}
    assert "ratio" not in values
    assert "end_timestamp_seconds" not in values


def test_one_that_failed_without_a_measurement(nights: Path) -> None:
    def fail(_started: float) -> Summary:
        raise TacoLaunchError("the head was lost")

    with pytest.raises(TacoLaunchError):
        record_run(nights, "taco", None, fail)
    values, warnings = read(nights)
    assert ({name for name, value in values["outcome"].items() if value}, warnings) == ({"failed"}, ())
    assert "ratio" not in values


@pytest.mark.parametrize(
    ("days", "installed", "due"),
    [
        ((0,), datetime(2026, 3, 1, tzinfo=timezone.utc), datetime(2026, 3, 2, 2, 30, tzinfo=timezone.utc)),
        ((6,), datetime(2026, 2, 1, tzinfo=timezone.utc), datetime(2026, 3, 1, 2, 30, tzinfo=timezone.utc)),
        ((0,), datetime(2026, 3, 2, 3, tzinfo=timezone.utc), None),
    ],
    ids=["today", "the last of its days", "installed since"],
)
def test_when_a_nightly_run_should_have_started(
    nights: Path, days: tuple[int, ...], installed: datetime, due: datetime | None
) -> None:
    entry = ScheduledRun("taco", Schedule(2, 30, days), "/", ("taco-launch",))
    record.write(nights, Installation("cron", "text", entry, installed.timestamp()))
    values, _warnings = read(nights)
    assert values.get("due_timestamp_seconds") == (None if due is None else {"taco": due.timestamp()})
    assert values["start_timestamp_seconds"] == {"taco": 0}
    assert "outcome" not in values


@pytest.mark.parametrize(
    "text", ["", "[]", "{}", json.dumps({"outcome": "odd", "ended": 1, "judged": []}), '{"outcome": "ok", "ended": 1}']
)
def test_a_damaged_summary_is_a_warning_and_hides_no_other(nights: Path, text: str) -> None:
    run(nights, summary(judged(VerdictKind.OK)))
    next(nights.glob("????-*.json")).write_text(text)
    record.write(nights.with_name("other"), LastRun(1.0, 1, 2.0, 0, "ok"))
    values, warnings = read(nights)
    assert values["end_timestamp_seconds"] == {"other": 2}
    assert len(warnings) == 1
    assert warnings[0].startswith("nightly run taco: ")
    assert "is not in the format of this version" in warnings[0]


def test_no_nightly_run(tmp_path: Path) -> None:
    assert metrics.results({"TACO_LAUNCH_STATE": str(tmp_path)}, 0, NOON) == ((), ())
