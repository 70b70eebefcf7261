"""kill -9 of what a job has on its head: the job is over, which is told and clean; and the queue continues."""

import pytest

from tests.conftest import eventually
from tests.faults.conftest import Wave
from tests.faults.fates import KILLED, ends, lives, started
from tests.faults.site import JOBS, KEPT, SETTLED_SECONDS, Site

pytestmark = [pytest.mark.lab, pytest.mark.timeout(600)]


def guard(site: Site) -> None:
    name = started(site, "head-guard", "gpu1", "gpu3")
    since = site.kill("gpu1", site.pids("gpu1", f"pyz guard {JOBS}/{name}$"))
    ends(site, name, since, "FAILED", 1, "its guard was killed")


def supervisor(site: Site) -> None:
    name = started(site, "supervisor", "gpu1", "gpu2")
    since = site.kill("gpu1", site.pids("gpu1", f"pyz run {JOBS}/{name} "))
    ends(site, name, since, "LOST", 125, "its supervisor was killed")


def mpirun(site: Site) -> None:
    name = started(site, "mpirun", "gpu2", "gpu3")
    (parent,) = site.pids("gpu1", f"pyz run {JOBS}/{name} ")
    since = site.kill("gpu1", site.inside("gpu1", "pgrep -x -P $1 mpirun", parent).split())
    ends(site, name, since, "FAILED", KILLED, "the launcher was ended by signal 9 (SIGKILL)")


def scheduler(site: Site) -> None:
    """The queue continues although nobody types a command: the end of the job before is what wakes it."""
    before, behind = site.name("before"), site.name("behind")
    site.one.submit(before, "-H", "gpu4:2")
    site.one.runs(before)
    site.one.submit(behind, "-H", "gpu4:2", seconds=1)
    assert site.one.job(behind)["state"] == "QUEUED"
    # others come and go while jobs start and end: one that does not exist any more is not the one that watches gpu4
    eventually(lambda: site.inside("gpu1", "pkill -KILL -f '[p]yz schedule' && echo done"), 10, "a scheduler")
    since = site.let_end(before, "gpu4")
    events = f"grep -c '\"ended\"' {KEPT}/{behind}/events.jsonl"
    eventually(lambda: site.inside("gpu1", events) == "1", SETTLED_SECONDS, f"{behind} to end after {before}")
    for name in (before, behind):
        lives(site, name, since)


CASES = {"kill-head-guard": guard, "kill-supervisor": supervisor, "kill-mpirun": mpirun, "kill-scheduler": scheduler}


@pytest.mark.parametrize("case", CASES)
def test_kill(wave: Wave, case: str) -> None:
    wave.result(case)
