"""The reference of metrics: every family that `taco-launch metrics` prints."""

from __future__ import annotations

from prometheus_client.core import Metric

from reference_pages.markdown import code, prose, table
from taco_launch.bench import nightly_metrics as nights
from taco_launch.core.model.job_counts import JobCounts, WaitTimes
from taco_launch.core.model.job_rows import JobRow
from taco_launch.core.model.job_view import LiveJob, Usage
from taco_launch.core.model.jobs import JobState
from taco_launch.core.model.slots import Drain, Occupancy, SlotState
from taco_launch.jobs.metrics.families import families

_INTRODUCTION = """\
# Metrics

This page is generated from `taco_launch/jobs/metrics` and `taco_launch/bench/nightly_metrics.py` by `scripts/generate_docs.py`. `taco-launch metrics` prints these families in
Prometheus' text format; [Monitor a cluster](../guides/monitoring.md) shows how to have them scraped.
"""
# A job, so that its family has a sample, and with that labels.
_JOB = JobRow(
    name="job",
    id="",
    state=JobState.RUNNING,
    reason="",
    launcher="mpirun",
    queue="default",
    priority=0,
    owner="",
    cluster="",
    np=1,
    requested=1,
    allocated=1,
    gpus=False,
    hosts=("gpu1",),
    submitted=None,
    started=None,
    ended=None,
    exit_code=None,
    attempt=1,
    waited=None,
    admitted=True,
    suspended=0.0,
    suspended_since=None,
    command="",
    last_line="",
    progress="",
    verified="",
    step=1.0,
    steps=1.0,
    rate=1.0,
    loss=1.0,
    goodput=1.0,
)

_USAGE = Usage(1.0, 60.0, received=1.0, sent=1.0, rdma_received=1.0, rdma_sent=1.0, gpus=1, gpu=1.0, gpu_memory=1.0)
_LIVE = LiveJob("job", None, (("gpu1", _USAGE),))
_RATIO = ({"cell": "", "metric": "", "hosts": "", "gpu": ""}, 1.0)
_NIGHT = nights.LastResult("taco", 1.0, "ok", 1.0, 1.0, (_RATIO,))


def page() -> str:
    """Return the page."""
    drained = Occupancy("gpu1", (SlotState("slot-0"),), drain=Drain("", 0.0, ""))
    removed = JobCounts(waits=(WaitTimes("default"),))
    rows = [
        (code(_name(family)), family.type, ", ".join(map(code, _labels(family))), prose(family.documentation))
        for family in (*families((_JOB,), removed, {"gpu1": drained}, "", (_LIVE,)), *nights.families((_NIGHT,)))
    ]
    return "\n".join([_INTRODUCTION, *table(("Family", "Type", "Labels", "Meaning"), rows)])


def _name(family: Metric) -> str:
    """Return the name to query: of a counter that of its samples."""
    return f"{family.name}_total" if family.type == "counter" else family.name


def _labels(family: Metric) -> list[str]:
    """Return the labels of a family's samples, but those of the text format."""
    names = dict.fromkeys(name for sample in family.samples for name in sample.labels)
    return [name for name in names if name != "le"]
