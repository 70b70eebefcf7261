"""Metrics as text: what Prometheus' own parser reads is what was meant."""

import math
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from prometheus_client.parser import text_string_to_metric_families

from taco_launch.core.model.job_counts import BOUNDS, JobCounts, WaitTimes
from taco_launch.core.model.job_rows import FIELDS, JobRow
from taco_launch.core.model.job_view import LiveJob, Usage
from taco_launch.core.model.jobs import JobState
from taco_launch.core.model.slots import USER, Drain, Occupancy, SlotHolder, SlotState
from taco_launch.jobs.metrics.families import text


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


WORDS = st.text(max_size=20)


@given(WORDS)
@example('\\"\n\\n')
@example("{}, =# \r\t\x00")
@example("n\udcff")
def test_any_name(name: str) -> None:
    found = parsed(text((), JobCounts(), {name: None}, "1"))
    assert found["taco_launch_host_ready"] == {(("host", name.encode("utf-8", "replace").decode()),): 0}


def test_the_text_itself() -> None:
    lines = (
        text((), JobCounts(waits=(WaitTimes("a b", 9.25, (2, 0, 1, *[0] * (len(BOUNDS) - 2))),)), {}, "1")
        .decode()
        .splitlines()
    )
    start = lines.index("# TYPE taco_launch_queue_wait_seconds histogram")
    assert (
        lines[start - 1] == "# HELP taco_launch_queue_wait_seconds Seconds from a job's submission to its first start."
    )
    assert lines[start + 1 : start + 4] == [
        'taco_launch_queue_wait_seconds_bucket{le="1.0",queue="a b"} 2.0',
        'taco_launch_queue_wait_seconds_bucket{le="5.0",queue="a b"} 2.0',
        f'taco_launch_queue_wait_seconds_bucket{{le="{BOUNDS[2]:.1f}",queue="a b"}} 3.0',
    ]
    assert 'taco_launch_queue_wait_seconds_count{queue="a b"} 3.0' in lines
    assert 'taco_launch_queue_wait_seconds_sum{queue="a b"} 9.25' in lines


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
    removed = JobCounts(10, 5, 3, 2).with_job(row("z", JobState.SUCCEEDED, waited=4.0, queue="gone"))
    found = parsed(text(ROWS, removed, {}, "1.2"))
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
    found = parsed(text(ROWS, JobCounts(), {}, "1"))
    name = "taco_launch_queue_wait_seconds"
    assert found[f"{name}_sum"][(("queue", "default"),)] == 3.5
    assert found[f"{name}_count"][(("queue", "night"),)] == 2
    buckets = {
        float(dict(labels)["le"]): value
        for labels, value in found[f"{name}_bucket"].items()
        if ("queue", "night") in labels
    }
    assert buckets == {bound: int(bound >= 300) for bound in BOUNDS} | {math.inf: 2}
    # A job that never started has no wait, and a bound belongs to its bucket.
    default = {labels: value for labels, value in found[f"{name}_bucket"].items() if ("queue", "default") in labels}
    assert [default[("le", bound), ("queue", "default")] for bound in ("1.0", "5.0")] == [2, 3]


def test_whether_running_jobs_run_as_planned() -> None:
    rows = (
        row("new", JobState.RUNNING, waited=0.0, verified=""),
        row("wrong", JobState.RUNNING, waited=0.0, verified="False"),
        row("over", JobState.FAILED, waited=0.0, verified="False"),
    )
    found = parsed(text(rows, JobCounts(), {}, "1"))
    assert {dict(labels)["launcher"]: dict(labels)["status"] for labels in found["taco_launch_job_verified"]} == {
        "new-launcher": "Unknown",
        "wrong-launcher": "False",
    }
    assert set(found["taco_launch_job_verified"].values()) == {1}


def test_the_progress_of_running_jobs() -> None:
    rows = (
        row("a", JobState.RUNNING, waited=0.0, step=40.0, steps=500.0, rate=1234.5),
        row("silent", JobState.RUNNING, waited=0.0),
        row("over", JobState.SUCCEEDED, waited=0.0, step=500.0, loss=0.1),
    )
    found = parsed(text(rows, JobCounts(), {}, "1"))
    told = {
        name: {dict(labels)["launcher"]: value for labels, value in found.get(f"taco_launch_job_{name}", {}).items()}
        for name in ("step", "steps", "rate", "loss")
    }
    assert told == {
        "step": {"a-launcher": 40},
        "steps": {"a-launcher": 500},
        "rate": {"a-launcher": 1234.5},
        "loss": {},
    }


