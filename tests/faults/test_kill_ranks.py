"""kill -9 of what a job has on its hosts, and of what follows it at the controller."""

import time

import pytest

from tests.faults import witness
from tests.faults.conftest import Wave
from tests.faults.fates import HUNG_UP, KILLED, ends, lives, one_each, started, wrappers
from tests.faults.site import JOBS, Site

pytestmark = [pytest.mark.lab, pytest.mark.timeout(600)]


def rank(site: Site) -> None:
    name = started(site, "rank", "gpu2", "gpu3")
    (wrapper,) = wrappers(site, "gpu3", name)
    since = site.kill("gpu3", site.inside("gpu3", "pgrep -P $1", wrapper).split())
    ends(site, name, since, "FAILED", KILLED, "rank 1 on gpu3 was ended by signal 9 (SIGKILL)")


def orted(site: Site) -> None:
    name = started(site, "orted", "gpu2", "gpu4")
    (wrapper,) = wrappers(site, "gpu4", name)
    daemon = site.inside("gpu4", "ps -o ppid= $1", wrapper)
    assert site.inside("gpu4", "ps -o comm= $1", daemon) == "orted"
    since = site.kill("gpu4", [daemon])
    # its rank goes with it: by the hang-up of its session, or killed by whoever is first to see it
    ends(site, name, since, "FAILED", (KILLED, HUNG_UP), "rank 1 on gpu4 was ", "mpirun's daemon")


def guard(site: Site) -> None:
    name = started(site, "guard", "gpu3", "gpu4")
    since = site.kill("gpu4", site.pids("gpu4", f"pyz guard {JOBS}/{name} "))
    ends(site, name, since, "FAILED", 1, "its guard on gpu4 was killed")


def wrapper(site: Site) -> None:
    name = started(site, "wrapper", "gpu1")
    since = site.kill("gpu1", wrappers(site, "gpu1", name))
    ends(site, name, since, "FAILED", KILLED, "rank 0 on gpu1")


def controller(site: Site) -> None:
    """A job needs neither `run` nor `logs -f`."""
    name = site.name("controller")
    script = f"until [ -e {witness.FOLDER}/end-{name} ]; do sleep 0.1; done; echo said at the end"
    run = site.one.start("run", "--name", name, *one_each("gpu1"), "--", "sh", "-c", script)
    site.one.runs(name)
    follower = site.one.start("logs", "-f", name)
    time.sleep(1)
    for process in (run, follower):
        process.kill()
        process.communicate()
    since = site.let_end(name, "gpu1")
    site.one.ended(name)
    assert site.one.ok("logs", name).count("said at the end") == 1
    lives(site, name, since)


CASES = {
    "kill-rank": rank,
    "kill-orted": orted,
    "kill-guard": guard,
    "kill-wrapper": wrapper,
    "kill-controller": controller,
}


@pytest.mark.parametrize("case", CASES)
def test_kill(wave: Wave, case: str) -> None:
    wave.result(case)
