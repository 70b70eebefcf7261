"""What a nightly run finds out about its hosts after a regression, and what the policy does about that."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any, cast

import pytest

from taco_launch.api import slow_hosts
from taco_launch.api.cluster import Cluster
from taco_launch.core.errors import HostError
from taco_launch.core.facts.reports.health.drain_plan import DRAINED, DrainAction
from taco_launch.core.facts.reports.health.judge import HostVerdicts
from taco_launch.core.facts.reports.health.verdict import FAULT, OK, HealthVerdict
from taco_launch.core.model.host.hosts import HealthPolicy, Host
from taco_launch.core.model.slots import NODE
from taco_launch.hosts import drain_policy
from taco_launch.hosts.drain_policy import PolicyRun

NAMES = ("gpu1", "gpu2", "gpu3")
Measured = tuple[HostVerdicts, ...]


def verdicts(slow: str = "", name: str = "network rate") -> Measured:
    fault, fine = HealthVerdict(name, FAULT, "sends 1 of 10 Gbit/s", ""), HealthVerdict(name, OK, "", "")
    return tuple((host, (fault if host == slow else fine,)) for host in NAMES)


class Site:
    """A cluster whose measurements are given, and what was measured and drained."""

    def __init__(self, policy: HealthPolicy | None, results: Sequence[Measured | HostError]) -> None:
        hosts = tuple(Host(name, name) for name in NAMES)
        self.inventory = SimpleNamespace(hosts=hosts, health=policy, container=object(), cluster="c")
        self.cluster = cast("Cluster", SimpleNamespace(inventory=self.inventory, access=None))
        self.results, self.levels = [*results], list[str]()
        self.applied: list[tuple[Measured, list[Any]]] = []

    def measure(self, _cluster: Cluster, _hosts: Sequence[Host], options: Any) -> Measured:
        self.levels.append(options.level)
        result = self.results.pop(0)
        if isinstance(result, HostError):
            raise result
        return result

    def apply(self, _fanout: Any, _inventory: Any, hosts: Measured, earlier: list[Any], _by: str) -> PolicyRun:
        self.applied.append((hosts, earlier))
        return PolicyRun((DrainAction(DRAINED, "gpu2", "policy: network rate", NODE, ("network rate",)),), {})


@pytest.fixture
def find(monkeypatch: pytest.MonkeyPatch) -> Callable[[Site], tuple[str, ...]]:
    @contextmanager
    def connect(*_given: Any) -> Iterator[None]:
        yield None

    def found(site: Site) -> tuple[str, ...]:
        monkeypatch.setattr(slow_hosts, "measure_hosts", site.measure)
        monkeypatch.setattr(slow_hosts, "connect", connect)
        monkeypatch.setattr(drain_policy, "apply", site.apply)
        return slow_hosts.find_slow_hosts(site.cluster, NAMES, lambda _words: None)

    return found


def test_a_slow_host_is_drained_after_as_many_measurements_as_the_policy_says(find: Any) -> None:
    site = Site(HealthPolicy(after=3), [verdicts("gpu2")] * 3)
    assert find(site) == ("gpu2: drained until host resume: policy: network rate",)
    assert site.levels == ["pairs"] * 3
    ((last, earlier),) = site.applied
    assert last == verdicts("gpu2")
    assert [each.faults["gpu2"] for each in earlier] == [{"network rate"}] * 2


def test_without_a_policy_it_is_named(find: Any) -> None:
    site = Site(None, [verdicts(), verdicts("gpu3", "CPU rate")])
    assert find(site) == ("gpu3: CPU rate: sends 1 of 10 Gbit/s",)
    assert (site.levels, site.applied) == (["pairs", "full"], [])


def test_a_slow_link_drains_no_host(find: Any) -> None:
    site = Site(HealthPolicy(), [verdicts("gpu1", "network link")])
    assert find(site) == ("gpu1: network link: sends 1 of 10 Gbit/s",)
    assert site.applied == []


def test_a_fault_that_is_not_found_again_drains_no_host(find: Any) -> None:
    fault, note = find(Site(HealthPolicy(), [verdicts("gpu2"), verdicts()]))
    assert fault == "gpu2: network rate: sends 1 of 10 Gbit/s"
    assert note.startswith("measured again, no fault was found: no host is drained")


def test_what_was_found_stays_where_it_cannot_be_measured_again(find: Any) -> None:
    fault, note = find(Site(HealthPolicy(), [verdicts("gpu2"), HostError("gpu2: busy")]))
    assert fault.startswith("gpu2: network rate")
    assert note == "the search for a slow host ended: gpu2: busy"


def test_a_policy_that_names_other_checks_measures_once(find: Any) -> None:
    site = Site(HealthPolicy(drain=("Xid",), after=10), [verdicts("gpu2")])
    assert find(site) == ("gpu2: network rate: sends 1 of 10 Gbit/s",)
    assert site.levels == ["pairs"]


def test_nothing_is_found(find: Any) -> None:
    (line,) = find(Site(HealthPolicy(), [verdicts(), verdicts()]))
    assert line.startswith("no slow host or link was found")


def test_what_cannot_be_measured_is_said(find: Any) -> None:
    (line,) = find(Site(HealthPolicy(), [HostError("gpu2: no route to host")]))
    assert line == "the search for a slow host ended: gpu2: no route to host"
