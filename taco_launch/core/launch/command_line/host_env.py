"""What differs from host to host and cannot stand on a line: each host's own variables, by way of the agent."""

from itertools import chain
from typing import Dict, Iterable, Iterator, List, Tuple

from taco_launch.core.launch.command_line import profile_options as entries
from taco_launch.core.launch.command_line.decisions import Decisions
from taco_launch.core.launch.command_line.env import GPU_ORDER, VISIBLE_GPUS
from taco_launch.core.launch.command_line.overrides import Option, env_option
from taco_launch.core.model.job_facts import JobFacts
from taco_launch.core.model.jobs import JobSpec
from taco_launch.core.model.plans import Placement
from taco_launch.core.model.slots import is_gpu

HostEnv = Tuple[Tuple[str, Tuple[Tuple[str, str], ...]], ...]

# What a profile calls it where all hosts share it: a profile that has no word of it wants none.
_NAMES = {"NCCL_SOCKET_IFNAME": "interface", "NCCL_IB_HCA": "hcas", "NCCL_IB_GID_INDEX": "gid_index"}


def host_env(spec: JobSpec, decisions: Decisions) -> HostEnv:
    """Return (host, ((name, value), ...)); what the user gives by name goes before it, for all hosts."""
    wanted = {name for name, value in _NAMES.items() if value in entries.used(spec.profile)}
    wanted -= {name for name, _value in spec.env}
    return by_host((host, name, value) for host, name, value in decisions.host_env if name in wanted)


def with_gpus(
    found: HostEnv, spec: JobSpec, placement: Placement, facts: JobFacts, options: Iterable[Option]
) -> HostEnv:
    """Add which GPUs the ranks of each host may see: those of the job's slots there, unless the user says which.

    All ranks of a host see all of these, and choose by their local rank. Slots beyond a host's GPUs have none. The order
    of the devices is nvidia-smi's: CUDA's own puts the fastest first where models differ.
    """
    given = {name for option in options for name, _value in option.env} | set(dict(facts.environment or ()))
    if VISIBLE_GPUS in given:
        return found
    gpus = _gpus(spec, placement, facts, order=GPU_ORDER not in given)
    return by_host(((host, *pair) for host, pairs in found for pair in pairs), gpus)


def _gpus(spec: JobSpec, placement: Placement, facts: JobFacts, *, order: bool) -> Iterator[Tuple[str, str, str]]:
    without = {host.name for host in spec.hosts if host.gpus == "none"}
    have = {known.host for known in facts.hosts if known.gpus} - without
    pinned = dict(facts.pinned)
    for share in placement.shares:
        names = [name for name in share.slots if is_gpu(name)] or [str(index) for index in pinned.get(share.host, ())]
        if names or (share.slots and share.host in have):
            yield share.host, VISIBLE_GPUS, ",".join(names)
            if names and order:
                yield share.host, GPU_ORDER, "PCI_BUS_ID"


def typed_gpus(own: HostEnv, placement: Placement, facts: JobFacts) -> Tuple[Option, ...]:
    """Return what a person types to have the ranks see the GPUs that are pinned: nothing where that is not alike on all hosts."""
    if {host for host, _gpus in facts.pinned} != {share.host for share in placement.shares}:
        return ()
    alike = {tuple(pair for pair in pairs if pair[0] in (VISIBLE_GPUS, GPU_ORDER)) for _host, pairs in own}
    if len(alike) != 1:
        return ()
    why = "the job's GPUs, as nvidia-smi numbers them; taco-launch sets the GPUs of each host itself"
    return tuple(env_option(name, value, "launcher", why) for name, value in alike.pop())


def by_host(*values: Iterable[Tuple[str, str, str]]) -> HostEnv:
    """Bring (host, name, value) together by host, in the order in which hosts come first."""
    found: Dict[str, List[Tuple[str, str]]] = {}
    for host, name, value in chain(*values):
        found.setdefault(host, []).append((name, value))
    return tuple((host, tuple(pairs)) for host, pairs in found.items())
