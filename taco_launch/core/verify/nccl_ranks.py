"""Which rank and which host of the plan a process of NCCL's log is."""

from typing import Dict, List, NamedTuple, Optional

from taco_launch.core.model.run.observed import NcclCommunicator, NcclLog, NcclProcess
from taco_launch.core.model.run.planned import PlannedHost, RunPlan


class NcclRank(NamedTuple):
    """A process of NCCL's: its host in the plan and its rank of the world; None where that is not known."""

    process: NcclProcess
    host: Optional[PlannedHost]
    rank: Optional[int]

    @property
    def place(self) -> str:
        """The name of its host: that of the plan where it is known."""
        return self.host.name if self.host is not None else self.process.host


def seats(plan: RunPlan, log: NcclLog) -> List[NcclRank]:
    """Return each process with its host and its rank."""
    named = names_of_hosts(plan)
    found = []
    for process in log.processes:
        world = world_of(process, plan.np)
        host = named.get(process.host) or named.get(process.host.partition(".")[0])
        found.append(NcclRank(process, host, None if world is None else world.rank))
    return found


def world_of(process: NcclProcess, ranks: int) -> Optional[NcclCommunicator]:
    """Return the communicator of all ranks that a process is a member of; a complete one before others."""
    all_ranks = [one for one in process.communicators if one.ranks == ranks]
    return max(all_ranks, key=lambda one: one.complete) if all_ranks else None


def names_of_hosts(plan: RunPlan) -> Dict[str, PlannedHost]:
    """Return the hosts of the plan by the names that programs give them; a name that two of them have is left out."""
    named: Dict[str, List[PlannedHost]] = {}
    for host in plan.hosts:
        for form in {form for name in (host.name, *host.hostnames) for form in (name, name.partition(".")[0])}:
            named.setdefault(form, []).append(host)
    return {name: hosts[0] for name, hosts in named.items() if len(hosts) == 1}


def hosts_of_ranks(plan: RunPlan) -> Dict[int, PlannedHost]:
    """Return the host that each rank is planned for."""
    return {rank: host for host in plan.hosts for rank in host.ranks}
