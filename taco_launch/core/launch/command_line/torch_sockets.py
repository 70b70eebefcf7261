"""The interface of torch's own libraries between hosts: gloo, and TensorPipe under torch.distributed.rpc.

Without a name they take the address of the host's own name (ProcessGroupGloo.cpp, tensorpipe_agent.cpp), which Debian
and Ubuntu resolve to 127.0.1.1: ranks of other hosts never come there. With one they take that very interface, without
NCCL's signs and prefixes.
"""

from typing import Iterable, Optional

from taco_launch.core.launch.command_line.decisions import Decisions
from taco_launch.core.launch.command_line.env import TORCH_SOCKETS
from taco_launch.core.launch.command_line.host_env import HostEnv, by_host
from taco_launch.core.launch.command_line.overrides import Option
from taco_launch.core.launch.command_line.profile_options import used
from taco_launch.core.model.job_facts import JobFacts
from taco_launch.core.model.jobs import JobSpec
from taco_launch.core.model.plans import Placement

WHY = "without it, Gloo and TensorPipe would use the address of the host's own name, such as 127.0.1.1"
_NCCL = "NCCL_SOCKET_IFNAME"


def with_sockets(
    found: HostEnv,
    spec: JobSpec,
    placement: Placement,
    facts: JobFacts,
    decisions: Decisions,
    options: Iterable[Option],
) -> HostEnv:
    """Add the interface that NCCL has on each host, where it is one and known by its name; the user's own go before it."""
    if not decisions.holds("several_hosts") or "interface" not in used(spec.profile):
        return found
    set_ = {name: value for option in options for name, value in option.env}
    names = [name for name in TORCH_SOCKETS if name not in set_ and name not in dict(facts.environment or ())]
    own = {host: value for host, name, value in decisions.host_env if name == _NCCL}
    shared = decisions.values.get("interface")
    added = []
    for share in placement.shares:
        value = set_.get(_NCCL) or own.get(share.host) or (shared.text if shared is not None else None)
        interface = _exact(value, None if shared is None else shared.text)
        added += [(share.host, name, interface) for name in names if interface]
    return by_host(((host, *pair) for host, pairs in found for pair in pairs), added)


def _exact(value: Optional[str], known: Optional[str]) -> str:
    """Return the one interface that NCCL's value means, "" where it may mean several: one without `=` is a prefix."""
    if value is None or "," in value or value.startswith("^"):
        return ""
    return value[1:] if value.startswith("=") else value if value == known else ""
