"""Which facts a job's line waits for: where all is declared nothing has to be asked."""

from dataclasses import replace
from typing import Tuple

from taco_launch.core.launch.command_line.decisions import interface, transport
from taco_launch.core.launch.command_line.profile_options import used
from taco_launch.core.model.host.hosts import Host
from taco_launch.core.model.job_facts import JobFacts, JobHost
from taco_launch.core.model.jobs import JobSpec
from taco_launch.core.model.launchers import launcher_of
from taco_launch.core.model.plans import FreeSlots
from taco_launch.core.model.slots import Occupancy, SlotState
from taco_launch.core.placement.gpu_constraints import host_slots

# Names that are decided by looking at the host itself, which costs nothing where it is this machine.
_LOOKED = frozenset(("no_single_copy", "nccl"))
# Names that are decided by what the hosts' facts say of RDMA.
_RDMA = frozenset(("hcas", "gid_index", "address_range", "gdr", "no_gdr"))


def missing_facts(spec: JobSpec) -> Tuple[str, ...]:
    """Name the facts that nobody declared and the hosts can tell: slots, versions, interface, what the hosts allow."""
    names = used(spec.profile)
    local = [host.name for host in spec.hosts if host.connection == "local"]
    found = [f"slots of {host.name}" for host in spec.hosts if host.slots is None]
    found += [
        f"models of the GPUs of {host.name}"
        for host in spec.hosts
        if host.slots is not None and host.constraints.models
    ]
    if launcher_of(spec).is_open_mpi and names & {"openmpi4", "openmpi5"} and "openmpi" not in dict(spec.versions):
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


def needs_probe(spec: JobSpec) -> bool:
    """Return whether probing the hosts of a job would decide something, even where no fact is missing."""
    return bool(missing_facts(spec)) or (bool(used(spec.profile) & _RDMA) and transport(spec).text != "tcp")


def on_host(known: JobFacts, spec: JobSpec, found: JobHost) -> JobFacts:
    """Add what was found by looking at this machine, for every host of the job that is this machine."""
    local = [host.name for host in spec.hosts if host.connection == "local"]
    return replace(known, hosts=tuple(replace(found, host=name) for name in local))


def free_slots(spec: JobSpec, known: JobFacts) -> Tuple[FreeSlots, ...]:
    """Return the slots of the job's hosts that it may have: of what was declared, else of what was found."""
    return tuple(
        host_slots(host, found, lambda _found: "", exclusive=spec.exclusive)
        for host, found in zip(spec.hosts, unused(spec, known))
    )


def unused(spec: JobSpec, known: JobFacts) -> Tuple[Occupancy, ...]:
    """Return the hosts as if nobody had any of their slots, as far as they are declared or known."""
    return tuple(
        _unused(host, next((entry for entry in known.hosts if entry.host == host.name), JobHost(host.name)))
        for host in spec.hosts
    )


def _unused(host: Host, known: JobHost) -> Occupancy:
    """Return a host's slots; where nobody knows its GPUs, all of them are, and there are those that are named."""
    named = max(host.constraints.only, default=-1) + 1 if known.gpus is None else 0
    declared = known.slots or 0 if host.slots is None else max(host.slots, host.has or 0)
    slots = max(declared, known.gpus or 0, named) if declared else 0
    gpus = 0 if host.gpus == "none" else slots if known.gpus is None else known.gpus
    return Occupancy(host.name, tuple(SlotState(str(number)) for number in range(slots)), gpus, known.models)
