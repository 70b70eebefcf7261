"""Wait for jobs that are in the way of a set-up or a teardown."""

import time
from collections.abc import Callable, Sequence

from taco_launch.setup.plan.host_plan import HostPlan

# How often the hosts are asked whether the jobs still run.
_LOOK_SECONDS = 10


def wait_for_jobs(
    plans: tuple[HostPlan, ...],
    look: Callable[[], tuple[HostPlan, ...]],
    plan: Callable[[], tuple[HostPlan, ...]],
    patience: float,
    say: Callable[[str], None],
) -> tuple[HostPlan, ...]:
    """Wait until no job is in the way of plans, for `patience` seconds at most; return what is then to be done.

    `look` returns what is in the way now; `plan` asks the hosts again, which have changed meanwhile. `say` is given the jobs
    whenever they change.
    """
    end, reported = time.monotonic() + patience, ""
    while jobs := _describe_jobs(plans):
        remaining = end - time.monotonic()
        if remaining <= 0:
            if reported:
                say(f"waited {patience:g} s (--wait-for-jobs): the jobs are still running")
            break
        if jobs != reported:
            say(f"waiting: {jobs}")
        reported = jobs
        time.sleep(min(_LOOK_SECONDS, remaining))
        plans = look()
        if not _describe_jobs(plans):
            plans = plan()
    return plans


def _describe_jobs(plans: Sequence[HostPlan]) -> str:
    """Return which jobs are in the way, "" where something else is that does not pass by itself."""
    problems = [(plan.host, problem) for plan in plans for problem in plan.problems if problem.stops == "cluster"]
    if not all(problem.passes for _, problem in problems):
        return ""
    return "; ".join(f"{host}: {problem.message}" for host, problem in problems)
