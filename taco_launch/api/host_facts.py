"""Facts of an inventory's hosts, asked now."""

from collections.abc import Sequence

from taco_launch.core.facts import SUBJECTS
from taco_launch.core.model.host import paths
from taco_launch.core.model.host.facts import HostFacts
from taco_launch.core.model.host.hosts import Inventory
from taco_launch.hosts.fanout import connect
from taco_launch.hosts.gather_facts import gather, with_declared_values
from taco_launch.hosts.inventory.select import choose
from taco_launch.hosts.remote.credentials import Credentials


def facts_of(inventory: Inventory, names: Sequence[str], access: Credentials) -> tuple[HostFacts, ...]:
    """Return what is known of the hosts of these names, by default all of them. Raises as `Cluster.facts` does."""
    hosts = choose(inventory, ",".join(names)) if names else inventory.hosts
    container = paths.container(inventory.cluster) if inventory.container else None
    with connect(inventory, tuple(hosts), access) as fanout:
        answers = gather(fanout, SUBJECTS, sudo=access.sudo_password is not None, container=container)
    found = []
    for answer, host in zip(answers, hosts, strict=True):
        if answer.error is not None or answer.value is None:
            raise answer.error or AssertionError(host.name)
        found.append(with_declared_values(answer.value, host))
    return tuple(found)