def test_what_running_jobs_use() -> None:
    rows = (row("a", JobState.RUNNING, waited=0.0), row("b", JobState.RUNNING, waited=0.0))
    fast = Usage(1.0, 60.0, received=3e9, sent=1e9, rdma_received=2e9, rdma_sent=0.0, gpus=8, gpu=0.38, gpu_memory=0.5)
    live = (
        LiveJob("a", None, (("gpu1", fast), ("cpu1", Usage(1.0, 60.0, received=5.0)))),
        LiveJob("removed meanwhile", None, (("gpu1", fast),)),
    )
    found = parsed(text(rows, JobCounts(), {}, "1", live=live))

    def of(host: str) -> tuple[tuple[str, str], ...]:
        return ("host", host), ("launcher", "a-launcher"), ("namespace", "hcc")

    assert {name: value for name, value in found.items() if name.endswith(("_ratio", "_per_second"))} == {
        "taco_launch_job_gpu_use_ratio": {of("gpu1"): 0.38},
        "taco_launch_job_gpu_memory_ratio": {of("gpu1"): 0.5},
        "taco_launch_job_network_receive_bytes_per_second": {of("gpu1"): 3e9, of("cpu1"): 5.0},
        "taco_launch_job_network_transmit_bytes_per_second": {of("gpu1"): 1e9},
        "taco_launch_job_rdma_receive_bytes_per_second": {of("gpu1"): 2e9},
        "taco_launch_job_rdma_transmit_bytes_per_second": {of("gpu1"): 0.0},
    }


def test_hangs_and_restarts() -> None:
    rows = (
        row("fine", JobState.RUNNING, waited=0.0, attempt=1),
        row("hangs", JobState.RUNNING, waited=0.0, attempt=3, hung_since=5.0),
        row("waits", JobState.RESTARTING, waited=0.0, attempt=2),
        row("new", JobState.QUEUED, attempt=0),
        row("over", JobState.FAILED, waited=0.0, attempt=4),
    )
    found = parsed(text(rows, JobCounts(), {}, "1"))
    values = {
        name: {dict(labels)["launcher"].removesuffix("-launcher"): value for labels, value in found[name].items()}
        for name in ("taco_launch_job_hung", "taco_launch_job_restarts")
    }
    assert values["taco_launch_job_hung"] == {"fine": 0, "hangs": 1}
    assert values["taco_launch_job_restarts"] == {"fine": 0, "hangs": 2, "waits": 1, "new": 0}


def test_under_the_names_of_the_mpi_operator() -> None:
    found = parsed(text(ROWS, JobCounts(), {}, "1", mpi_operator=True))
    theirs = {name for name in found if name.startswith("mpi_operator_")}
    assert theirs == {
        "mpi_operator_jobs_created_total",
        "mpi_operator_jobs_successful_total",
        "mpi_operator_jobs_failed_total",
        "mpi_operator_job_info",
    }
    for name in theirs:
        assert found[name] == found[name.replace("mpi_operator_", "taco_launch_")]
    assert not [name for name in parsed(text(ROWS, JobCounts(), {}, "1")) if name.startswith("mpi_operator_")]


@given(st.permutations(ROWS), st.integers(0, len(ROWS)))
def test_nothing_falls_when_records_are_removed(rows: list[JobRow], first: int) -> None:
    removed = JobCounts()
    for gone in rows[:first]:
        removed = removed.with_job(gone)
    whole, left = (parsed(text(told, tally, {}, "1")) for told, tally in ((rows, JobCounts()), (rows[first:], removed)))
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
        SlotState("g5", None, "with unknown users (nvidia-smi: Unable to determine the device handle)"),
    )
    found = parsed(text((), JobCounts(), {"n1": Occupancy("x", slots, 5), "n2": None}, "1"))
    assert found["taco_launch_slots"] == {
        (("host", "n1"), ("state", "total")): 5,
        (("host", "n1"), ("state", "allocated")): 2,
        (("host", "n1"), ("state", "foreign")): 1,
        (("host", "n1"), ("state", "unknown")): 1,
    }
    assert found["taco_launch_host_ready"] == {(("host", "n1"),): 1, (("host", "n2"),): 0}


def test_the_kind_of_a_drain_and_who_decided_it() -> None:
    drains = {
        "n1": None,
        "n2": Drain("ann@desk", 1.0, "new cable"),
        "n3": Drain("root@ctl", 1.0, "policy: disk space: full", USER, policy=True),
    }
    hosts = {name: Occupancy(name, (), drain=drain) for name, drain in drains.items()}
    found = parsed(text((), JobCounts(), hosts, "1"))
    assert found["taco_launch_host_drain_timestamp_seconds"] == {(("host", "n2"),): 1, (("host", "n3"),): 1}
    assert found["taco_launch_host_drain_info"] == {
        (("by", "person"), ("host", "n2"), ("kind", "node")): 1,
        (("by", "policy"), ("host", "n3"), ("kind", "user")): 1,
    }
