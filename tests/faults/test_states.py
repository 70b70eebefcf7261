"""stop, and delete, of a job in every state that it can be in."""

import signal
import time
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from tests.faults.site import HOSTS, JOBS, KEPT, SETTLED_SECONDS, Site, of_job, told
from tests.support.patience import patience

pytestmark = [pytest.mark.lab, pytest.mark.timeout(600), pytest.mark.usefixtures("quiet")]

# So many seconds a rank that is deaf to TERM has: in these the job is seen to be STOPPING, and more is done. On a busy machine
# it has up to twice as many; each of them is waited for.
GRACE = 6
DEAF = "trap '' TERM; i=0; while [ $i -lt 300 ]; do sleep 1; i=$((i+1)); done"


def _submit(site: Site, name: str, *words: str) -> None:
    site.one.ok("submit", "--name", name, "--np", "1", "--grace", str(round(min(patience(GRACE), 2 * GRACE))), *words)


def queued(site: Site, name: str) -> None:
    _submit(site, name, "-H", "gpu4", "--", "true")


def suspended(site: Site, name: str) -> None:
    _submit(site, name, "--suspend", "-H", "gpu2", "--", "true")


def starting(site: Site, name: str) -> None:
    """The daemon of mpirun is frozen before it starts the rank."""
    catch = "for i in $(seq 2000); do pkill -STOP -x orted && echo done && break; sleep 0.005; done"
    with ThreadPoolExecutor(1) as pool:
        caught = pool.submit(site.inside, "gpu3", catch)
        _submit(site, name, "-H", "gpu3", "--", "sleep", "300")
        assert caught.result() == "done"


def running(site: Site, name: str) -> None:
    _submit(site, name, "-H", "gpu1", "--", "sleep", "300")


def stopping(site: Site, name: str) -> None:
    """The rank is deaf to TERM. It is made last, and stopped when it runs: it lasts for the grace time only."""
    _submit(site, name, "-H", "gpu1", "--", "sh", "-c", DEAF)


def restarting(site: Site, name: str) -> None:
    _submit(site, name, "-H", "gpu2", "--backoff-limit", "3", "--backoff", "5m", "--", "false")


def succeeded(site: Site, name: str) -> None:
    _submit(site, name, "-H", "gpu2", "--", "true")


def failed(site: Site, name: str) -> None:
    _submit(site, name, "-H", "gpu2", "--", "false")


def cancelled(site: Site, name: str) -> None:
    _submit(site, name, "--suspend", "-H", "gpu2", "--", "true")
    site.one.ok("stop", "--yes", name)


def lost(site: Site, name: str) -> None:
    _submit(site, name, "-H", "gpu2", "--", "sleep", "300")
    site.one.runs(name)
    site.kill("gpu1", site.pids("gpu1", f"pyz run {JOBS}/{name} "))


STATES: dict[str, Callable[[Site, str], None]] = {
    "QUEUED": queued,
    "SUSPENDED": suspended,
    "STARTING": starting,
    "RUNNING": running,
    "STOPPING": stopping,
    "RESTARTING": restarting,
    "SUCCEEDED": succeeded,
    "FAILED": failed,
    "CANCELLED": cancelled,
    "LOST": lost,
}


def _made(site: Site, holder: str) -> dict[str, str]:
    """Make a job in each state, and one besides that has all of gpu4; give their names by state."""
    site.one.submit(holder, "-H", "gpu4:2")
    site.one.runs(holder)
    names = {state: site.name(state.lower()) for state in STATES}
    with ThreadPoolExecutor(4) as pool:
        for done in [pool.submit(make, site, names[state]) for state, make in STATES.items()]:
            done.result()

    _are_in(site, names, {names["STOPPING"]: "RUNNING"}, holder)
    site.one.start("stop", "--yes", names["STOPPING"])
    _are_in(site, names, {}, holder)
    return names


def _are_in(site: Site, names: Mapping[str, str], other: Mapping[str, str], holder: str) -> None:
    """Wait until each job is in its state; `other` says of some that they are still in another."""
    wanted = {**{name: state for state, name in names.items()}, **other}
    deadline = time.monotonic() + patience(30)
    there: dict[str, str] = {}
    jobs: list[dict[str, Any]] = []
    while there != wanted and time.monotonic() < deadline:
        time.sleep(1)
        jobs = [job for job in site.one.jobs() if job["name"] != holder]
        there = {job["name"]: job["state"] for job in jobs}
    assert there == wanted, "\n".join(told(job) for job in jobs if job["state"] != wanted.get(job["name"]))


def _each(site: Site, verb: str, names: Iterable[str]) -> None:
    """Have a person for each job do something with it, all at the same time."""
    started = {name: site.one.start(verb, "--yes", name) for name in names}
    for name, process in started.items():
        said = process.communicate(timeout=patience(SETTLED_SECONDS))[1]
        assert process.returncode == 0, f"{verb} {name}: {said}"


def _nothing_left(site: Site) -> None:
    site.is_quiet()
    assert site.one.jobs() == []
    left = {host: site.inside(host, f"ls -d {KEPT}/*") for host in HOSTS}
    assert not any(left.values()), left


def test_stop(site: Site) -> None:
    holder = site.name("holder")
    names = _made(site, holder)
    _each(site, "stop", names.values())
    left = site.left()
    for state, name in names.items():
        job = site.one.job(name)
        ended = state in {"SUCCEEDED", "FAILED", "LOST"}
        assert job["state"] == (state if ended else "CANCELLED"), told(job)
        assert ended or job["exit_code"] == 128 + signal.SIGTERM, told(job)
        assert not of_job(left, job) or not site.left_of(job), told(job)
    site.one.ok("delete", "--yes", holder, *names.values())
    _nothing_left(site)


def test_delete(site: Site) -> None:
    holder = site.name("holder")
    names = _made(site, holder)
    _each(site, "delete", [holder, *names.values()])
    _nothing_left(site)
