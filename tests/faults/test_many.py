"""Submits from 8 processes, of two clusters that share their hosts: every job runs once, and no slot is used twice."""

from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import pytest

from tests.conftest import eventually
from tests.faults import witness
from tests.faults.site import HOSTS, SLOTS, Person, Site, rank, told

pytestmark = [pytest.mark.lab, pytest.mark.timeout(900), pytest.mark.usefixtures("quiet")]

PROCESSES = 8
# Of the processes so many belong to the second cluster, which has another head.
OF_TWO = 3
ALL_SECONDS = 400


@dataclass(frozen=True)
class Use:
    """A rank's use of its place, as it wrote that down: its job, its number, and the times (seconds since the epoch)."""

    job: str
    rank: int
    begin: float
    end: float


def asked(number: int) -> tuple[tuple[str, ...], int]:
    """Return the options and the ranks of the job of a number: over all hosts, on two of them, or on one; of two priorities.

    Most name their hosts, which makes many of them bearable on a small machine: only these are asked.
    """
    ours = ("--priority", str(number // 8 % 2), "--queue", f"queue-{number % 2}")
    first, second = HOSTS[number // 3 % len(HOSTS)], HOSTS[(number // 3 + 1) % len(HOSTS)]
    if number % 4 == 0:
        ranks = 1 + number // 4 % 3
        return (*ours, "--np", str(ranks)), ranks
    if number % 4 == 1:
        return (*ours, "--hosts", "2", "--slots-per-host", "1", "-H", f"{first},{second}"), 2
    ranks = number % 4 - 1
    return (*ours, "--np", str(ranks), "-H", first), ranks


def submit(person: Person, name: str, process: int, submits: int) -> None:
    """Be one of the processes, which submits its share one by one."""
    for number in range(process, submits, PROCESSES):
        words = ("--name", f"{name}-{number}", *asked(number)[0], "--", *rank(0.2 + number % 4 / 5))
        person.ok("submit", *words, seconds=ALL_SECONDS)


def _uses(site: Site, host: str) -> Iterator[Use]:
    for line in site.inside(host, f"cat {witness.FOLDER}/ran").splitlines():
        job, number, begin, end = line.split()
        yield Use(job, int(number), float(begin), float(end))


def most_at_once(uses: list[Use]) -> int:
    """Return how many places were used at the same time."""
    changes = sorted([(use.begin, 1) for use in uses] + [(use.end, -1) for use in uses])
    now = most = 0
    for _time, change in changes:
        now += change
        most = max(most, now)
    return most


@pytest.mark.parametrize("case", ["30-submits", pytest.param("200-submits", marks=pytest.mark.nightly)])
def test_many_submits_of_two_clusters(site: Site, case: str) -> None:
    submits = int(case.partition("-")[0])
    for host in HOSTS:
        site.inside(host, f"rm -f {witness.FOLDER}/ran")
    name = site.name("many")
    people = [site.two] * OF_TWO + [site.one] * (PROCESSES - OF_TWO)
    with ThreadPoolExecutor(PROCESSES) as pool:
        for done in [pool.submit(submit, person, name, process, submits) for process, person in enumerate(people)]:
            done.result()
    wanted = {f"{name}-{number}": number for number in range(submits)}

    def ended() -> bool:
        return all(job["ended"] for person in (site.one, site.two) for job in person.jobs())

    eventually(ended, ALL_SECONDS, "all jobs to end")
    jobs = {job["name"]: job for person in (site.one, site.two) for job in person.jobs()}
    assert jobs.keys() == wanted.keys()
    assert [told(job) for job in jobs.values() if job["state"] != "SUCCEEDED"] == []
    uses = {host: list(_uses(site, host)) for host in HOSTS}
    ran = Counter((use.job, use.rank) for each in uses.values() for use in each)
    assert ran == {(job, number): 1 for job, index in wanted.items() for number in range(asked(index)[1])}
    assert {most_at_once(each) for each in uses.values()} == {SLOTS}  # full hosts, or this has shown nothing
    for person in (site.one, site.two):
        person.ok("prune", "--since", "0s", "--all")
        assert person.jobs() == []
