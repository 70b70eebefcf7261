"""Jobs and rows of them for the tables of the command line."""

from typing import Any

import click

from taco_launch.core.model.host.hosts import Host
from taco_launch.core.model.job_rows import JobRow, row_of
from taco_launch.core.model.job_view import JobView
from taco_launch.core.model.jobs import HostRanks, JobRecord, JobSpec, JobState, Transition

NOW = 1_000_000.0


HOSTS = tuple(Host(f"gpu{number}", f"192.168.0.3{number}", slots=2) for number in (1, 2, 3))


GPUS = (HostRanks("gpu1", 1, ("GPU-1",)), HostRanks("gpu2", 2, ("GPU-2", "GPU-3")))


def text(drawn: str) -> str:
    """Leave out the type of the header."""
    return click.unstyle(drawn)


def job(name: str, np: int, state: JobState, ago: float, **record: Any) -> JobView:
    spec = JobSpec(name, ("python3", "train.py"), HOSTS, np=np, head="gpu1", cluster="hcc", owner="alice")
    hosts = tuple(share.host for share in record.get("shares", ()))
    told = {"np": np if hosts else 0, "hosts": hosts, "submitted": NOW - ago, **record}
    return JobView(spec, JobRecord("id", state, **told), f"/state/jobs/{name}")


def row(name: str, np: int, state: JobState, ago: float, **record: Any) -> JobRow:
    found = job(name, np, state, ago, **record)
    return row_of(found.spec, found.record, command="python3 train.py")


ROWS = (
    row("dist", 3, JobState.RUNNING, 29, shares=GPUS, transitions=(Transition(NOW - 20, JobState.STARTING),)),
    row("small", 1, JobState.SUCCEEDED, 46 * 60, shares=GPUS[:1], exit_code=0),
    row("night", 2, JobState.FAILED, 14 * 3600, shares=GPUS[1:], exit_code=3, reason="a\nb", hint="c"),
    row("next", 1, JobState.QUEUED, 3),
)
