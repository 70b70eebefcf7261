"""Judge what is to be seen of hosts, and is not set-up's to change: hardware, and software that hosts differ in."""

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from taco_launch.core.facts.reports.compare import FoldedFact, outliers
from taco_launch.core.facts.reports.compare import fold as fold_facts
from taco_launch.core.facts.reports.health.hardware import judged
from taco_launch.core.facts.reports.health.system import firewall
from taco_launch.core.facts.reports.health.verdict import FAULT, WARNING, HealthVerdict, folded
from taco_launch.core.facts.reports.summary import SummaryRow, rows
from taco_launch.core.frozen import dataclass
from taco_launch.core.model.host.facts import DockerFacts, HostFacts
from taco_launch.core.model.host.hosts import Inventory
from taco_launch.core.model.host.image_reference import parse_reference
from taco_launch.hosts.check import expected_of
from taco_launch.hosts.inventory.ranges import fold
from taco_launch.setup.model.host_images import image_on_host

# What all hosts of a job should have the same of; they may differ in what they are made of.
_SAME = ("driver", "driver on disk", "OFED", "container toolkit", "training image")
_MTU = re.compile(r"\bMTU (\d+)")


@dataclass(frozen=True)
class Findings:
    """What is to be seen of hosts, and is not set-up's to change: verdicts with hosts, and lines of who differs.

    `unlike` names the software and the MTUs that hosts differ in, and should not.
    """

    verdicts: tuple[tuple[HealthVerdict, tuple[str, ...]], ...]
    odd: tuple[str, ...]
    unlike: tuple[str, ...] = ()

    @property
    def faults(self) -> tuple[str, ...]:
        """The hosts of which something is broken, that set-up cannot fix."""
        broken = (host for each, hosts in self.verdicts if each.level == FAULT for host in hosts)
        return tuple(dict.fromkeys(broken))

    def document(self) -> dict[str, Any]:
        """Return both as JSON shows them."""
        remarks = [
            {"hosts": list(hosts), "name": each.name, "level": each.level, "text": each.text, "hint": each.hint}
            for each, hosts in self.verdicts
        ]
        return {"remarks": remarks, "differences": list(self.odd)}


def judge_hosts(facts: Sequence[HostFacts], inventory: Inventory, told_of: Mapping[str, str]) -> Findings:
    """Judge hosts' hardware, and name the odd host out over all that hosts of one cluster should agree on.

    `told_of` is what errors say of hosts already: what stops set-up is not told as a remark besides.
    """
    told: list[tuple[str, Sequence[SummaryRow]]] = []
    for each in facts:
        own = list(rows(each))
        if inventory.container is not None and isinstance(each.docker, DockerFacts):
            image = image_on_host(parse_reference(inventory.container.image), each.docker)
            own.append(SummaryRow("docker", "training image", image.id[: len("sha256:") + 12] if image else "none"))
        told.append((each.host, own))
    network = inventory.network
    verdicts: list[tuple[HealthVerdict, tuple[str, ...]]] = []
    for verdict, hosts in judged(facts, network.rdma, network.gdr):
        left = tuple(host for host in hosts if verdict.text not in told_of.get(host, ""))
        if left and verdict.level in (FAULT, WARNING):
            verdicts.append((verdict, left))
    compared = fold_facts(told)
    return Findings(tuple(verdicts), tuple(outliers(compared, fold)), tuple(_unlike(compared)))


def with_firewalls(
    findings: Findings, facts: Sequence[HostFacts], inventory: Inventory, opened: Collection[str]
) -> Findings:
    """Return findings with the hosts whose firewalls close what jobs need, except those that set-up is about to open."""
    expected = expected_of(inventory)
    closed = folded(
        (each.host, [verdict for verdict in firewall(each, expected) if verdict.level == FAULT])
        for each in facts
        if each.host not in opened
    )
    return replace(findings, verdicts=(*findings.verdicts, *closed))


def with_former(findings: Findings, hosts: tuple[str, ...]) -> Findings:
    """Return findings with the hosts that have left the inventory: a host that was never cleaned still reaches the others."""
    if not hosts:
        return findings
    left = HealthVerdict(
        "cluster's key",
        WARNING,
        "no longer in the inventory; unless teardown has cleaned it, it has the cluster's private key and can log in to the "
        "containers of all hosts",
        "",
        "replace the key: taco-launch setup --rotate-keys --only ssh_mesh",
    )
    return replace(findings, verdicts=(*findings.verdicts, (left, hosts)))


def _unlike(folded: Sequence[FoldedFact]) -> Iterator[str]:
    """Name the software that hosts have, and not the same of; a host without GPUs has none of some. And interfaces' MTUs."""
    for row in folded:
        mtus = {found[1] for text, _ in row.values if row.subject == "network" and (found := _MTU.search(text))}
        if row.differs and len(mtus) > 1:
            yield f"the MTU of {row.name}"
        versions = [text for text, _ in row.values if not text.startswith(("none", "unknown"))]
        if row.differs and row.name in _SAME and len(versions) > 1:
            yield row.name
