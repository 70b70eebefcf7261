"""Facts of the hosts of a job -> what its line depends on."""

from dataclasses import replace
from typing import Dict, Optional, Sequence, Set

from taco_launch.facts.fabric import fabric
from taco_launch.facts.interface import Carrier, carrier
from taco_launch.facts.rails import choose, layer_of
from taco_launch.model.fabric import Choice
from taco_launch.model.facts import Cpu, HostFacts, Software, System
from taco_launch.model.found import Absent
from taco_launch.model.hardware import Gpus
from taco_launch.model.job_facts import JobFacts, JobHost
from taco_launch.model.jobs import JobSpec
from taco_launch.placement import slots_of


def over_ssh(known: JobFacts, spec: JobSpec, hosts: Sequence[HostFacts]) -> JobFacts:
    """Add what was found on the hosts of the job; the software is the head's, or its container's."""
    head = next((host for host in hosts if host.host == spec.head), None)
    image = head.image if head else None
    inside = spec.container is not None
    software = image if isinstance(image, Software) and (image.where != "host") == inside else None
    gids: Dict[str, Set[int]] = {}
    for entry in fabric(tuple(hosts), interface=spec.asked.interface).gids:
        gids.setdefault(entry.host, set()).add(entry.choice.gid_index)
    return replace(
        known,
        root=known.root if spec.container or head is None else _is_root(head),
        openmpi=_version(software, "openmpi"),
        nccl=_version(software, "nccl"),
        horovod=_version(software, "horovod"),
        hosts=tuple(_host(host, gids.get(host.host, set())) for host in hosts),
    )


def slots(facts: HostFacts) -> Optional[int]:
    """Give how many ranks a host takes that declares no slots, None where its facts do not tell."""
    cpu = facts.system.cpu if isinstance(facts.system, System) else None
    return slots_of(_gpus(facts), cpu.threads if isinstance(cpu, Cpu) else None)


def _host(facts: HostFacts, gids: Set[int]) -> JobHost:
    by = carrier(facts.network)
    rails, _left_out, _odd = choose((facts,))
    layer = layer_of(rails, (facts,))
    return JobHost(
        facts.host,
        slots=slots(facts),
        gpus=_gpus(facts),
        interface=by.name if isinstance(by, Carrier) else None,
        gid_index=next(iter(gids)) if len(gids) == 1 else None,
        link_layer=layer.value if isinstance(layer, Choice) else None,
    )


def _is_root(facts: HostFacts) -> bool:
    return isinstance(facts.system, System) and facts.system.access == "root"


def _gpus(facts: HostFacts) -> Optional[int]:
    from_driver = facts.gpu.gpus if isinstance(facts.gpu, Gpus) else facts.gpu
    if isinstance(from_driver, tuple):
        return len(from_driver)
    return 0 if isinstance(from_driver, Absent) else None


def _version(software: Optional[Software], name: str) -> Optional[str]:
    found = getattr(software, name, None)
    return found if isinstance(found, str) else None
