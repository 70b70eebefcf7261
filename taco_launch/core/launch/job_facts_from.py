"""Facts of the hosts of a job -> what its line depends on."""

from dataclasses import replace
from typing import Dict, FrozenSet, List, Mapping, Optional, Sequence

from taco_launch.core.errors import PlacementError
from taco_launch.core.launch.command_line.decisions import interface, transport, versions
from taco_launch.core.launch.fabric_facts import between
from taco_launch.core.launch.missing_facts import free_slots, unused
from taco_launch.core.model.host.fact_value import Absent, known_value
from taco_launch.core.model.host.facts import Cpu, HostFacts, Software, System
from taco_launch.core.model.host.mig import MIG
from taco_launch.core.model.job_facts import JobFacts, JobHost
from taco_launch.core.model.jobs import JobSpec
from taco_launch.core.model.plans import wanted_of
from taco_launch.core.placement.default_slots import slots_of
from taco_launch.core.placement.gpu_constraints import place_alike

_CHOICE = "NCCL_IB_HCA"


def job_facts_from(known: JobFacts, spec: JobSpec, hosts: Sequence[HostFacts]) -> JobFacts:
    """Add what was found on the hosts of the job; the software is the head's, or its container's.

    What is between the hosts is asked of those alone that the job's ranks go to.
    """
    head = next((host for host in hosts if host.host == spec.head), None)
    image = head.image if head else None
    inside = spec.container is not None
    software = image if isinstance(image, Software) and (image.where != "host") == inside else None
    found = replace(
        known,
        root=known.root if spec.container or head is None else _is_root(head),
        openmpi=_version(software, "openmpi"),
        nccl=_version(software, "nccl"),
        horovod=_version(software, "horovod"),
        hosts=tuple(_job_host(host) for host in hosts),
    )
    placed = _placed(spec, found)
    if not placed <= {host.host for host in hosts}:
        return found
    named = interface(spec)
    taking_part = tuple(host for host in hosts if host.host in placed)
    return replace(
        found,
        between=between(taking_part, versions(spec, found).get("nccl"), named.text if named is not None else None),
    )


def hosts_with_ports_down(spec: JobSpec, facts: JobFacts) -> Dict[str, str]:
    """Return by host why it is kept back: a port is down that the job uses on others of its hosts.

    Hosts that look at nothing before a job (`gate: false`) are not judged, nor jobs that use no RDMA.
    """
    if facts.between is None or transport(spec).text == "tcp":
        return {}
    given: Mapping[str, Optional[str]] = {**dict(facts.environment or ()), **dict(spec.env)}
    gated = {host.name for host in spec.hosts if host.gate}
    down: Dict[str, List[str]] = {}
    for host, port, state in facts.between.down_ports:
        if host in gated and _uses(given.get(_CHOICE) or "", port):
            down.setdefault(host, []).append(f"{port} is {state}")
    return {host: _words(ports) for host, ports in down.items()}


def _words(ports: List[str]) -> str:
    steps = "check the cable and the port of the switch; taco-launch check shows all ports"
    return f"kept back by a check: RDMA ports: {', '.join(ports)}, and ACTIVE on other hosts of the job ({steps})"


def _uses(choice: str, port: str) -> bool:
    """Return whether NCCL uses a port, such as mlx5_0:1, by NCCL_IB_HCA; "" leaves it all (NCCL, env.rst)."""
    words = choice.lstrip("^=")
    hca = port.partition(":")[0]
    exact = "=" in choice[: len(choice) - len(words)]
    named = (word.partition(":")[::2] for word in words.split(",") if word)
    matches = any(
        (hca == name if exact else hca.startswith(name)) and number in ("", port.partition(":")[2])
        for name, number in named
    )
    return not words or matches != choice.startswith("^")


def slots(facts: HostFacts) -> Optional[int]:
    """Return how many ranks a host takes that declares no slots, None where its facts do not tell."""
    cpu = _cpu(facts)
    return slots_of(_gpus(facts), cpu.threads if cpu else None)


def _cpu(facts: HostFacts) -> Optional[Cpu]:
    system = known_value(facts.system)
    return None if system is None else known_value(system.cpu)


def _placed(spec: JobSpec, found: JobFacts) -> FrozenSet[str]:
    """Name the hosts that ranks go to, all where they do not fit."""
    everywhere = frozenset(host.name for host in spec.hosts)
    if spec.np is None and spec.host_count is None:
        return everywhere
    try:
        slots = {each.host: each for each in unused(spec, found)}
        placed, _models = place_alike(wanted_of(spec), spec.hosts, free_slots(spec, found), slots)
        return frozenset(share.host for share in placed.shares)
    except PlacementError:
        return everywhere


def _is_root(facts: HostFacts) -> bool:
    return isinstance(facts.system, System) and facts.system.access == "root"


def _gpus(facts: HostFacts) -> Optional[int]:
    gpus = () if isinstance(facts.gpus, Absent) else known_value(facts.gpus)
    return None if gpus is None else len(gpus)


def _job_host(facts: HostFacts) -> JobHost:
    cpu = _cpu(facts)
    return JobHost(
        facts.host,
        slots=slots(facts),
        gpus=_gpus(facts),
        models=tuple(gpu.name + (MIG if gpu.mig is True else "") for gpu in known_value(facts.gpus) or ()),
        cpus=cpu.threads if cpu else None,
        cores=cpu.cores if cpu else None,
    )


def _version(software: Optional[Software], name: str) -> Optional[str]:
    found = getattr(software, name, None)
    return found if isinstance(found, str) else None
