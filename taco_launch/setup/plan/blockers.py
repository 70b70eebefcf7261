"""Find what prevents a plan on its host, before the first change: running jobs, missing folders; and what mounts allow."""

from collections.abc import Sequence
from dataclasses import replace

from taco_launch.core.command import Command
from taco_launch.setup import scripts
from taco_launch.setup.model.ops import HostFolder, Op, Problem
from taco_launch.setup.plan.batch import error_and_hint_lines
from taco_launch.setup.plan.host_plan import HostPlan

_SECONDS = 60
_MISSING, _SETUID = "missing ", "setuid "
# The number of each folder that does not exist, or from which any user of the host can run a setuid program; then whether a
# job runs in the container, if that is to stop, or on the host, if what all share is to go.
_LOOK = """
taco_typed=$1 container=$2 host=$3
shift 3
passes() { # whether any user can enter the folder
  folder=$1
  while [ "$(($(stat -c %a "$folder") % 2))" = 1 ]; do
    [ "$folder" != / ] || return 0
    folder=$(dirname "$folder")
  done
  return 1
}
number=0
for path; do
  if [ ! -e "$path" ]; then
    echo "missing $number"
  elif [ -d "$path" ] && mounted=$(findmnt -nro OPTIONS -T "$path" 2>/dev/null); then
    case ,$mounted, in
      *,nosuid,*) ;;
      *) ! passes "$(readlink -f "$path")" || echo "setuid $number" ;;
    esac
  fi
  number=$((number + 1))
done
for where in "$container" "$host"; do
  [ -z "$where" ] || idle "$where" 2>&1 || break
done
"""


def look(plan: HostPlan, container: str, folders: Sequence[str], typed: str) -> Command | None:
    """Return what is to be run on a plan's host, None where nothing can stand in its way.

    `container` is the training container, `folders` are to be mounted into it, `typed` is what the user types for taco-launch.
    """
    stops = container if any(op.disrupts == "container" for op in plan.ops) else ""
    host = next((op.idle for op in plan.ops if op.idle), "")
    if not stops and not host and not folders:
        return None
    script = scripts.text("idle.sh") + _LOOK
    return Command(("/bin/sh", "-c", script, "look", typed, stops, host, *folders), sudo=True, timeout=_SECONDS)


def with_blockers(plan: HostPlan, folders: Sequence[HostFolder], said: bytes) -> HostPlan:
    """Return a plan with the problems and remarks that its host's answer leads to.

    `folders` are those that were asked about.

    Raises:
        ValueError: the answer has another form.
    """
    lines = said.decode("utf-8", "replace").splitlines()
    problems = list(plan.problems)
    absent, setuid = (_named(folders, lines, word) for word in (_MISSING, _SETUID))
    if absent:
        missing = [folder.path for folder in absent]
        several = len(missing) > 1
        problem = Problem(
            absent[0].stage,
            f"{', '.join(missing)}, which container.mounts lists, {'are' if several else 'is'} not on this host",
            f"mkdir -p {' '.join(missing)} there, or take {'them' if several else 'it'} out of container.mounts in the "
            "inventory",
            stops="host",
        )
        problems.insert(0, problem)
    plan = _remarked(plan, [folder for folder in setuid if folder.is_writable])
    errors, hints = error_and_hint_lines(said)
    op = _stopping(plan)
    if op is not None and errors:
        job = Problem(
            op.stage, "; ".join(errors), "; ".join(hints), stops="cluster", passes=errors[0].startswith("job ")
        )
        problems.insert(0, job)
    return replace(plan, ops=() if absent else plan.ops, problems=tuple(problems))


def _named(folders: Sequence[HostFolder], lines: Sequence[str], word: str) -> list[HostFolder]:
    numbers = [int(line.removeprefix(word)) for line in lines if line.startswith(word)]
    return [folders[number] for number in numbers if number < len(folders)]


def _remarked(plan: HostPlan, folders: Sequence[HostFolder]) -> HostPlan:
    """Add to the first operation of the stage that mounts them what a rank, as root, can leave in these folders for users of the host."""
    first = next((op for op in plan.ops if any(op.stage == folder.stage for folder in folders)), None)
    if first is None:
        return plan
    remark = (
        f"anyone who runs a rank can leave a setuid-root program in {', '.join(folder.path for folder in folders)}, with which any user of the host becomes "
        "root: mount its file system with nosuid, or chmod o-x a folder above it"
    )
    told = replace(first, why="; ".join(filter(None, (first.why, remark))))
    return replace(plan, ops=tuple(told if op is first else op for op in plan.ops))


def _stopping(plan: HostPlan) -> Op | None:
    """Return the first operation that no job may run beside."""
    return next((op for op in plan.ops if op.disrupts == "container" or op.idle), None)
