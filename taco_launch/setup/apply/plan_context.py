"""What the plans of one host depend on of the others and of the controller: keys, the image, the agent, packages."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cache

from taco_launch.core.errors import HostError, TacoLaunchError
from taco_launch.core.model.host import paths
from taco_launch.core.model.host.facts import DockerFacts, HostFacts, SetupState
from taco_launch.core.model.host.hosts import Host, Inventory
from taco_launch.hosts.fanout import Fanout
from taco_launch.hosts.remote import py_spy
from taco_launch.setup.apply import sources
from taco_launch.setup.files import gpu_devices
from taco_launch.setup.model.host_files import files_of
from taco_launch.setup.model.ops import PlanContext
from taco_launch.setup.stages.image import resolve
from taco_launch.setup.stages.toolkit import whole


class SharedReadings:
    """What one call of set-up has read of it, which is looked at again after every stage."""

    def __init__(self, inventory: Inventory, chosen: Mapping[str, Host], head_files: Sequence[str] = ()) -> None:
        """Start with nothing read; `chosen` are the hosts that are set up, by name; of the head `head_files` are read too."""
        self._inventory = inventory
        self._chosen = chosen
        self._agent = sources.Agent()
        self._py_spy = py_spy.program()
        self._packages = cache(sources.packages)
        self._of_head = sources.HeadFiles(inventory.cluster, head_files)

    def known(
        self, cluster: PlanContext, fanout: Fanout, facts: Mapping[str, HostFacts], failed: dict[str, TacoLaunchError]
    ) -> PlanContext:
        """Return `cluster` with what the hosts' `facts` say by now; who keeps the keys, and gives them not, is put to `failed`.

        Raises:
            UsageError: packages of the controller cannot be read.
        """
        made = {name: each.made for name, each in facts.items() if isinstance(each.made, SetupState)}
        alive = tuple(name for name in self._chosen if name in facts and name not in failed)
        keeper = self._keeper(facts, [name for name in made if name not in failed])
        if keeper is not None:
            try:
                is_head = keeper == self._inventory.head
                self._of_head.read(fanout.only((keeper,)).transports[0], made[keeper], is_head=is_head)
            except HostError as error:
                failed[keeper] = error
        bare = any(not isinstance(facts[name].docker, DockerFacts) for name in alive)
        engine, toolkit = self._inventory.docker, self._inventory.toolkit
        wanting = any(
            gpu_devices.gpus(self._chosen[name], facts[name]) and not whole(facts[name], toolkit) for name in alive
        )
        return replace(
            cluster,
            facts=facts,
            digest=resolve(self._inventory, facts),
            cluster_key=self._of_head.cluster_key,
            host_keys=tuple((name, each.host_key) for name, each in made.items() if isinstance(each.host_key, str)),
            known_hosts=self._of_head.known_hosts,
            head_files=self._of_head.more,
            agent=self._agent.file(made[name] for name in alive if name in made),
            py_spy=self._py_spy,
            packages=self._packages(engine.packages, "docker.packages") if bare else (),
            toolkit_packages=self._packages(toolkit.packages, "toolkit.packages") if wanting else (),
            peermem_packages=self._packages(self._inventory.peermem.packages, "peermem.packages"),
        )

    def _keeper(self, facts: Mapping[str, HostFacts], there: list[str]) -> str | None:
        """Return the head, or where it does not answer another of the hosts that are `there` which knows all host keys."""
        if self._inventory.head in there:
            return self._inventory.head
        known = paths.known_hosts(self._inventory.cluster)
        return next((name for name in there if known in (files_of(facts[name]) or {})), None)
