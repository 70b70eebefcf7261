"""Find the hosts that made a nightly run slower, and drain them as the inventory's `health` says."""

from collections.abc import Callable, Sequence

from taco_launch.api.cluster import Cluster
from taco_launch.api.host_checks import HostCheckOptions, faulty_hosts, measure_hosts
from taco_launch.bench.host_checks.plan import FULL, PAIRS
from taco_launch.core.errors import TacoLaunchError
from taco_launch.core.facts.reports.health.drain_plan import EarlierCheck
from taco_launch.core.facts.reports.health.judge import HostVerdicts
from taco_launch.core.facts.reports.health.verdict import FAULT
from taco_launch.core.model.host.hosts import Host
from taco_launch.hosts import drain_policy, drains
from taco_launch.hosts.fanout import connect
from taco_launch.jobs.request.caller import person

# With more hosts, some rounds of pairs are enough to name one.
_ALL_PAIRS = 16


def find_slow_hosts(cluster: Cluster, names: Sequence[str], say: Callable[[str], None]) -> tuple[str, ...]:
    """Measure the network between hosts, then the hosts themselves, until a fault is found; return what was found, a line each.

    With a policy the same fault has to be found as often as `health.after` says; then it is applied. What cannot be measured
    is a line, too.
    """
    hosts = [host for host in cluster.inventory.hosts if host.name in names]
    try:
        return _found(cluster, hosts, say)
    except TacoLaunchError as error:
        return (f"the search for a slow host ended: {error.message}",)


def _found(cluster: Cluster, hosts: Sequence[Host], say: Callable[[str], None]) -> tuple[str, ...]:
    level, verdicts = PAIRS, _measure(cluster, hosts, PAIRS, say) if len(hosts) > 1 else ()
    if not _faults(verdicts):
        level, verdicts = FULL, _measure(cluster, hosts, FULL, say)
    faults = _faults(verdicts)
    if not faults:
        return ("no slow host or link was found: every host is as fast as the others",)
    policy = cluster.inventory.health
    if policy is None or not faulty_hosts(verdicts):
        return faults
    earlier: list[EarlierCheck] = []
    for _again in range(policy.after - 1):
        earlier.append(_names(verdicts))
        verdicts = _measure(cluster, hosts, level, say)
    done = _drained(cluster, hosts, verdicts, earlier)
    covered = {line.partition(":")[0] for line in done}
    return (*(line for line in faults if line.partition(":")[0] not in covered), *done)


def _measure(cluster: Cluster, hosts: Sequence[Host], level: str, say: Callable[[str], None]) -> Sequence[HostVerdicts]:
    say(f"looking for a slow host: check --level {level}")
    return measure_hosts(cluster, hosts, HostCheckOptions(level, bisect=level == PAIRS and len(hosts) > _ALL_PAIRS))


def _faults(verdicts: Sequence[HostVerdicts]) -> tuple[str, ...]:
    return tuple(
        f"{host}: {each.name}: {each.text}" for host, checks in verdicts for each in checks if each.level == FAULT
    )


def _names(verdicts: Sequence[HostVerdicts]) -> EarlierCheck:
    return {host: frozenset(each.name for each in checks if each.level == FAULT) for host, checks in verdicts}


def _drained(
    cluster: Cluster, hosts: Sequence[Host], verdicts: Sequence[HostVerdicts], earlier: Sequence[EarlierCheck]
) -> tuple[str, ...]:
    """Apply the policy to the hosts with a fault of their own; one of a single link may be that of either host."""
    inventory = cluster.inventory
    drains.check(inventory)
    slow = {*faulty_hosts(verdicts)}
    own = tuple((host, checks if host in slow else ()) for host, checks in verdicts)
    with connect(inventory, tuple(hosts), cluster.access) as fanout:
        acted = drain_policy.apply(fanout, inventory, own, earlier, person())
    failed = (f"{host}: not drained: {error.message}" for host, error in acted.errors.items())
    missed = (f"health.notify: the message was not delivered: {acted.undelivered}",) if acted.undelivered else ()
    return (*map(drain_policy.describe, acted.actions), *failed, *missed)
