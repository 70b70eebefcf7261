"""Find the hosts that made a nightly run slower, and drain them as the inventory's `health` says."""

from collections.abc import Callable, Sequence

from taco_launch.api.cluster import Cluster
from taco_launch.api.host_checks import HostCheckOptions, measure_hosts
from taco_launch.bench.host_checks.plan import FULL, PAIRS
from taco_launch.core.errors import TacoLaunchError
from taco_launch.core.facts.reports.health.drain_plan import EarlierCheck, drains_for
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
    notes: list[str] = []
    try:
        notes += _search(cluster, hosts, say, notes)
    except TacoLaunchError as error:
        notes.append(f"the search for a slow host ended: {error.message}")
    return tuple(notes)


def _search(cluster: Cluster, hosts: Sequence[Host], say: Callable[[str], None], notes: list[str]) -> tuple[str, ...]:
    """Search, and return what was found; `notes` has it as well where an error ends the search."""
    level, verdicts = PAIRS, _measure(cluster, hosts, PAIRS, say) if len(hosts) > 1 else ()
    if not _faults(verdicts):
        level, verdicts = FULL, _measure(cluster, hosts, FULL, say)
    faults = _faults(verdicts)
    if not faults:
        return ("no slow host or link was found: every host is as fast as the others",)
    policy = cluster.inventory.health
    if policy is None or not any(drains_for(policy, checks) for _host, checks in verdicts):
        return faults
    notes += faults
    drains.check(cluster.inventory)
    earlier: list[EarlierCheck] = []
    for _again in range(policy.after - 1):
        earlier.append(
            EarlierCheck(_names(verdicts), frozenset(each.name for _, checks in verdicts for each in checks))
        )
        verdicts = _measure(cluster, hosts, level, say)
        if not _faults(verdicts):
            return (f"measured again, no fault was found: no host is drained (health.after: {policy.after})",)
    done = _drained(cluster, verdicts, earlier)
    covered = {line.partition(":")[0] for line in done}
    notes[:] = [line for line in notes if line.partition(":")[0] not in covered]
    return done


def _measure(cluster: Cluster, hosts: Sequence[Host], level: str, say: Callable[[str], None]) -> Sequence[HostVerdicts]:
    say(f"looking for a slow host: check --level {level}")
    return measure_hosts(cluster, hosts, HostCheckOptions(level, bisect=level == PAIRS and len(hosts) > _ALL_PAIRS))


def _faults(verdicts: Sequence[HostVerdicts]) -> tuple[str, ...]:
    return tuple(
        f"{host}: {each.name}: {each.text}" for host, checks in verdicts for each in checks if each.level == FAULT
    )


def _names(verdicts: Sequence[HostVerdicts]) -> dict[str, frozenset[str]]:
    return {host: frozenset(each.name for each in checks if each.level == FAULT) for host, checks in verdicts}


def _drained(cluster: Cluster, verdicts: Sequence[HostVerdicts], earlier: Sequence[EarlierCheck]) -> tuple[str, ...]:
    """Apply the policy to the measured hosts. All hosts are asked for their drains, which count for its limit."""
    inventory = cluster.inventory
    with connect(inventory, inventory.hosts, cluster.access) as fanout:
        acted = drain_policy.apply(fanout, inventory, verdicts, earlier, person())
    measured = {host for host, _checks in verdicts}
    failed = (f"{host}: not drained: {error.message}" for host, error in acted.errors.items() if host in measured)
    missed = (f"health.notify: the message was not delivered: {acted.undelivered}",) if acted.undelivered else ()
    return (*map(drain_policy.describe, acted.actions), *failed, *missed)
