"""measure_hosts: which hosts the job gets, what becomes of it, and what is read of its output."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from taco_launch.api import Cluster
from taco_launch.api.host_checks import HostCheckOptions, is_proven, measure_drained, measure_hosts
from taco_launch.core.errors import HostError, UsageError
from taco_launch.core.facts.reports.health.verdict import FAULT, NOT_POSSIBLE, OK, HealthVerdict
from taco_launch.core.launch.plan import own_ports
from taco_launch.core.model.host.hosts import Inventory
from taco_launch.core.model.job_view import JobView
from taco_launch.core.model.jobs import HostRanks, JobRecord, JobSpec, JobState
from taco_launch.core.model.slots import Drain, Occupancy, SlotHolder, SlotState
from taco_launch.hosts.inventory.load import load
from taco_launch.jobs.backend import FollowListener, HostOccupancy, LogQuery, Outcomes, Output
from taco_launch.jobs.code.snapshot import Snapshot
from tests.support.fake_backend import FakeBackend

FOUR = 'cluster: c\nhosts: {gpu1: {slots: 2}, gpu2: {slots: 2}, gpu3: {slots: 2}, gpu4: {slots: 2}}\nnetwork: {interface: eth0}\nversions: {openmpi: "4.1.4"}\ncontainer: {image: train:1}\n'
FREE = Occupancy("h", (SlotState("slot-0"), SlotState("slot-1")))
BUSY = Occupancy("h", (SlotState("slot-0", SlotHolder("vgg16", "1", 1.0, owner="alice")), SlotState("slot-1")))
DRAINED = Occupancy("h", (), drain=Drain("root@m", 1.0, "dust"))
LINES = [
    {"step": "round 1 of 1 of pairs"},
    {"key": ["network rate", 0, 1], "values": [1e9, 1.1e9], "resent": [0, 0]},
    {"key": ["network rate", 1, 0], "values": [1e9, 1.1e9], "resent": [0, 0]},
    {"end": 2},
]
OPTIONS = HostCheckOptions("pairs")


class Jobs(FakeBackend):
    """Runs one job, whose output is given."""

    def __init__(self, lines: Sequence[object] = LINES, state: JobState = JobState.SUCCEEDED, *, interrupted: bool = False) -> None:  # fmt: skip
        self.state, self.interrupted = state, interrupted
        self.text = "".join(f"gpu1/0 | @check {json.dumps(line)}\n" for line in lines)
        self.found = {"gpu1": FREE, "gpu2": FREE, "gpu3": BUSY, "gpu4": DRAINED}
        self.ran: list[JobSpec] = []
        self.calls: list[str] = []

    def provide_code(self, snapshot: Snapshot, _say: object) -> None:
        assert "program/__main__.py" in {entry.path for entry in snapshot.manifest.files}

    def nodes(self, inventory: Inventory) -> tuple[HostOccupancy, ...]:
        return tuple(HostOccupancy(host, host.name == "gpu1", self.found[host.name]) for host in inventory.hosts)

    def run(self, spec: JobSpec, _environ: Mapping[str, str], output: Output, _watch: FollowListener) -> JobView:
        self.ran.append(spec)
        if self.interrupted:
            raise KeyboardInterrupt
        output(self.text.encode())
        shares = tuple(HostRanks(host.name, 1) for host in spec.hosts)
        return JobView(spec, JobRecord("1", self.state, attempt=1, shares=shares, started=1.0, reason="rank 1 exited with code 1"), "/f")  # fmt: skip

    def _call(self, call: str, names: Sequence[str]) -> Outcomes:
        self.calls.append(call)
        (name,) = names
        return Outcomes({name: JobView(self.ran[0], JobRecord("1", self.state), "/f")})

    def stop(
        self, names: Sequence[str], _by: str, _number: int, _grace: float | None = None, _owner: str | None = None
    ) -> Outcomes:
        return self._call("stop", names)

    def delete(self, names: Sequence[str], _by: str | None = None, _owner: str | None = None) -> Outcomes:
        return self._call("delete", names)

    def follow(self, _query: LogQuery, _output: Output, _watch: FollowListener | None = None) -> JobView:
        self.calls.append("follow")
        return JobView(self.ran[0], JobRecord("1", self.state), "/f")


@pytest.fixture
def environ(tmp_path: Path) -> dict[str, str]:
    return {"PATH": "/usr/bin:/bin", "HOME": str(tmp_path)}


@pytest.fixture
def inventory(tmp_path_factory: pytest.TempPathFactory) -> Inventory:
    file = tmp_path_factory.mktemp("inventory") / "c.yaml"
    file.write_text(FOUR)
    return load(str(file), {}, frozenset)


def test_the_job_has_the_free_hosts_and_others_are_left_out_with_the_reason(
    inventory: Inventory, environ: dict[str, str]
) -> None:
    jobs, steps = Jobs(), list[str]()
    cluster = Cluster(inventory, environ=environ, backend=jobs)
    found = dict(measure_hosts(cluster, inventory.hosts, OPTIONS, steps.append))
    (spec,) = jobs.ran
    assert ([host.name for host in spec.hosts], spec.exclusive, spec.per_host) == (["gpu1", "gpu2"], True, True)
    assert spec.code is not None
    assert {host: [each.level for each in every] for host, every in found.items()}["gpu3"] == [NOT_POSSIBLE]
    assert found["gpu3"][0].text == "busy: job vgg16 (alice): 1 slot; to wait: --wait-for-jobs"
    assert found["gpu4"][0].text.startswith("drained: dust; to measure it all the same: --drained")
    assert found["gpu1"][0].text.startswith("sends 8.4 Gbit/s [8, 8.8], receives ")
    assert steps == ["round 1 of 1 of pairs"]
    assert jobs.calls == ["delete"], "a measurement leaves no job behind"


def test_drained_hosts_are_measured_where_that_is_asked_for(inventory: Inventory, environ: dict[str, str]) -> None:
    jobs = Jobs()
    jobs.found["gpu4"] = FREE  # what a host answers who may have its slots while it is drained
    cluster = Cluster(inventory, environ=environ, backend=jobs)
    measure_hosts(cluster, inventory.hosts, HostCheckOptions("pairs", drained=frozenset(("gpu4",))))
    (spec,) = jobs.ran
    assert {host.name: host.while_drained for host in spec.hosts} == {"gpu1": False, "gpu2": False, "gpu4": True}
    assert not any(host.while_drained for host in inventory.hosts)


def test_a_drained_host_is_measured_beside_idle_ones(inventory: Inventory, environ: dict[str, str]) -> None:
    jobs = Jobs()
    jobs.found["gpu4"] = FREE  # what a host answers who may have its slots while it is drained
    cluster = Cluster(inventory, environ=environ, backend=jobs)
    found = measure_drained(cluster, inventory.hosts[3:], OPTIONS)
    assert [host.name for host in jobs.ran[0].hosts] == ["gpu1", "gpu2", "gpu4"]
    assert [host for host, _verdicts in found] == ["gpu4"]


@pytest.mark.parametrize(
    ("levels", "proven"),
    [((OK,), True), ((OK, NOT_POSSIBLE), True), ((NOT_POSSIBLE,), False), ((OK, FAULT), False), ((), False)],
)
def test_what_proves_that_a_host_is_sound(levels: tuple[str, ...], proven: bool) -> None:
    assert is_proven([HealthVerdict("memory copy", level, "", "") for level in levels]) is proven


def test_the_ports_of_the_measurement_are_of_the_range(tmp_path: Path, environ: dict[str, str]) -> None:
    (tmp_path / "c.yaml").write_text(FOUR.replace("{interface: eth0}", "{interface: eth0, port_range: 40000-40100}"))
    inventory, jobs = load(str(tmp_path / "c.yaml"), {}, frozenset), Jobs()
    measure_hosts(Cluster(inventory, environ=environ, backend=jobs), inventory.hosts, OPTIONS)
    (spec,) = jobs.ran
    assert '"ports":[40000,40100]' in spec.command[3]
    assert own_ports(spec) == (40100,)


def test_with_patience_busy_hosts_are_waited_for(inventory: Inventory, environ: dict[str, str]) -> None:
    jobs = Jobs()
    cluster = Cluster(inventory, environ=environ, backend=jobs)
    measure_hosts(cluster, inventory.hosts, HostCheckOptions("pairs", patience=60.0))
    assert ([host.name for host in jobs.ran[0].hosts], jobs.ran[0].policy.queue_timeout) == (["gpu1", "gpu2", "gpu3"], 60.0)  # fmt: skip


def test_too_few_hosts_a_failed_job_and_cut_output_are_errors(inventory: Inventory, environ: dict[str, str]) -> None:
    jobs = Jobs()
    with pytest.raises(UsageError, match=r"requires two hosts on which a job can run \(gpu3: busy: job vgg16"):
        measure_hosts(Cluster(inventory, environ=environ, backend=jobs), inventory.hosts[1:], OPTIONS)
    failed = Jobs(state=JobState.FAILED)
    with pytest.raises(HostError, match="rank 1 exited with code 1") as caught:
        measure_hosts(Cluster(inventory, environ=environ, backend=failed), inventory.hosts, OPTIONS)
    assert "logs check-pairs-" in (caught.value.hint or "")
    with pytest.raises(HostError, match="not complete"):
        measure_hosts(Cluster(inventory, environ=environ, backend=Jobs(LINES[:-2])), inventory.hosts, OPTIONS)


def test_ctrl_c_stops_the_job(inventory: Inventory, environ: dict[str, str]) -> None:
    jobs = Jobs(interrupted=True)
    with pytest.raises(KeyboardInterrupt):
        measure_hosts(Cluster(inventory, environ=environ, backend=jobs), inventory.hosts, OPTIONS)
    assert jobs.calls == ["stop", "follow", "delete"]
