"""Check hosts: ask them for what shows their health, and judge it."""

from collections.abc import Callable, Sequence

from taco_launch.core.facts import HEALTH, MADE, SUBJECTS
from taco_launch.core.facts.reports.health import judge
from taco_launch.core.facts.reports.health.system import Expected
from taco_launch.core.model.host import paths
from taco_launch.core.model.host.facts import HostFacts
from taco_launch.core.model.host.hosts import Inventory
from taco_launch.hosts.fanout import Answer, Fanout
from taco_launch.hosts.gather_facts import gather, with_declared_values

# First, so that what the others take is the time between its two looks.
_SUBJECTS = (HEALTH, *SUBJECTS, MADE)


def look(
    fanout: Fanout, inventory: Inventory, report: Callable[[Answer[HostFacts]], None], *, sudo: bool
) -> tuple[Sequence[judge.HostVerdicts], tuple[Answer[HostFacts], ...]]:
    """Check the hosts of `fanout`; return the verdicts on those that answered, and the answers of all.

    `report` is called as each has answered; with `sudo` they are asked as root.
    """
    name = paths.container(inventory.cluster) if inventory.container else None
    answers = gather(fanout, _SUBJECTS, report, sudo=sudo, container=name)
    by_name = {host.name: host for host in inventory.hosts}
    facts = [with_declared_values(answer.value, by_name[answer.host]) for answer in answers if answer.value is not None]
    return judge.checked(facts, expected_of(inventory)), answers


def expected_of(inventory: Inventory) -> Expected:
    """Return what an inventory expects of each of its hosts."""
    network, container = inventory.network, inventory.container
    if container is None:
        return Expected(rdma=network.rdma, gdr=network.gdr, hosts=len(inventory.hosts))
    name, port = paths.container(inventory.cluster), container.ssh_port
    memlock = dict(container.ulimits).get("memlock")
    return Expected(name, port, network.rdma, network.gdr, network.port_range, len(inventory.hosts), memlock)
