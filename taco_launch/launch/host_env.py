"""What differs from host to host and cannot stand on a line: each host's own variables, by way of the agent."""

from typing import Dict, List, Tuple

from taco_launch.launch import entries
from taco_launch.launch.decide import Decisions
from taco_launch.model.jobs import JobSpec

# What a profile calls it where all hosts share it: a profile that has no word of it wants none.
_NAMES = {"NCCL_SOCKET_IFNAME": "interface", "NCCL_IB_HCA": "hcas", "NCCL_IB_GID_INDEX": "gid_index"}


def host_env(spec: JobSpec, decisions: Decisions) -> Tuple[Tuple[str, Tuple[Tuple[str, str], ...]], ...]:
    """Give (host, ((name, value), ...)); what the user gives by name goes before it, for all hosts."""
    wanted = {name for name, value in _NAMES.items() if value in entries.used(spec.profile)}
    wanted -= {name for name, _value in spec.env}
    found: Dict[str, List[Tuple[str, str]]] = {}
    for host, name, value in decisions.host_env:
        if name in wanted:
            found.setdefault(host, []).append((name, value))
    return tuple((host, tuple(pairs)) for host, pairs in found.items())
