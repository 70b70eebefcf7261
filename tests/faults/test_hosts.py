"""What hosts outlive, each with a job that continues; and a reboot, which the job on that host does not outlive."""

import pytest

from tests.conftest import eventually
from tests.faults.conftest import Wave
from tests.faults.fates import ends, lives, started
from tests.faults.site import Site, told

pytestmark = [pytest.mark.lab, pytest.mark.timeout(600)]


def reboot(site: Site) -> None:
    name = started(site, "reboot", "gpu1", "gpu2")
    with site.fault("gpu2", "reboot") as since:
        # by the start of its first process, for a lab host has the boot id of this machine
        ends(site, name, since, "LOST", 125, "host gpu2 lost: the host or its container restarted")
    site.is_up("gpu2")


def cut(site: Site) -> None:
    """Five seconds without any packet harm nothing: not a tick of any rank is missing."""
    name = started(site, "cut", "gpu1", "gpu3")

    def ticks(number: int) -> list[str]:
        return [line for line in site.one.ok("logs", "--rank", str(number), name).splitlines() if "tick" in line]

    with site.fault("gpu3", "cut", "5s") as since:
        eventually(lambda: len(ticks(1)) > 100, 30, "ticks from before and after the cut")
        site.let_end(name, "gpu1", "gpu3")
        job = site.one.ended(name)
        assert (job["state"], job["exit_code"]) == ("SUCCEEDED", 0), told(job)
    for lines in (ticks(0), ticks(1)):
        assert [int(line.split()[-1]) for line in lines] == list(range(len(lines))), lines
        assert lines
    lives(site, name, since)


def sshd(site: Site) -> None:
    """The container's sshd is stopped: who runs does not need it, who waits is told."""
    name, behind = site.name("sshd"), site.name("sshd-behind")
    site.one.submit(name, "-H", "gpu4:2")
    site.one.runs(name)
    site.one.submit(behind, "-H", "gpu4:2", seconds=1)
    main = site.pids("gpu4", f"clusters/{site.lab.name}/main.sh")
    # the first one: what it has just forked has its name, too
    server, *_ = site.pids("gpu4", f"sshd.* -f .*clusters/{site.lab.name}/ssh/sshd_config")
    site.kill("gpu4", main, "STOP")  # which would start another
    try:
        site.kill("gpu4", [server])
        since = site.let_end(name, "gpu4")
        assert site.one.ended(name)["state"] == "SUCCEEDED"
        eventually(lambda: "Connection refused" in str(site.one.job(behind)["waiting"]), 20, f"{behind} to say why")
    finally:
        site.kill("gpu4", main, "CONT")
    for each in (name, behind):
        lives(site, each, since)


CASES = {"reboot": reboot, "cut-5s": cut, "sshd-stopped": sshd}


@pytest.mark.parametrize("case", CASES)
def test_host(wave: Wave, case: str) -> None:
    wave.result(case)
