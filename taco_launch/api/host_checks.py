"""Measure hosts by a job on all of them, and judge them beside one another, as `check --level` does."""

import contextlib
import signal
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import field, replace

from taco_launch.api.cluster import Cluster
from taco_launch.bench.host_checks import judge, plan, results
from taco_launch.bench.host_checks.judge import METRICS, faulty_hosts
from taco_launch.bench.host_checks.results import NETWORK
from taco_launch.core.errors import HostError, NoJobError, UsageError
from taco_launch.core.facts.reports.health.judge import HostVerdicts
from taco_launch.core.facts.reports.health.verdict import FAULT, NOT_POSSIBLE, OK, HealthVerdict
from taco_launch.core.frozen import dataclass
from taco_launch.core.model.host.hosts import Host
from taco_launch.core.model.jobs import JobState
from taco_launch.core.model.slots import describe_holders
from taco_launch.jobs.backend import FollowListener, HostOccupancy, LogQuery

__all__ = (
    "LEVELS",
    "METRICS",
    "NETWORK",
    "HostCheckOptions",
    "faulty_hosts",
    "is_proven",
    "measure_drained",
    "measure_hosts",
)
LEVELS = (plan.FULL, plan.PAIRS)
# A host is judged beside so many others at least.
_BESIDE = 2


@dataclass(frozen=True)
class HostCheckOptions:
    """What is measured: `level` is full or pairs; with `bisect` only some rounds of pairs.

    `floors` are the least values, in bytes/s by their names. `patience` is how many seconds to wait for jobs on the hosts;
    with 0, busy hosts are left out. `drained` are the hosts that are measured even if they are drained.
    """

    level: str
    bisect: bool = False
    floors: Mapping[str, float] = field(default_factory=dict)
    patience: float = 0.0
    drained: frozenset[str] = frozenset()


def measure_hosts(
    cluster: Cluster,
    hosts: Sequence[Host],
    options: HostCheckOptions,
    step: Callable[[str], None] = lambda _words: None,
    watch: FollowListener | None = None,
) -> tuple[HostVerdicts, ...]:
    """Measure hosts by one job, wait for its end, and return the verdicts; one that is left out has its reason as verdict.

    `step` is called with what is measured now. Ctrl-C stops the job.

    Raises:
        UsageError: too few hosts can be measured.
        TacoLaunchError: the job cannot start.
        HostError: it failed, or its output is not complete.
    """
    wanted = {host.name for host in hosts}
    cluster = _while_drained(cluster, options.drained)
    nodes = [node for node in cluster.backend.nodes(cluster.inventory) if node.host.name in wanted]
    reasons = {node.host.name: _obstacle(node, options.patience) for node in nodes}
    chosen = [name for name, why in reasons.items() if not why]
    shut = tuple((name, _left_out(why)) for name, why in reasons.items() if why)
    if len(chosen) < (2 if options.level == plan.PAIRS else 1):
        many = "two hosts" if options.level == plan.PAIRS else "a host"
        why = "; ".join(f"{name}: {words}" for name, words in reasons.items() if words)
        raise UsageError(
            f"--level {options.level} requires {many} on which a job can run{f' ({why})' if why else ''}",
            hint=f"wait for jobs with --wait-for-jobs; {cluster.typed} host list shows drained hosts"
            if shut
            else "choose more hosts, or use --level full for one",
        )
    ports = cluster.inventory.network.port_range
    what = plan.plan(options.level, len(chosen), bisect=options.bisect, ports=ports)
    request = plan.request(options.level, chosen, what, options.patience)
    pieces: list[bytes] = []

    def output(chunk: bytes) -> None:
        pieces.append(chunk)
        with contextlib.suppress(HostError):  # a line that is cut is read with all of them
            for line in results.documents(chunk.decode("utf-8", "replace")):
                if "step" in line:
                    step(str(line["step"]))

    try:
        job = cluster.run(request, output, watch)
    except KeyboardInterrupt:
        with contextlib.suppress(NoJobError):  # there is none yet
            cluster.backend.stop([str(request.name)], "Ctrl-C", signal.SIGINT).job(str(request.name))
            cluster.backend.follow(LogQuery(str(request.name), tail=0), lambda _data: None)  # until nothing of it runs
            cluster.backend.delete([str(request.name)])
        raise
    if job.state is not JobState.SUCCEEDED:
        raise HostError(
            f"the measurement failed: job {job.name}: {job.record.reason or job.state.value}",
            hint=f"{cluster.typed} logs {job.name}",
        )
    ranks = [share.host for share in job.record.shares]
    measured = results.read(b"".join(pieces).decode("utf-8", "replace"), ranks)
    job.delete()
    return (*judge.verdicts(measured, ranks, options.floors), *shut)


def measure_drained(
    cluster: Cluster,
    hosts: Sequence[Host],
    options: HostCheckOptions,
    step: Callable[[str], None] = lambda _words: None,
    watch: FollowListener | None = None,
) -> tuple[HostVerdicts, ...]:
    """Measure hosts that may be drained beside others that are idle, and return the verdicts of `hosts`. Raises as `measure_hosts`."""
    names = {host.name for host in hosts}
    idle = [node.host for node in cluster.backend.nodes(cluster.inventory) if not _obstacle(node, 0)]
    beside = [host for host in idle if host.name not in names][:_BESIDE]
    verdicts = measure_hosts(cluster, (*hosts, *beside), replace(options, drained=frozenset(names)), step, watch)
    return tuple(each for each in verdicts if each[0] in names)


def is_proven(verdicts: Sequence[HealthVerdict]) -> bool:
    """Return whether a measurement found a host sound: something of it was judged, and nothing is a fault."""
    levels = {each.level for each in verdicts}
    return OK in levels and FAULT not in levels


def _while_drained(cluster: Cluster, names: Collection[str]) -> Cluster:
    """Return the cluster for a job that may have these hosts while they are drained."""
    if not names:
        return cluster
    hosts = tuple(replace(host, while_drained=host.name in names) for host in cluster.inventory.hosts)
    inventory = replace(cluster.inventory, hosts=hosts)
    return Cluster(
        inventory,
        access=cluster.access,
        environ=cluster.environ,
        typed=cluster.typed,
        say=cluster.say,
        backend=cluster.backend,
    )


def _obstacle(node: HostOccupancy, patience: float) -> str:
    """Return why no job can measure a host, "" if one can."""
    if not node.is_used:
        return "without a container in the inventory, jobs run on the head alone"
    if node.occupancy is None:
        return node.problem
    if node.occupancy.drain is not None:
        return f"drained: {node.occupancy.drain.reason}; to measure it all the same: --drained"
    busy = describe_holders(replace(node.occupancy, gpus=0))
    return "" if patience or not busy else f"busy: {busy}; to wait: --wait-for-jobs"


def _left_out(why: str) -> tuple[HealthVerdict, ...]:
    return (HealthVerdict("measurement", NOT_POSSIBLE, why, "taco-launch: a measurement is a job"),)
