"""Decide by the facts of a job's hosts which of them it is not to run on: those whose RDMA ports for it are down."""

from typing import Dict, List, Mapping, Optional

from taco_launch.core.launch.command_line.decisions import transport
from taco_launch.core.model.job_facts import JobFacts
from taco_launch.core.model.jobs import JobSpec

_CHOICE = "NCCL_IB_HCA"


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
