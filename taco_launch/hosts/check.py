"""Check hosts: ask them for what shows their health, and judge it."""

from collections.abc import Callable, Sequence

from taco_launch.core.facts import HEALTH, SUBJECTS
from taco_launch.core.facts.reports.health import judge
from taco_launch.core.facts.reports.health.system import Expected
from taco_launch.core.model.host import paths
from taco_launch.core.model.host.facts import HostFacts
from taco_launch.core.model.host.hosts import Inventory
from taco_launch.hosts.fanout import Answer, Fanout
from taco_launch.hosts.gather_facts import gather, with_declared_values

# First, so that what the others take is the time between its two looks.
_SUBJECTS = (HEALTH, *SUBJECTS)


def look(
    fanout: Fanout, inventory: Inventory, report: Callable[[Answer[HostFacts]], None], *, sudo: bool
) -> tuple[Sequence[judge.HostVerdicts], tuple[Answer[HostFacts], ...]]:
    """Check the hosts of `fanout`; return the verdicts on those that answered, and the answers of all.

    `report` is called as each has answered; with `sudo` they are asked as root.
    """
    network, container = inventory.network, inventory.container
    name, port = (paths.container(inventory.cluster), container.ssh_port) if container else (None, 0)
    answers = gather(fanout, _SUBJECTS, report, sudo=sudo, container=name)
    by_name = {host.name: host for host in inventory.hosts}
    facts = [with_declared_values(answer.value, by_name[answer.host]) for answer in answers if answer.value is not None]
    return judge.checked(facts, Expected(name, port, network.rdma, network.gdr)), answers
