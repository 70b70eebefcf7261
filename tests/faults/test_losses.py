"""Hosts that go and do not come back in time: the job on each is over, and the others' are not.

Of each job a rank is on the head, or the host has it alone: what is elsewhere ends as well. Then the host returns, and
nothing of the job may live on it either.
"""

import time

import pytest

from tests.faults.conftest import Wave
from tests.faults.fates import in_time, started
from tests.faults.site import HOSTS, Site, told

pytestmark = [pytest.mark.lab, pytest.mark.timeout(600)]


def _is_lost(site: Site, name: str, host: str, since: float) -> None:
    job = site.one.ended(name)
    in_time(job, since)
    assert job["state"] == "LOST", told(job)
    assert f"host {host} lost" in job["reason"], told(job)
    site.settles(job, since, [other for other in HOSTS if other != host and other in job["hosts"]] or ["gpu1"])


def _is_clean(site: Site, name: str, host: str) -> None:
    """Expect nothing of the job on the host that is back, in the time that its guard has to notice."""
    site.is_up(host)
    site.settles(site.one.job(name), time.monotonic(), [host])
    site.one.ok("delete", "--yes", name)


def power_off(site: Site) -> None:
    name = started(site, "power-off", "gpu1", "gpu2")
    with site.fault("gpu2", "power-off", undo="power-on") as since:
        _is_lost(site, name, "gpu2", since)
    _is_clean(site, name, "gpu2")


def pause(site: Site) -> None:
    name = started(site, "pause", "gpu1", "gpu3")
    with site.fault("gpu3", "pause", undo="resume") as since:
        _is_lost(site, name, "gpu3", since)
    _is_clean(site, name, "gpu3")


def partition(site: Site) -> None:
    """The rank that is cut off is ended by its own guard, before anybody can reach the host again."""
    name = started(site, "partition", "gpu4")
    with site.fault("gpu4", "partition", undo="heal") as since:
        _is_lost(site, name, "gpu4", since)
        site.settles(site.one.job(name), since, ["gpu4"])
    _is_clean(site, name, "gpu4")


CASES = {"power-off": power_off, "pause": pause, "cut-for-good": partition}


@pytest.mark.parametrize("case", CASES)
def test_loss(wave: Wave, case: str) -> None:
    wave.result(case)
