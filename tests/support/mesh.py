"""Clusters in the making: hosts whose facts are as a set-up leaves them, applied operation by operation."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from taco_launch.core.model.host import paths
from taco_launch.core.model.host.facts import ContainerState, HostFacts, Listener, SetupFile, SetupState
from taco_launch.core.model.host.hosts import Container, Host, Inventory
from taco_launch.core.model.host.hosts import Network as Wanted
from taco_launch.setup.model.host_files import with_made
from taco_launch.setup.model.ops import Op, PlanContext, Problem
from taco_launch.setup.stages import ssh_mesh
from tests.support.host_facts import host as guide_host
from tests.support.host_facts import known
from tests.support.training import made

NAME = "hcc"
RUNNING = ContainerState(f"taco-launch-{NAME}", "image", "running", ((paths.CLUSTER_LABEL, NAME),))
NOTHING = made()


def hosts(count: int) -> tuple[Host, ...]:
    return tuple(Host(f"gpu{number}", f"10.0.0.{number}") for number in range(1, count + 1))


def inventory(count: int = 2, port: int = 12222, **network: Any) -> Inventory:
    return Inventory(NAME, "gpu1", hosts(count), Container("image", ssh_port=port), Wanted(**network))


def bare(name: str) -> HostFacts:
    """Return a host whose container runs, and which is no member of any mesh."""
    facts = guide_host(name)
    return replace(facts, made=NOTHING, docker=replace(known(facts.docker), containers=(RUNNING,)))


def key(name: str) -> str:
    return f"ssh-ed25519 {name.encode().hex().upper()}"


class World:
    """Hosts, and what one round of set-up after another makes of them: planned, applied, looked at again."""

    def __init__(self, wanted: Inventory, facts: Sequence[HostFacts] | None = None) -> None:
        self.inventory = wanted
        self.facts = {each.host: each for each in facts or [bare(host.name) for host in wanted.hosts]}
        self.known_hosts = ""
        self.retired = ""

    @property
    def cluster(self) -> PlanContext:
        found = {name: each.made for name, each in self.facts.items() if isinstance(each.made, SetupState)}
        head = found.get(self.inventory.head)
        pair = (b"private\n", f"{head.cluster_key} taco\n") if head and isinstance(head.cluster_key, str) else None
        keys = tuple((name, each.host_key) for name, each in found.items() if isinstance(each.host_key, str))
        return PlanContext(
            self.inventory,
            self.facts,
            cluster_key=pair,
            host_keys=keys,
            known_hosts=self.known_hosts,
            with_head=head is not None,
            retired=self.retired,
        )

    def plan(self, name: str) -> tuple[Op | Problem, ...]:
        return tuple(ssh_mesh.plan(self.cluster.host(name), self.facts[name], self.cluster))

    def round(self) -> Mapping[str, tuple[str, ...]]:
        """Apply what is planned for each host, and give the names of it."""
        plans = {name: self.plan(name) for name in self.facts}
        for name, plan in plans.items():
            for item in plan:
                assert isinstance(item, Op), item
                self.apply(name, item)
        return {name: tuple(item.name for item in plan if isinstance(item, Op)) for name, plan in plans.items()}

    def apply(self, name: str, op: Op) -> None:
        facts = op.expect(self.facts[name])
        after = known(facts.made)
        for file in op.files:
            if file.path == paths.known_hosts(NAME) and name == self.inventory.head:
                self.known_hosts = file.data.decode()
            if file.path == f"{paths.key(NAME)}.pub":
                after = replace(after, cluster_key=file.data.decode())
        # what is made on the host itself shows when it is looked at again
        if op.args[:1] == (paths.host_key(NAME),):
            after = replace(after, host_key=key(f"host {name}"))
        if op.args[:1] == (paths.key(NAME),):
            after = replace(after, cluster_key=key(f"not {self.retired}" if self.retired else "cluster"))
        self.facts[name] = replace(facts, made=after)
        if op.args[:1] in ((paths.host_key(NAME),), (paths.key(NAME),)):
            private = SetupFile(op.args[0], "0" * 64, 0o600)
            self.facts[name] = with_made(self.facts[name], (private,))

    def converge(self) -> list[Mapping[str, tuple[str, ...]]]:
        """Continue until nothing is left to do; give the rounds."""
        rounds = []
        while any(self.plan(name) for name in self.facts):
            rounds.append(self.round())
            assert len(rounds) < 5
        return rounds


def with_listener(facts: HostFacts, *listeners: Listener) -> HostFacts:
    return replace(facts, network=replace(known(facts.network), listeners=listeners))
