"""What the hosts' facts have to say of a line: what is not used, and why; what differs; what the inventory has wrong."""

from typing import Dict, Iterator, List, Mapping, Optional

from taco_launch.core.launch.command_line.decisions import Decisions, interface
from taco_launch.core.launch.command_line.host_env import host_env
from taco_launch.core.model.job_facts import FabricFacts, JobFacts
from taco_launch.core.model.jobs import JobSpec

_SHOWN = 4
# A longer value is shown of one host: the rest is in the plan.
_SHORT = 20


def network_remarks(
    spec: JobSpec, facts: JobFacts, decisions: Decisions, env: Mapping[str, Optional[str]]
) -> Iterator[str]:
    """Yield the remarks, those on what is not used first; `env` is what the line sets."""
    between = facts.between
    if not decisions.holds("several_hosts"):
        return
    if between is not None:
        yield from _not_used(between, decisions, env)
        yield from _inventory(spec, between, decisions)
        yield from between.odd
        yield from () if decisions.holds("tcp") else between.odd_ports
    yield from _differ(spec, decisions)


def _not_used(between: FabricFacts, decisions: Decisions, env: Mapping[str, Optional[str]]) -> Iterator[str]:
    if decisions.conditions["tcp"].holds and decisions.conditions["tcp"].source == "fact":
        told = (
            f"RDMA is not available on every host: {between.rdma.why} (taco-launch facts --only rdma,network shows more"
        )
        if env.get("NCCL_IB_DISABLE") == "1":
            yield f"the job uses TCP, because {told}; --transport rdma refuses such hosts)"
        else:
            yield f"{told}); nothing on the line keeps NCCL from trying it: add -x NCCL_IB_DISABLE=1"
    if decisions.conditions["no_gdr"].holds and decisions.conditions["no_gdr"].source == "fact":
        told = f"GPUDirect RDMA is not available on every host: {between.gdr.why}"
        hint = "taco-launch -i FILE setup --only peermem loads the module, or shows why it does not load; network: {gdr: off} turns it off"
        if "NCCL_NET_GDR_LEVEL" in env:
            told = f"the job runs without GPUDirect RDMA, which is not available on every host: {between.gdr.why}"
        yield f"{told} ({hint})"


def _inventory(spec: JobSpec, between: FabricFacts, decisions: Decisions) -> Iterator[str]:
    named, declared = interface(spec), spec.network.gid_index
    if named is not None and between.network.value is None:
        yield f"{named.why} {named.text}: {between.network.why}"
    if declared is not None and not decisions.holds("tcp"):
        others = [f"{index} on {host}" for host, index in between.gids if index != declared]
        if others:
            yield (
                f"network.gid_index: {declared}, but the facts show RoCE v2 over IPv4 at {join_texts(others)}: "
                "check the inventory"
            )


def _differ(spec: JobSpec, decisions: Decisions) -> Iterator[str]:
    by_name: Dict[str, List[str]] = {}
    for host, pairs in host_env(spec, decisions):
        for name, value in pairs:
            by_name.setdefault(name, []).append(f"{host} {value}")
    for name, told in by_name.items():
        shown = join_texts(told) if all(len(text) < _SHORT for text in told) else f"{told[0]}, ..."
        yield (
            f"{name} differs from host to host ({shown}): taco-launch gives each rank the value of its host (--explain shows "
            "them), but a pasted line cannot: write the value into /etc/nccl.conf of each host"
        )


def join_texts(texts: List[str]) -> str:
    """Return the first few of many."""
    more = f" and {len(texts) - _SHOWN} more" if len(texts) > _SHOWN else ""
    return f"{', '.join(texts[:_SHOWN])}{more}"
