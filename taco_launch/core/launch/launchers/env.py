"""The plan of a job under `env`, our own starter: it only sets the variables of torch.distributed."""

from typing import Sequence

from taco_launch.core.launch.launchers.per_host import plan_hosts
from taco_launch.core.model.job_facts import JobFacts
from taco_launch.core.model.jobs import JobSpec
from taco_launch.core.model.plans import LaunchPlan, Placement


def plan(
    spec: JobSpec, job_id: str, placement: Placement, facts: JobFacts, wrapper: Sequence[str], _folder: str, port: int
) -> LaunchPlan:
    """Build the LaunchPlan; `wrapper` starts the command once for each rank. Raises as `per_host.plan_hosts` does."""
    return plan_hosts(spec, job_id, placement, facts, wrapper, port, None)
