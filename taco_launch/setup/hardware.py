"""What is wrong with a host's drivers before any stage: set-up checks them, and never installs them."""

from collections.abc import Iterator

from taco_launch.facts.gpus.blocking_faults import stops
from taco_launch.model.host.facts import HostFacts
from taco_launch.model.host.hosts import Inventory
from taco_launch.setup.ops import Problem


def faults(facts: HostFacts, inventory: Inventory) -> Iterator[Problem]:
    """Yield what `facts` calls a fault of drivers, as far as it is in the way of what the inventory asks for."""
    for stop in stops(facts, inventory.network.rdma, inventory.network.gdr):
        yield Problem("hardware", stop.text, stop.hint)
