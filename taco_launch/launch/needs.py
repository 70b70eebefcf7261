"""Which facts a job's line waits for: where all is declared nothing has to be asked."""

from dataclasses import replace
from typing import Any, Mapping, Tuple

from taco_launch.launch.decide import interface, transport
from taco_launch.launch.entries import used
from taco_launch.model.job_facts import JobFacts, JobHost
from taco_launch.model.jobs import JobSpec
from taco_launch.model.plans import HostSlots

# Names that are decided by looking at the host itself, which costs nothing where it is this machine.
_LOOKED = frozenset(("no_single_copy", "nccl"))
# Names that are decided by what the hosts' facts say of RDMA.
_RDMA = frozenset(("hcas", "gid_index", "address_range", "gdr", "no_gdr"))


def needs(spec: JobSpec) -> Tuple[str, ...]:
    """Name the facts that nobody declared and the hosts can tell: slots, versions, interface, what the hosts allow."""
    names = used(spec.profile)
    local = [host.name for host in spec.hosts if host.connection == "local"]
    found = [f"slots of {host.name}" for host in spec.hosts if host.slots is None]
    if spec.launcher == "mpirun" and names & {"openmpi4", "openmpi5"} and "openmpi" not in dict(spec.versions):
        found.append(f"version of {spec.mpirun}")
    if names & _LOOKED and local:
        found.append(f"GPUs and memory access on {local[0]}")
    elsewhere = any(host.name != spec.head for host in spec.hosts)
    if names & {"interface", "network"} and not local and elsewhere and interface(spec) is None:
        found.append("interface between the hosts")
    rdma = transport(spec).text == "rdma"
    if "gid_index" in names and not local and rdma and spec.network.gid_index is None:
        found.append("GID index")
    return tuple(found)


def looks(spec: JobSpec) -> bool:
    """Say whether the hosts of a job are looked at where that costs next to nothing, also if `needs` names nothing."""
    return bool(needs(spec)) or (bool(used(spec.profile) & _RDMA) and transport(spec).text != "tcp")


def on_host(known: JobFacts, spec: JobSpec, found: Mapping[str, Any]) -> JobFacts:
    """Add what was found by looking at this machine, for every host of the job that is this machine."""
    local = [host.name for host in spec.hosts if host.connection == "local"]
    return replace(known, hosts=tuple(JobHost(host=name, **found) for name in local))


def free_slots(spec: JobSpec, known: JobFacts) -> Tuple[HostSlots, ...]:
    """Give the slots of the job's hosts: what was declared, else what was found."""
    found = {host.host: host.slots for host in known.hosts}
    return tuple(
        HostSlots(host.name, (found.get(host.name) or 0) if host.slots is None else host.slots) for host in spec.hosts
    )
