"""A job's line, and the names of its parts, made of its spec and record alone."""

import json

import pytest

from taco_launch.core.model.host.hosts import Host
from taco_launch.core.model.instances import Instance, instances
from taco_launch.core.model.job_rows import decoded, encoded, row_of
from taco_launch.core.model.jobs import HostRanks, JobRecord, JobSpec, JobState, Transition, VerifiedRun

HOSTS = tuple(Host(f"gpu{number}", f"10.0.0.{number}", slots=4) for number in (1, 2))
SPEC = JobSpec("a", ("true",), HOSTS, np=3, head="gpu1")
SHARES = (HostRanks("gpu1", 2, ("GPU-1", "GPU-2")), HostRanks("gpu2", 1, ("GPU-3",)))


def record(state: JobState, **more: object) -> JobRecord:
    return JobRecord("id", state, **{"np": 3, "hosts": ("gpu1", "gpu2"), "shares": SHARES, **more})  # type: ignore[arg-type]


@pytest.mark.parametrize("state", list(JobState), ids=lambda state: state.value)
def test_slots_are_allocated_while_there_are_ranks(state: JobState) -> None:
    row = row_of(SPEC, record(state))
    holds = state.value in ("STARTING", "RUNNING", "STOPPING")
    assert row.allocated == (3 if holds else 0)
    assert row.nodes == (("gpu1", "gpu2") if holds else ())
    assert row.hosts == ("gpu1", "gpu2")
    assert row.gpus


@pytest.mark.parametrize(
    ("asked", "np", "requested"),
    [
        ({"np": 3}, 0, 3),
        ({"np": None}, 0, 8),
        ({"np": None, "hosts": (HOSTS[0], Host("x", "x"))}, 0, None),
        ({"np": None, "hosts": (HOSTS[0], Host("x", "x"))}, 6, 6),
        ({"np": None, "host_count": 1}, 0, None),
        ({"np": None, "host_count": 1, "slots_per_host": 3}, 0, 3),
        ({"np": None, "host_count": 4, "least_hosts": 1, "slots_per_host": 3}, 0, None),
        ({"np": None, "host_count": 4, "least_hosts": 1, "slots_per_host": 3}, 6, 6),
        ({"np": None, "slots_per_host": 3}, 0, 6),
    ],
)
def test_how_many_slots_are_requested(asked: dict[str, object], np: int, requested: int | None) -> None:
    spec = JobSpec(**{"name": "a", "command": ("true",), "hosts": HOSTS, **asked})  # type: ignore[arg-type]
    assert row_of(spec, JobRecord("id", JobState.QUEUED, np=np)).requested == requested


def test_slots_without_a_gpu() -> None:
    assert not row_of(SPEC, record(JobState.RUNNING, shares=(HostRanks("gpu1", 3, ("slot-0", "slot-1")),))).gpus


def test_how_long_it_waited() -> None:
    change = Transition
    begun = (change(10.0, JobState.QUEUED), change(25.0, JobState.STARTING), change(90.0, JobState.STARTING))
    assert row_of(SPEC, record(JobState.RUNNING, submitted=10.0, transitions=begun)).waited == 15.0
    assert row_of(SPEC, record(JobState.QUEUED, submitted=10.0, transitions=begun[:1])).waited is None


def test_whether_it_runs_as_planned() -> None:
    assert row_of(SPEC, record(JobState.RUNNING)).verified == ""
    assert row_of(SPEC, record(JobState.RUNNING, verified=VerifiedRun("False", "rank 1"))).verified == "False"


def test_a_row_comes_back_from_json() -> None:
    row = row_of(SPEC, record(JobState.FAILED, reason="naïve \udcff", hint="x", exit_code=3, ended=7.5))
    assert row.reason == "naïve \udcff"
    assert decoded(json.loads(json.dumps(encoded(row)))) == row


def test_the_parts_of_an_mpi_job() -> None:
    assert instances(SPEC, record(JobState.RUNNING)) == (
        Instance("a-launcher", "gpu1"),
        Instance("a-worker-0", "gpu1", (0, 1)),
        Instance("a-worker-1", "gpu2", (2,)),
    )


def test_the_parts_of_a_job_of_another_launcher() -> None:
    spec = JobSpec("a", ("true",), HOSTS, np=3, launcher="torchrun")
    assert instances(spec, record(JobState.RUNNING)) == (
        Instance("a-master-0", "gpu1", (0,)),
        Instance("a-worker-0", "gpu1", (1,)),
        Instance("a-worker-1", "gpu2", (2,)),
    )


def test_the_parts_of_a_job_that_counts_workers() -> None:
    shares = (HostRanks("gpu1", 4), HostRanks("gpu2", 2))
    found = record(JobState.RUNNING, np=6, shares=shares)
    places = (("gpu1", (0, 1)), ("gpu1", (2, 3)), ("gpu2", (4, 5)))
    for launcher, names in (("mpirun", "worker-0 worker-1 worker-2"), ("env", "master-0 worker-0 worker-1")):
        spec = JobSpec("a", ("true",), HOSTS, np=6, head="gpu1", launcher=launcher, slots_per_worker=2)
        parts = instances(spec, found)[-3:]
        assert parts == tuple(Instance(f"a-{name}", *at) for name, at in zip(names.split(), places, strict=True))
    spec = JobSpec("a", ("true",), HOSTS, np=3, launcher="env", procs_per_gpu=2)
    assert [(part.host, part.ranks) for part in instances(spec, found)] == list(places)


def test_a_job_that_never_had_a_place_has_no_parts() -> None:
    assert instances(SPEC, JobRecord("id", JobState.QUEUED)) == ()
