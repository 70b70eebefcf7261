"""The RunPlan of a placed job: what its ranks are told about the network, as values that can be compared with what is seen."""

from dataclasses import replace
from types import MappingProxyType
from typing import Dict, List, Mapping, Optional, Tuple

from taco_launch.core.launch.command_line.env import VISIBLE_GPUS, relevant
from taco_launch.core.model.job_facts import JobFacts
from taco_launch.core.model.plans import LaunchPlan, Placement, numbered
from taco_launch.core.model.run.planned import NcclPlan, PlannedHost, PlannedTransport, RunPlan

_GIVE = {"-x": 1, "-genv": 2}  # options of a line that set a variable, with their words: NAME=VALUE, or NAME VALUE
_NEVER = ("LOC", "0")  # NCCL_NET_GDR_LEVEL


def run_plan(
    placement: Placement,
    launch: LaunchPlan,
    facts: JobFacts,
    hostnames: Mapping[str, Tuple[str, ...]] = MappingProxyType({}),
) -> RunPlan:
    """Return what was planned, as far as it can be seen of a run.

    `hostnames` are the names by which programs on a host call it, where they are known. What the user gives by name goes
    before what was found; a value that only NCCL can make out (a prefix, a list of exclusions) is not checked. Only
    variables of the network and its libraries are compared: others may be secrets, and a mismatch is shown.
    """
    shared = variables(launch)
    own = {host: dict(pairs) for host, pairs in launch.host_env}
    counts = {host.host: host.gpus for host in facts.hosts}
    hosts: List[PlannedHost] = []
    for share, ranks in numbered(placement.shares):
        gpus = tuple(filter(None, own.get(share.host, {}).get(VISIBLE_GPUS, "").split(","))) or None
        host = _host(share.host, ranks, {**own.get(share.host, {}), **shared}, facts, hostnames)
        hosts.append(replace(host, gpus=gpus, all_gpus=gpus is not None and len(gpus) == counts.get(share.host)))
    return RunPlan(hosts=tuple(hosts), nccl=_nccl(shared, facts), env=relevant(shared))


def variables(launch: LaunchPlan) -> Dict[str, str]:
    """Return the variables that a line gives all ranks with their values; those that are passed on by name have none here."""
    words = [token.text for token in launch.tokens]
    found: Dict[str, str] = {}
    for index, word in enumerate(words):
        count = _GIVE.get(word, 0)
        if count == 1 and index + 1 < len(words) and "=" in words[index + 1]:
            name, _equals, value = words[index + 1].partition("=")
            found[name] = value
        elif count == 2 and index + 2 < len(words):
            found[words[index + 1]] = words[index + 2]
    return found


def _host(
    name: str,
    ranks: Tuple[int, ...],
    given: Mapping[str, str],
    facts: JobFacts,
    hostnames: Mapping[str, Tuple[str, ...]],
) -> PlannedHost:
    index = given.get("NCCL_IB_GID_INDEX", "")
    return PlannedHost(
        name,
        ranks,
        hostnames.get(name, ()),
        hcas=_exact(given.get("NCCL_IB_HCA", "")),
        gid_index=int(index) if index.isascii() and index.isdecimal() else None,
        interface=_interface(given, facts),
    )


def _interface(given: Mapping[str, str], facts: JobFacts) -> Optional[str]:
    """Return the one interface of a host's sockets; None where several may be meant."""
    names = given.get("NCCL_SOCKET_IFNAME")
    if names is not None:
        exact = _exact(names)
        return exact[0] if exact is not None and len(exact) == 1 else None
    between = facts.between
    return between.interface.value if between is not None else None


def _exact(names: str) -> Optional[Tuple[str, ...]]:
    """Return the names of `=mlx5_0,mlx5_1:1`; None where they are prefixes, or left out (NCCL, env.rst, NCCL_IB_HCA)."""
    if not names.startswith("="):
        return None
    return tuple(sorted({item.partition(":")[0] for item in names[1:].split(",") if item}))


def _nccl(given: Mapping[str, str], facts: JobFacts) -> Optional[NcclPlan]:
    """Return what NCCL is to do, should the ranks use it; None where no host has a GPU."""
    if not any(host.gpus for host in facts.hosts):
        return None
    transport = _transport(given, facts)
    between = facts.between
    gdr: Optional[bool] = None
    if given.get("NCCL_NET_GDR_LEVEL") in _NEVER:
        gdr = False
    elif transport is PlannedTransport.IB and between is not None and between.gdr.able:
        gdr = True
    return NcclPlan(transport, gdr)


def _transport(given: Mapping[str, str], facts: JobFacts) -> Optional[PlannedTransport]:
    asked = given.get("NCCL_NET", "").lower()
    if given.get("NCCL_IB_DISABLE", "0") not in ("", "0") or asked == "socket":
        return PlannedTransport.SOCKET
    if asked == "ib":
        return PlannedTransport.IB
    between = facts.between
    if asked or between is None or between.rdma.able is None:
        return None
    if between.rdma.able:
        return PlannedTransport.IB
    return None if between.hcas_there else PlannedTransport.SOCKET
