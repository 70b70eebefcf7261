"""--wait-for-jobs of setup and teardown: jobs that are in the way are told and waited for."""

import time
from collections.abc import Callable, Sequence
from typing import Any

from taco_launch.cli.options.common import Seconds, Settings, add_option
from taco_launch.cli.output import render
from taco_launch.setup.plan.host_plan import HostPlan

# How often is looked whether the jobs still run.
_LOOK_SECONDS = 10


def wait_option(function: Any) -> Any:
    """Add --wait-for-jobs."""
    return add_option(
        "--wait-for-jobs",
        "patience",
        type=Seconds(),
        default=0.0,
        is_flag=False,
        flag_value=float("inf"),
        metavar="[TIME]",
        help="Wait until the jobs that block this have ended, for at most TIME, such as 2h (without TIME: forever). Default: do not wait.",
    )(function)


def without_jobs(
    settings: Settings,
    plans: tuple[HostPlan, ...],
    look: Callable[[], tuple[HostPlan, ...]],
    plan: Callable[[], tuple[HostPlan, ...]],
    patience: float,
) -> tuple[HostPlan, ...]:
    """Wait until no job is in the way of plans, for `patience` seconds at most; return what is then to be done.

    `look` says what is in the way now, `plan` looks at the hosts, too, which have changed meanwhile. Which jobs are
    waited for is printed whenever it changes.
    """
    end, told = time.monotonic() + patience, ""
    while jobs := _jobs(plans):
        left = end - time.monotonic()
        if left <= 0:
            if told:
                settings.talk(f"waited {patience:g} s (--wait-for-jobs): the jobs are still running")
            break
        if jobs != told:
            settings.talk(f"waiting: {jobs}")
        told = jobs
        time.sleep(min(_LOOK_SECONDS, left))
        plans = look()
        if not _jobs(plans):
            plans = plan()
    return plans


def _jobs(plans: Sequence[HostPlan]) -> str:
    """Return which jobs are in the way, empty where something else is that does not pass by itself."""
    found = [(plan.host, problem) for plan in plans for problem in plan.problems if problem.stops == "cluster"]
    if not all(problem.passes for _, problem in found):
        return ""
    return "; ".join(render.printable(f"{host}: {problem.message}") for host, problem in found)
