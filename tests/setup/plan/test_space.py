"""Disks that are full are told before any stage: nothing can be written there."""

from dataclasses import replace

from taco_launch.core.model.host.fact_value import Absent, Found, Unknown
from taco_launch.core.model.host.facts import Disk, HostFacts
from taco_launch.setup.plan.host_plan import plan_host
from taco_launch.setup.plan.stage_rules import RULES
from taco_launch.setup.stage_parts.space import full
from tests.support.host_facts import known
from tests.support.training import bare, cluster

MIB = 1 << 20


def with_free(disks: Found[tuple[Disk, ...]]) -> HostFacts:
    facts = bare("gpu1")
    return replace(facts, system=replace(known(facts.system), disks=disks))


def told(facts: HostFacts) -> list[str]:
    return [problem.message for problem in full(facts, cluster(facts).inventory)]


def disks(root: int, state: int, docker: int) -> HostFacts:
    free = {"/": root, "/var/lib/taco-launch": state, "/var/lib/docker": docker, "/tmp": 0}
    return with_free(tuple(Disk(path, "ext4", 1 << 40, size * MIB) for path, size in free.items()))


def test_full_disks_of_ours_and_of_docker() -> None:
    state = "the disk of /var/lib/taco-launch is full: /var/lib/taco-launch has 0 MiB free"
    assert told(disks(0, 64, 64)) == []
    assert told(disks(64, 0, 64)) == [state]
    assert told(disks(64, 0, 63)) == [state, "the disk of /var/lib/docker is full: /var/lib/docker has 63 MiB free"]
    assert told(with_free((Disk("/", "ext4", 1 << 40, 5),))) == [
        "the disk of /var/lib/taco-launch is full: / has 0 MiB free"
    ]


def test_what_is_not_known_is_not_full() -> None:
    facts = disks(64, 64, 0)
    assert told(replace(facts, docker=replace(known(facts.docker), root="/elsewhere"))) == []
    for unknown in (Unknown("df: no answer"), Absent(), ()):
        assert told(with_free(unknown)) == []


def test_nothing_is_planned_on_a_full_disk() -> None:
    facts = disks(64, 0, 64)
    of = cluster(facts)
    made = plan_host(of.host("gpu1"), facts, of, RULES)
    assert (made.ops, [problem.stage for problem in made.problems]) == ((), ["hardware"])
