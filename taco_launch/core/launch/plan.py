"""The plan of a placed job, whatever its launcher."""

from dataclasses import replace
from importlib import import_module
from typing import Callable, Sequence, Tuple

from taco_launch.core.command import shell
from taco_launch.core.model.job_facts import JobFacts
from taco_launch.core.model.jobs import JobSpec
from taco_launch.core.model.launchers import launcher_of
from taco_launch.core.model.plans import HostCommand, LaunchPlan, Placement

# `plan` of a launcher's own module, with the arguments of the one below.
Planner = Callable[[JobSpec, str, Placement, JobFacts, Sequence[str], str, int], LaunchPlan]

# What --per-host has for its rendezvous, on the host of rank 0 (as PyTorchJob and cube-studio give it to each host).
PER_HOST_PORT = 23456
# Stands in a plan that nothing is started by (torchrun's and torch.distributed.launch's own default).
ANY_PORT = 29500
MOST_PORT = 65535


def plan(
    spec: JobSpec, job_id: str, placement: Placement, facts: JobFacts, wrapper: Sequence[str], folder: str, port: int
) -> LaunchPlan:
    """Build the LaunchPlan; `placement` is what `in_rank_order` and `processes` gave, `port` the one of the ranks' rendezvous.

    `wrapper` is the argv of the agent's that stands before the command, and ends with `--`; `folder` is where the files
    will lie that a line names, empty for the folder it is typed in.

    Raises:
        UsageError: a host cannot be given to the launcher under the name it has.
        UnusableError: RDMA is requested, and a host has none.
    """
    launcher: Planner = import_module(f"{__package__}.launchers.{launcher_of(spec).plan}").plan
    return launcher(spec, job_id, placement, facts, wrapper, folder, port)


def line(command: HostCommand) -> str:
    """Return what a person would type on a host as one line to paste into a shell: several commands side by side."""
    lines = [shell(words) for words in command.lines]
    return lines[0] if len(lines) == 1 else " & ".join((*lines, "wait"))


def processes(spec: JobSpec, placement: Placement) -> Placement:
    """Return the placement with as many ranks on each host as processes are started there."""
    each = spec.procs_per_gpu
    shares = (replace(share, ranks=1 if spec.per_host else share.ranks * each) for share in placement.shares)
    return replace(placement, shares=tuple(shares))


def in_rank_order(spec: JobSpec, placement: Placement) -> Placement:
    """Return the placement with its hosts in the order in which the launcher numbers ranks."""
    if not (launcher_of(spec).is_open_mpi or spec.elastic):
        return placement
    # mpirun begins with its own host, wherever -H names that (seen with Open MPI 4.1.4). An elastic job that has its head
    # loses nothing else with its first host.
    here = {host.name for host in spec.hosts if spec.is_here(host)}
    return replace(placement, shares=tuple(sorted(placement.shares, key=lambda share: share.host not in here)))


def wrapper_op(spec: JobSpec) -> str:
    """Name the operation of the agent that stands before the job's own command."""
    return launcher_of(spec).agent_op


def own_ports(spec: JobSpec) -> Tuple[int, ...]:
    """Return the ports that a job has to have for itself on the host of its first rank, whatever others want."""
    given = dict(spec.env)
    port = given.get("MASTER_PORT") or ""
    if port.isascii() and port.isdecimal() and 0 < int(port[:6]) <= MOST_PORT and not given.get("MASTER_ADDR"):
        return (int(port),)
    return (PER_HOST_PORT,) if spec.per_host else ()
