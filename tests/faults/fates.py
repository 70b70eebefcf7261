"""What becomes of a job: how one is started to have a fault, and what has to be true of it afterwards."""

import signal
import time
from collections.abc import Mapping
from typing import Any

from tests.faults.site import JOBS, SETTLED_SECONDS, Site, told
from tests.support.patience import patience

KILLED = 128 + signal.SIGKILL
HUNG_UP = 128 + signal.SIGHUP


def started(site: Site, stem: str, *hosts: str, seconds: float = 300, code: int = 0) -> str:
    """Return the name of a job that runs, one rank on each of these hosts."""
    name = site.name(stem)
    site.one.submit(name, *one_each(*hosts), seconds=seconds, code=code)
    site.one.runs(name)
    return name


def one_each(*hosts: str) -> tuple[str, ...]:
    """Return the options of a job with one rank on each of these hosts, on whichever slots are free."""
    return "--hosts", str(len(hosts)), "--slots-per-host", "1", "-H", ",".join(hosts)


def wrappers(site: Site, host: str, name: str) -> list[str]:
    """Return the processes of ours that a job's ranks on a host are children of."""
    return site.pids(host, f"pyz rank {JOBS}/{name} ")


def in_time(job: Mapping[str, Any], since: float) -> None:
    """Expect that a job has ended in the time that is given from the fault on."""
    took = time.monotonic() - since
    print(f"{told(job)}; {took:.1f} s after the fault")
    assert took < patience(SETTLED_SECONDS), f"{told(job)}; {took:.1f} s after the fault"


def ends(site: Site, name: str, since: float, state: str, code: int | tuple[int, ...], *reason: str) -> None:
    """Expect a job's end and its reason in time, nothing left of it, and that its record can be deleted."""
    job = site.one.ended(name)
    in_time(job, since)
    codes = (code,) if isinstance(code, int) else code
    assert job["state"] == state, told(job)
    assert job["exit_code"] in codes, told(job)
    for words in reason:
        assert words in job["reason"], told(job)
    site.settles(job, since)
    site.one.ok("delete", "--yes", name)


def lives(site: Site, name: str, since: float) -> None:
    """Expect that a job continues to its own end, as if nothing had been."""
    job = site.one.ended(name)
    assert (job["state"], job["exit_code"]) == ("SUCCEEDED", 0), told(job)
    site.settles(job, since)
    site.one.ok("delete", "--yes", name)
