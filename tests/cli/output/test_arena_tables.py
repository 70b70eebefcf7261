"""Arena's tables, as its guides show them."""

from dataclasses import replace

from taco_launch.cli.output import arena_tables
from taco_launch.core.model.job_rows import row_of
from taco_launch.core.model.jobs import HostRanks, JobState
from taco_launch.core.model.slots import Occupancy, SlotHolder, SlotState
from taco_launch.jobs.backend import HostOccupancy
from tests.support.job_rows import HOSTS, NOW, ROWS, job, text

SHARES = (HostRanks("gpu1", 2, slots=("GPU-0", "GPU-1")), HostRanks("gpu2", 1, slots=("GPU-0",)))


def test_list() -> None:
    assert text(arena_tables.job_list(ROWS, NOW)).splitlines()[:3] == [
        "NAME   STATUS     TRAINER  AGE  NODE",
        "dist   RUNNING    MPIJOB   29s  gpu[1-2]",
        "small  SUCCEEDED  MPIJOB   46m  N/A",
    ]


def test_get_of_an_mpi_job() -> None:
    found = job("topo", 3, JobState.RUNNING, 11, shares=SHARES, started=NOW - 11, reason="every rank has started")
    found = replace(found, spec=replace(found.spec, slots_per_worker=1))
    assert (
        text(arena_tables.one_job(found, NOW))
        == """\
Name: topo
Status: RUNNING
Namespace: hcc
Priority: N/A
Trainer: MPIJOB
Duration: 11s

Instances:
NAME           STATUS   AGE  IS_CHIEF  GPU(Requested)  NODE
topo-launcher  Running  11s  true      0               gpu1
topo-worker-0  Running  11s  false     1               gpu1
topo-worker-1  Running  11s  false     1               gpu1
topo-worker-2  Running  11s  false     1               gpu2

REASON: every rank has started"""
    )


def test_get_of_a_pytorch_job_with_two_gpus_a_worker() -> None:
    found = job("dist", 2, JobState.RUNNING, 11, shares=SHARES[:1], started=NOW - 11)
    found = replace(found, spec=replace(found.spec, launcher="env", slots_per_worker=2))
    shown = text(arena_tables.one_job(found, NOW))
    assert "Trainer: PYTORCHJOB" in shown
    assert "dist-master-0  Running  11s  true      2               gpu1" in shown


def test_get_of_a_job_that_waits() -> None:
    found = job("next", 1, JobState.QUEUED, 5, waiting=(("gpu1", "0 of 2 free"),), reason="waiting for slots")
    shown = text(arena_tables.one_job(found, NOW))
    assert "Instances:" not in shown
    assert shown.endswith("WAITING:\n  gpu1: 0 of 2 free")
    assert row_of(found.spec, found.record).nodes == ()


def test_top_job() -> None:
    lines = text(arena_tables.top_jobs(ROWS, NOW)).splitlines()
    assert lines[0].split() == ["NAME", "GPU(Requests)", "GPU(Allocated)", "STATUS", "TRAINER", "AGE", "NODE"]
    assert lines[1].split() == ["dist", "3", "3", "RUNNING", "MPIJOB", "29s", "gpu[1-2]"]
    assert lines[-5:] == [
        "Total Allocated GPUs of Training Job:",
        "3",
        "",
        "Total Requested GPUs of Training Job:",
        "4",
    ]


def test_top_node() -> None:
    slots = (SlotState("GPU-1", SlotHolder("vgg16", "id", 0.0, "hcc", "alice")), SlotState("GPU-2"))
    nodes = (
        HostOccupancy(HOSTS[0], is_head=True, occupancy=Occupancy("a", slots, 2)),
        HostOccupancy(HOSTS[1], is_head=False, occupancy=None, problem="no answer"),
    )
    assert text(arena_tables.top_nodes(nodes)).splitlines() == [
        "NAME  IPADDRESS     ROLE    STATUS    GPU(Total)  GPU(Allocated)",
        "gpu1  192.168.0.31  head    ready     2           1",
        "gpu2  192.168.0.32  <none>  notready  0           0",
        "-" * 89,
        "Allocated/Total GPUs In Cluster:",
        "1/2 (50%)",
    ]
    assert text(arena_tables.top_nodes(())).endswith("0/0 (0%)")


def test_slots_that_are_cores_are_no_gpus() -> None:
    cores = (HostRanks("gpu1", 2, slots=("0", "1")),)
    found = job("dist", 2, JobState.RUNNING, 11, shares=cores, started=NOW - 11)
    shown = text(arena_tables.one_job(replace(found, spec=replace(found.spec, slots_per_worker=1)), NOW))
    assert "SLOT(Requested)" in shown
    assert "GPU" not in shown
