"""The plan of a job under torchrun: one on each host."""

from typing import Iterable, List, Sequence, Tuple

from taco_launch.core.launch.command_line.env import rendezvous
from taco_launch.core.launch.launchers.per_host import HostLine, plan_hosts
from taco_launch.core.model.job_facts import JobFacts
from taco_launch.core.model.jobs import JobSpec
from taco_launch.core.model.plans import LaunchPlan, Placement, Token

# How often torchrun looks whether its ranks live; 5 s before torch 2.3, which each job would take longer to end.
_MONITOR_SECONDS = "1"
# Each lost host costs a restart. The supervisor ends a job whose ranks fail again and again while no host comes or goes.
_ELASTIC_RESTARTS = "1000"
# join_timeout: a host that joins waits for the next round as long as the others train. last_call_timeout: with the least
# number of hosts a round waits so many seconds for more (torch/distributed/elastic/rendezvous/dynamic_rendezvous.py).
_RENDEZVOUS = "join_timeout=600,last_call_timeout=5"


def plan(
    spec: JobSpec, job_id: str, placement: Placement, facts: JobFacts, wrapper: Sequence[str], _folder: str, port: int
) -> LaunchPlan:
    """Build the LaunchPlan; `wrapper` is the argv of the agent's rank wrapper. Raises as `per_host.plan_hosts` does."""
    return plan_hosts(spec, job_id, placement, facts, wrapper, port, _starter)


def _starter(spec: JobSpec, placement: Placement, number: int, port: int, wrapper: Sequence[str]) -> HostLine:
    before = _torchrun_tokens(spec, placement, number, port)
    argv = (*(token.text for token in before), *wrapper[:1], *map(_torchrun_argument, wrapper[1:]))
    return HostLine(tuple(before), argv, _torchrun_argument)


def _torchrun_argument(word: str) -> str:
    """Return an argument as torchrun passes it on unchanged: it puts `$$` and `${local_rank}` into its program's arguments.

    The program itself, the first word, is left as it is (torch/distributed/elastic/utils/api.py, macros.substitute).
    """
    return word.replace("$", "$$")


def _torchrun_tokens(spec: JobSpec, placement: Placement, number: int, port: int) -> List[Token]:
    """Return torchrun and its options on the host with that number in the placement.

    Every host meets the others at the address of rank 0's host (torchrun's static rendezvous): so ranks are numbered in the
    order of the placement, which a c10d rendezvous does not promise. Options are spelled with `_`, as torch 1.10 to 2.x take
    them (torch/distributed/run.py); 2.0 was the first to take `-`.
    """
    if spec.elastic:
        return _elastic_tokens(spec, placement, number, port)
    address, port_ = rendezvous(spec, placement, port)
    options = (
        ("--nnodes", str(len(placement.shares)), "the job's hosts"),
        ("--nproc_per_node", str(placement.shares[number].ranks), "the ranks of this host"),
        ("--node_rank", str(number), "the position of this host among the job's hosts"),
        ("--master_addr", address, "the hosts meet at the host of rank 0"),
        ("--master_port", port_, "a port that is free there when the job starts"),
        ("--max_restarts", "0", "the job's restart policy retries it, not torchrun"),
        ("--monitor_interval", _MONITOR_SECONDS, "seconds between torchrun's checks whether its ranks have ended"),
    )
    return _torchrun(options)


def _elastic_tokens(spec: JobSpec, placement: Placement, number: int, port: int) -> List[Token]:
    """Return torchrun and its options on a host that may be joined and left by others (torchrun's c10d rendezvous).

    The first host has the store where all meet. Each round renumbers the ranks.
    """
    address, port_ = rendezvous(spec, placement, port)
    share = placement.shares[number]
    own = next(host.address for host in spec.hosts if host.name == share.host)
    options = (
        ("--nnodes", f"{spec.least_hosts}:{spec.host_count}", "--elastic: between so many hosts"),
        ("--nproc_per_node", str(share.ranks), "the ranks of this host"),
        ("--rdzv_backend", "c10d", "torchrun's rendezvous that hosts can join and leave"),
        ("--rdzv_endpoint", f"{address}:{port_}", "the hosts meet at the first host"),
        ("--rdzv_id", spec.name, "the job"),
        ("--rdzv_conf", f"is_host={int(number == 0)},{_RENDEZVOUS}", "the first host has the store"),
        ("--local_addr", own, "where the others reach this host"),
        ("--max_restarts", _ELASTIC_RESTARTS, "a host that comes or goes restarts all ranks"),
        ("--monitor_interval", _MONITOR_SECONDS, "seconds between torchrun's checks whether its ranks have ended"),
    )
    return _torchrun(options)


def _torchrun(options: Iterable[Tuple[str, str, str]]) -> List[Token]:
    found = [Token("torchrun", "user", "--launcher torchrun")]
    found += [Token(word, "launcher", why) for option, value, why in options for word in (option, value)]
    return [*found, Token("--no_python", "launcher", "the command names its own program, such as python")]
