"""Puts the facts of a host together from the probe's answer."""

from dataclasses import replace
from typing import Any, Dict, Sequence, Tuple

from taco_launch.core.facts import HEALTH, MADE, SUBJECTS
from taco_launch.core.facts.gpus.gpu import parse_gpu
from taco_launch.core.facts.gpus.topology import parse_topology
from taco_launch.core.facts.health import parse_health
from taco_launch.core.facts.network.network import parse_network
from taco_launch.core.facts.rdma.rdma import parse_rdma
from taco_launch.core.facts.system.clock import parse_clock
from taco_launch.core.facts.system.docker import parse_docker
from taco_launch.core.facts.system.image import parse_image
from taco_launch.core.facts.system.pci import parse_pci
from taco_launch.core.facts.system.setup_artifacts import parse_made
from taco_launch.core.facts.system.system import parse_system
from taco_launch.core.facts.text import sections
from taco_launch.core.model.host.fact_value import NOT_ASKED, Absent, Found, Unknown
from taco_launch.core.model.host.facts import HostFacts


def parse(host: str, output: bytes, sent: float, received: float, cut: str = "") -> HostFacts:
    """Read what the probe said on `host`; `sent` and `received` are the controller's clock, in seconds since 1970.

    Whatever is cut, mixed up or not understood is Unknown with the evidence; nothing is raised. `cut` says why the
    answer is not whole, where that is known.
    """
    told = sections.read(output, cut)
    return HostFacts(
        host=host,
        simulated=_simulated(told),
        pci=parse_pci(told),
        system=parse_system(told, parse_clock(told, sent, received)),
        network=parse_network(told),
        docker=parse_docker(told),
        gpu=parse_gpu(told),
        topology=parse_topology(told),
        rdma=parse_rdma(told),
        image=parse_image(told),
        made=parse_made(told),
        health=parse_health(told),
    )


def only(facts: HostFacts, subjects: Sequence[str]) -> HostFacts:
    """Return these subjects of a host; the others were not requested."""
    others: Dict[str, Any] = dict.fromkeys({*SUBJECTS, MADE, HEALTH} - set(subjects), NOT_ASKED)
    return replace(facts, **others)


def _simulated(told: sections.Sections) -> Found[Tuple[str, ...]]:
    """Read the list: a name in a line, `#` starts a comment."""
    found = sections.answer(told, "host.simulated")
    if isinstance(found, (Absent, Unknown)):
        return found
    lines = (line.partition("#")[0].strip() for line in found.split("\n"))
    return tuple(line for line in lines if line)
