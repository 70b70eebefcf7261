"""Arena's tables, as its guides show them."""

from dataclasses import replace

from taco_launch.cli.output import arena_tables
from taco_launch.core.model.job_rows import row_of
from taco_launch.core.model.jobs import HostRanks, JobState
from tests.support.job_rows import NOW, ROWS, job, text

SHARES = (HostRanks("gpu1", 2, slots=("gpu-0", "gpu-1")), HostRanks("gpu2", 1, slots=("gpu-0",)))


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
