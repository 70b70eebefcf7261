"""The plan of an elastic Horovod job: each host starts ranks when Horovod's driver on the first host orders it."""

from typing import Sequence

from taco_launch.core.launch.command_line.env import HOROVOD_ELASTIC, rendezvous
from taco_launch.core.launch.launchers.per_host import HostLine, plan_hosts
from taco_launch.core.model.job_facts import JobFacts
from taco_launch.core.model.jobs import JobSpec
from taco_launch.core.model.plans import LaunchPlan, Placement, Token

_WHY = "Horovod's elastic driver sets it for each rank: they meet without MPI"


def plan(
    spec: JobSpec, job_id: str, placement: Placement, facts: JobFacts, wrapper: Sequence[str], _folder: str, port: int
) -> LaunchPlan:
    """Build the LaunchPlan; `wrapper` is the argv of `agent horovod`. Raises as `per_host.plan_hosts` does."""
    return plan_hosts(spec, job_id, placement, facts, wrapper, port, _starter)


def _starter(spec: JobSpec, placement: Placement, number: int, port: int, wrapper: Sequence[str]) -> HostLine:
    share = placement.shares[number]
    own = next(host.address for host in spec.hosts if host.name == share.host)
    sizes = (spec.least_hosts, spec.host_count, len(placement.shares), share.ranks)
    words = (":".join(rendezvous(spec, placement, port)), own, ":".join(map(str, sizes)), str(int(number == 0)))
    env = Token("env", "launcher", "sets the variables that follow for the command")
    tokens = (env, *(Token(f"{name}={value}", "launcher", _WHY) for name, value in HOROVOD_ELASTIC.items()))
    return HostLine(tokens, (*wrapper[:-1], *words, wrapper[-1]))
