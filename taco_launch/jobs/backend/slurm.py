"""Slurm as a backend: the agent on a login node keeps the jobs and gives them to Slurm."""

import contextlib
import time
from collections.abc import Iterator, Mapping

from taco_launch.core.model.engines import SLURM_PREFIX
from taco_launch.core.model.host.hosts import Host, Inventory
from taco_launch.core.model.jobs import JobSpec
from taco_launch.core.model.slots import SLOT, Drain, Occupancy, SlotHolder, SlotState
from taco_launch.core.slurm import nodes
from taco_launch.hosts import slurm_inventory
from taco_launch.hosts.remote.credentials import Credentials
from taco_launch.jobs.backend import HostOccupancy
from taco_launch.jobs.backend.agent import AgentBackend
from taco_launch.jobs.backend.agent_client import AgentClient, reach
from taco_launch.jobs.request.caller import local_names

_FLAGS = "$~#-+@!^%"  # sinfo(1): maintenance, power, planned; `*` stands for a node that does not answer
# States of nodes that run jobs, or will, in sinfo's words.
_USABLE = ("idle", "mixed", "allocated", "completing", "reserved", "planned")
_UNREAD = "this inventory has no states of Slurm: use the inventory slurm:, or sinfo"


@contextlib.contextmanager
def connect(
    inventory: Inventory | None, access: Credentials | None, environ: Mapping[str, str], typed: str
) -> "Iterator[SlurmBackend]":
    """Return the agent on the inventory's head. See backend.connect."""
    assert inventory is not None  # without one the engine is the agent
    with reach(inventory, access or Credentials(), environ, typed) as head:
        yield SlurmBackend(head, access or Credentials())


class SlurmBackend(AgentBackend):
    """Jobs that the agent on a login node keeps, and Slurm runs. See Backend."""

    def __init__(self, head: AgentClient, access: Credentials) -> None:
        """Keep the head; nothing is asked."""
        super().__init__(head)
        self._access = access

    def nodes(self, inventory: Inventory) -> tuple[HostOccupancy, ...]:
        """Return the nodes and how many of their slots are in use, as sinfo shows them; squeue shows by which jobs."""
        if not inventory.source.startswith(SLURM_PREFIX):
            return tuple(
                HostOccupancy(host, host.name == inventory.head, None, _UNREAD) for host in inventory.job_hosts
            )
        inventory = slurm_inventory.load(inventory.source, local_names, self._access)
        return tuple(_occupancy(host, inventory) for host in inventory.job_hosts)

    def _check_hosts(self, spec: JobSpec) -> None:
        """Accept any hosts: Slurm chooses them."""


def _occupancy(host: Host, inventory: Inventory) -> HostOccupancy:
    labels, count = dict(host.labels), host.slots or 0
    state, used, is_head = labels[nodes.STATE], int(labels[nodes.USED]), host.name == inventory.head
    if state.startswith("drain"):
        drain = Drain("Slurm", time.time(), f"{state} in Slurm: sinfo --list-reasons shows why")
    elif state.rstrip(_FLAGS) in _USABLE:
        drain = None
    else:
        return HostOccupancy(host, is_head, None, f"it is {state} in Slurm")
    holder = SlotHolder("jobs of Slurm", "slurm", 0.0)
    slots = tuple(SlotState(f"{SLOT}{number}", holder if number < used else None) for number in range(count))
    return HostOccupancy(host, is_head, Occupancy(host.name, slots, drain=drain))
