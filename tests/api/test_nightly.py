"""run_nightly: what the summary of a nightly run names, and whom it waits for."""

import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from taco_launch.api import nightly
from taco_launch.api.cluster import Cluster
from taco_launch.bench.nightly.open_hosts import OpenHosts
from taco_launch.bench.nightly.summary import Summary
from taco_launch.core.errors import HostError
from taco_launch.core.model.host.hosts import Host, Inventory
from taco_launch.jobs.backend import HostOccupancy


def test_the_summary_types_the_inventory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[Summary] = []

    def record(_folder: Path, name: str, _junit: Path | None, measure: Any, _publish: Any) -> None:
        assert name == "lab"
        made.append(measure(0.0))

    monkeypatch.setattr(nightly, "record_run", record)
    monkeypatch.setattr(
        nightly._NightlyWork, "_measure", lambda _work, _matrix, name: Summary(name, name, "c", "lab-1", 0.0, 1.0)
    )
    cluster = Cluster(typed="taco-launch -i b.yaml", environ={"TACO_LAUNCH_STATE": str(tmp_path)})
    nightly.run_nightly(cluster, "lab")
    assert made[0].typed == "taco-launch -i b.yaml"


class Hosts:
    """A backend whose head answers after `silent` looks, and one of whose hosts has no slots that are declared."""

    def __init__(self, silent: int, problem: str = "") -> None:
        self.silent, self.problem, self.looks = silent, problem, 0

    def nodes(self, _inventory: Inventory) -> tuple[HostOccupancy, ...]:
        self.looks += 1
        if self.looks <= self.silent:
            raise HostError("gpu1: Connection refused")
        return (HostOccupancy(Host("gpu2", "gpu2"), False, None, self.problem),)


@pytest.fixture
def work(monkeypatch: pytest.MonkeyPatch) -> Callable[[Hosts], nightly._NightlyWork]:
    monkeypatch.setattr(nightly, "_LOOK_SECONDS", 0.01)

    def make(hosts: Hosts) -> nightly._NightlyWork:
        cluster = Cluster(
            Inventory("c", "gpu1", (Host("gpu1", "gpu1"), Host("gpu2", "gpu2"))), environ={}, backend=cast(Any, hosts)
        )
        return nightly._NightlyWork(cluster, nightly.NightlyOptions(), nightly.NightlyListener(), cluster.resolve)

    return make


def test_a_head_that_does_not_answer_is_waited_for(work: Callable[[Hosts], nightly._NightlyWork]) -> None:
    hosts = Hosts(silent=2)
    matrix = cast(Any, SimpleNamespace(workloads=(), variants=()))
    found = work(hosts)._open_hosts(matrix, time.monotonic() + 60)
    assert found == OpenHosts(waited=found.waited, waited_for="gpu1: Connection refused")
    assert 0.02 <= found.waited < 60
    assert hosts.looks == 3


def test_the_reason_tells_how_long_a_head_was_waited_for(work: Callable[[Hosts], nightly._NightlyWork]) -> None:
    with pytest.raises(HostError, match="gpu1: Connection refused; waited 0 s"):
        work(Hosts(silent=999))._open_hosts(cast(Any, None), time.monotonic() + 0.1)


@pytest.mark.parametrize(
    ("hosts", "why"),
    [(Hosts(silent=99), "gpu1: Connection refused"), (Hosts(0, "no answer"), "gpu2: no answer")],
)
def test_who_does_not_answer_until_the_deadline_is_the_reason(
    work: Callable[[Hosts], nightly._NightlyWork], hosts: Hosts, why: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(HostError, match=why):
        work(hosts)._open_hosts(cast(Any, None), time.monotonic())
    made: list[Summary] = []
    monkeypatch.setattr(
        nightly, "record_run", lambda _folder, _name, _junit, measure, _publish: made.append(measure(0.0))
    )
    found = work(hosts)
    options = nightly.NightlyOptions(name="mine", deadline=0.0)
    replace(found, options=options).run("lab")
    assert (made[0].name, made[0].matrix, made[0].cluster, made[0].exit_code) == ("mine", "lab", "c", 5)
    assert made[0].unfit == why
