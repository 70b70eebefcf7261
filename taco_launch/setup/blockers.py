"""Find what prevents a plan on its host, before the first change: running jobs, missing folders."""

from collections.abc import Sequence
from dataclasses import replace

from taco_launch.command import Command
from taco_launch.setup import scripts
from taco_launch.setup.batch import error_and_hint_lines
from taco_launch.setup.host_plan import HostPlan
from taco_launch.setup.ops import Op, Problem

_SECONDS = 60
_MISSING = "missing "
# The number of each folder that is not there; then whether a job runs in the container, where that is to stop.
_LOOK = """
taco_typed=$1 container=$2
shift 2
number=0
for path; do
  [ -e "$path" ] || echo "missing $number"
  number=$((number + 1))
done
[ -z "$container" ] || idle "$container" 2>&1 || :
"""


def look(plan: HostPlan, container: str, folders: Sequence[str], typed: str) -> Command | None:
    """Return what is to be run on a plan's host, None where nothing can stand in its way.

    `container` is the training container, `folders` are to be mounted into it, `typed` is what the user types for taco-launch.
    """
    stops = container if _stopping(plan) else ""
    if not stops and not folders:
        return None
    script = scripts.text("idle.sh") + _LOOK
    return Command(("/bin/sh", "-c", script, "look", typed, stops, *folders), sudo=True, timeout=_SECONDS)


def judged(plan: HostPlan, folders: Sequence[str], said: bytes) -> HostPlan:
    """Return a plan with the problems that its host's answer shows.

    Raises:
        ValueError: the answer has another form.
    """
    lines = said.decode("utf-8", "replace").splitlines()
    numbers = [int(line.removeprefix(_MISSING)) for line in lines if line.startswith(_MISSING)]
    missing = [folders[number] for number in numbers if number < len(folders)]
    if missing:
        several = len(missing) > 1
        problem = Problem(
            "container",
            f"{', '.join(missing)}, which container.mounts names, {'are' if several else 'is'} not on this host",
            f"mkdir -p {' '.join(missing)} there, or take {'them' if several else 'it'} out of container.mounts in the "
            "inventory",
            stops="host",
        )
        return HostPlan(plan.host, (), (problem,))
    errors, hints = error_and_hint_lines(said)
    op = _stopping(plan)
    if op is None or not errors:
        return plan
    job = Problem(op.stage, "; ".join(errors), "; ".join(hints), stops="cluster")
    return replace(plan, problems=(job, *plan.problems))


def _stopping(plan: HostPlan) -> Op | None:
    """Return the first operation that stops the training container."""
    return next((op for op in plan.ops if op.disrupts == "container"), None)
