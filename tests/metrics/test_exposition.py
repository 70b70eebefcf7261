"""Metrics as text: what Prometheus' own parser reads is what was meant."""

import math
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from prometheus_client.parser import text_string_to_metric_families

from taco_launch.metrics.exposition import Family, Sample, histogram, text
from taco_launch.metrics.families import families
from taco_launch.model.jobs import JobState
from taco_launch.model.rows import FIELDS, JobRow
from taco_launch.model.slots import Occupancy, SlotHolder, SlotState
from taco_launch.model.tallies import BOUNDS, Tally

# No surrogates: UTF-8 has none.
WORDS = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
NUMBERS = st.floats(allow_nan=False) | st.integers(-(10**15), 10**15)


def parsed(raw: bytes) -> dict[str, dict[tuple[tuple[str, str], ...], float]]:
    """Return what a parser makes of it: by the name of a sample its labels and its value."""
    found: dict[str, dict[tuple[tuple[str, str], ...], float]] = {}
    for family in text_string_to_metric_families(raw.decode()):
        assert family.documentation, family.name
        for sample in family.samples:
            by_labels = found.setdefault(sample.name, {})
            labels = tuple(sorted(sample.labels.items()))
            assert labels not in by_labels, "twice the same"
            by_labels[labels] = sample.value
    return found


@given(WORDS, NUMBERS, WORDS)
@example('\\"\n\\n', 1, "a\\nb\nc")
@example("{}, =# \r\t\x00", math.inf, "\\")
def test_any_label_value_and_help(value: str, number: float, words: str) -> None:
    made = Family("m", "gauge", f"About: {words}", (Sample(number, (("a", value), ("b", "x"))), Sample(1)))
    (family,) = text_string_to_metric_families(text([made]).decode())
    assert (family.type, family.documentation.strip()) == ("gauge", f"About: {words}".strip())
    assert [(sample.labels, sample.value) for sample in family.samples] == [({"a": value, "b": "x"}, number), ({}, 1)]


def test_what_utf8_cannot_have() -> None:
    assert b'{host="n?"} 1\n' in text([Family("m", "gauge", "h", (Sample(1, (("host", "n\udcff"),)),))])


def test_the_text_itself() -> None:
    samples = histogram((("queue", "a b"),), (1.0, 2.5), (2, 0, 1), 9.25)
    assert text([Family("wait_seconds", "histogram", "Seconds.", samples)]).decode().splitlines() == [
        "# HELP wait_seconds Seconds.",
        "# TYPE wait_seconds histogram",
        'wait_seconds_bucket{queue="a b",le="1"} 2',
        'wait_seconds_bucket{queue="a b",le="2.5"} 2',
        'wait_seconds_bucket{queue="a b",le="+Inf"} 3',
        'wait_seconds_sum{queue="a b"} 9.25',
        'wait_seconds_count{queue="a b"} 3',
    ]


def row(name: str, state: JobState, **more: Any) -> JobRow:
    values: dict[str, Any] = {**dict.fromkeys(FIELDS), "admitted": True}
    return JobRow(**{**values, "name": name, "id": name, "state": state, "queue": "default", "cluster": "hcc", **more})


ROWS = (
    row("a", JobState.SUCCEEDED, waited=0.5),
    row("b", JobState.FAILED, waited=61.0, queue="night"),
    row("c", JobState.LOST, waited=1e9, queue="night"),
    row("d", JobState.CANCELLED),
    row("e", JobState.RUNNING, waited=1.0),
    row("f", JobState.QUEUED, queue="night"),
    row("g", JobState.RESTARTING, waited=2.0),
    row("h", JobState.SUSPENDED, queue='odd "queue"\\'),
)


def test_jobs() -> None:
    removed = Tally(10, 5, 3, 2).with_job(row("z", JobState.SUCCEEDED, waited=4.0, queue="gone"))
    found = parsed(text(families(ROWS, removed, {}, "1.2")))
    prefix = "taco_launch_jobs_"
    totals = {name.removeprefix(prefix): value[()] for name, value in found.items() if name.startswith(prefix)}
    assert totals == {"created_total": 19, "successful_total": 7, "failed_total": 5, "cancelled_total": 3}
    assert found["taco_launch_job_info"][("launcher", "a-launcher"), ("namespace", "hcc")] == 1
    assert len(found["taco_launch_job_info"]) == len(ROWS)
    assert found["taco_launch_jobs"][(("state", "RUNNING"),)] == 1
    assert sum(found["taco_launch_jobs"].values()) == len(ROWS)
    by_queue = {labels[0][1]: value for labels, value in found["taco_launch_queue_length"].items()}
    assert by_queue == {"default": 1, "night": 1, "gone": 0, 'odd "queue"\\': 0}
    assert found["taco_launch_build_info"] == {(("version", "1.2"),): 1}


def test_waits() -> None:
    found = parsed(text(families(ROWS, Tally(), {}, "1")))
    name = "taco_launch_queue_wait_seconds"
    assert found[f"{name}_sum"][(("queue", "default"),)] == 3.5
    assert found[f"{name}_count"][(("queue", "night"),)] == 2
    buckets = {
        float(dict(labels)["le"]): value
        for labels, value in found[f"{name}_bucket"].items()
        if ("queue", "night") in labels
    }
    assert buckets == {bound: int(bound >= 300) for bound in BOUNDS} | {math.inf: 2}
    # A job that never began has no wait, and a bound belongs to its bucket.
    default = {labels: value for labels, value in found[f"{name}_bucket"].items() if ("queue", "default") in labels}
    assert [default[("le", bound), ("queue", "default")] for bound in ("1", "5")] == [2, 3]


@given(st.permutations(ROWS), st.integers(0, len(ROWS)))
def test_nothing_falls_when_records_are_removed(rows: list[JobRow], first: int) -> None:
    removed = Tally()
    for gone in rows[:first]:
        removed = removed.with_job(gone)
    whole, left = (
        parsed(text(families(told, tally, {}, "1"))) for told, tally in ((rows, Tally()), (rows[first:], removed))
    )
    for name in whole:
        if name.endswith("_total") or "queue_wait" in name:
            assert left[name] == pytest.approx(whole[name]), name


def test_slots() -> None:
    held = SlotHolder("a", "1", 0.0)
    slots = (
        SlotState("g1", held),
        SlotState("g2", held, "used"),
        SlotState("g3", None, "used by process 1"),
        SlotState("g4"),
    )
    found = parsed(text(families((), Tally(), {"n1": Occupancy("x", slots, 4), "n2": None}, "1")))
    assert found["taco_launch_slots"] == {
        (("host", "n1"), ("state", "total")): 4,
        (("host", "n1"), ("state", "allocated")): 2,
        (("host", "n1"), ("state", "foreign")): 1,
    }
    assert found["taco_launch_host_ready"] == {(("host", "n1"),): 1, (("host", "n2"),): 0}
