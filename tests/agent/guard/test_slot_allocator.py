"""The GPUs of hosts that a gang takes: the best linked ones of those that are free, the same on all hosts where they can be.

The hosts are those of test_allocation.py; each has the eight V100s of a DGX-1.
"""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from taco_launch.agent.guard import slot_allocator
from taco_launch.agent.host.gpus import GpuUse
from taco_launch.agent.host.leases import Leases
from taco_launch.agent.host.occupancy import Slots
from taco_launch.agent.host.slot_holders import Holder
from taco_launch.agent.store.folders import JobFolder
from taco_launch.core.model.host.hosts import GpuConstraints, Host
from taco_launch.core.model.job_facts import JobFacts
from taco_launch.core.model.plans import Placement
from taco_launch.core.protocol.guard_messages import Lease
from tests.support.gangs import HOSTS, Cluster, assembled, ignore, refused
from tests.support.placement_machines import FOLDER
from tests.support.smi import Smi, install

UUIDS = tuple(f"GPU-{number}0000000-0000-0000-0000-000000000000" for number in range(8))
NO_OTHER = ": slowest link 25 GB/s; no other set of GPUs is possible"
EIGHT = tuple(replace(host, slots=8) for host in HOSTS)


@pytest.fixture
def smi(cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Smi:
    found = install(tmp_path / "smi", monkeypatch)
    found.gpus(UUIDS, models=["Tesla V100-SXM2-16GB"] * 8)
    found.topology((FOLDER / "dgx1v.txt").read_text("utf-8"))
    (cluster.root / "head").mkdir(exist_ok=True)
    return found


def gpus(placement: Placement) -> dict[str, str]:
    """Return the indices of the GPUs by host, as a word."""
    return {share.host: "".join(str(UUIDS.index(slot)) for slot in share.slots) for share in placement.shares}


def hold(cluster: Cluster, host: str, *indices: int) -> Leases:
    held = Leases(cluster.root / f"leases-{host}", cluster.root / "jobs-held")
    names = [UUIDS[index] for index in indices]
    assert held.take(names, len(names), Holder("x", "x", 0.0), dict.fromkeys(names, GpuUse()))
    return held


def on(*hosts: Host, **constraints: object) -> tuple[Host, ...]:
    return tuple(replace(host, constraints=GpuConstraints(**constraints)) for host in hosts)  # type: ignore[arg-type]


def test_two_jobs_get_the_two_halves(cluster: Cluster, smi: Smi) -> None:
    first = assembled(cluster.gang("a", 4, hosts=EIGHT[:1]))
    assert gpus(first) == {"n1": "0123"}
    choice = first.shares[0].choice
    assert choice is not None
    assert (choice.ring, choice.bottleneck_gbps, len(choice.alternatives)) == ((0, 3, 2, 1), 25, 2)
    second, known = cluster.gang("b", 4, hosts=EIGHT[:1]).allocate(JobFacts(root=True), ignore)
    assert gpus(second) == {"n1": "4567"}
    assert smi.calls.count("topo") == 1
    choice = second.shares[0].choice  # nothing was to be chosen for the second
    assert choice is not None
    assert (choice.gpus, choice.ring, choice.bottleneck_gbps) == ((4, 5, 6, 7), (4, 7, 6, 5), 25)
    assert (choice.alternatives, choice.why[-len(NO_OTHER) :]) == ((), NO_OTHER)
    ((host, near),) = known.near
    assert (host, len(near), near[0]) == ("n1", 4, (("mlx5_2",), ("mlx5_3",), (), ("mlx5_0", "mlx5_1")))


def test_the_matrix_is_asked_for_once_a_boot(cluster: Cluster, smi: Smi) -> None:
    for name in "abc":
        assembled(cluster.gang(name, 2, hosts=EIGHT[:1]))
    assert smi.calls.count("topo") == 1
    kept = cluster.root / "head/topology.json"
    kept.write_text(json.dumps({**json.loads(kept.read_text()), "boot": "another"}))
    gang = cluster.gang("d", 1, hosts=EIGHT[:1])
    assembled(gang)
    assert smi.calls.count("topo") == 2


def test_some_are_taken(cluster: Cluster, smi: Smi) -> None:
    held = hold(cluster, "n1", 0)
    assert gpus(assembled(cluster.gang("a", 4, hosts=EIGHT[:1]))) == {"n1": "4567"}
    held.release(gone=True)
    assert smi.calls


@pytest.mark.parametrize(
    ("constraints", "expected"),
    [
        ({"topology": False}, "12"),
        ({"only": (1, 4, 7)}, "47"),
        ({"without": (0, 1, 2, 3)}, "47"),
        ({"models": ("v100",)}, "47"),
    ],
)
@pytest.mark.usefixtures("smi")
def test_the_terms(cluster: Cluster, constraints: dict[str, object], expected: str) -> None:
    held = hold(cluster, "n1", 0)
    assert gpus(assembled(cluster.gang("a", 2, hosts=on(*EIGHT[:1], **constraints)))) == {"n1": expected}
    held.release(gone=True)


@pytest.mark.usefixtures("smi")
def test_hosts_take_the_same(cluster: Cluster) -> None:
    held = hold(cluster, "n2", 2)
    each = tuple(replace(host, slots=8) for host in EIGHT)
    gang = cluster.gang("a", None, hosts=each, slots_per_host=4)
    assert gpus(assembled(gang)) == {"n1": "4567", "n2": "4567"}
    held.release(gone=True)


@pytest.mark.usefixtures("smi")
def test_a_chosen_gpu_that_another_takes_first(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    gang = cluster.gang("a", 4, hosts=EIGHT[:1])
    placed = gang._placed
    held: list[Leases] = []

    def late(note: object) -> Placement | None:
        found = placed(note)  # type: ignore[arg-type]
        held.append(hold(cluster, "n1", 3))
        return found

    monkeypatch.setattr(gang, "_placed", late)
    assert gpus(assembled(gang)) == {"n1": "4567"}
    for each in held:
        each.release(gone=True)


@pytest.mark.usefixtures("smi")
def test_an_exclusive_job_has_all_of_its_host(cluster: Cluster) -> None:
    gang = cluster.gang("a", 2, hosts=EIGHT[:1], exclusive=True)
    placement, known = gang.allocate(JobFacts(root=True), ignore)
    assert (gpus(placement), known.near) == ({"n1": "03"}, ())
    error = refused(cluster.gang("b", 1, hosts=EIGHT[:1]))
    assert error.reasons[0][1].startswith("0 of 8 free, 8 held by job a since ")
    cluster.end(gang)
    shared = cluster.gang("c", 1, hosts=EIGHT[:1])
    assembled(shared)
    alone = refused(cluster.gang("d", 1, hosts=EIGHT[:1], exclusive=True))
    assert alone.reasons[0][1].startswith("0 of 8 free, 1 held by job c since ")
    assert not alone.never


def test_gpus_of_two_models_are_not_mixed_unless_they_are_named(cluster: Cluster, smi: Smi) -> None:
    smi.gpus(UUIDS, models=["Tesla V100"] * 4 + ["NVIDIA A100"] * 4)
    error = refused(cluster.gang("a", 6, hosts=EIGHT[:1]))
    assert error.never
    assert error.reasons == (("n1", "4 Tesla V100, 4 NVIDIA A100"),)
    assert gpus(assembled(cluster.gang("b", 3, hosts=on(*EIGHT[:1], models=("A100",))))) == {"n1": "467"}
    assert gpus(assembled(cluster.gang("c", 5, hosts=on(*EIGHT[:1], models=("A100", "V100"))))) == {"n1": "01235"}


def test_hosts_are_reached_until_there_is_enough_of_one_model(cluster: Cluster, smi: Smi) -> None:
    smi.gpus(UUIDS, models=["Tesla V100"] * 4 + ["NVIDIA A100"] * 4)
    hosts = (*on(EIGHT[0], only=(0, 1, 4, 5)), EIGHT[1])
    assert gpus(assembled(cluster.gang("a", 4, hosts=hosts))) == {"n2": "0123"}
    assert refused(cluster.gang("b", 4, hosts=hosts[:1])).never


def test_of_two_models_one_is_taken_where_it_suffices(cluster: Cluster, smi: Smi) -> None:
    smi.gpus(UUIDS, models=["Tesla V100", "NVIDIA A100"] * 4)
    assert gpus(assembled(cluster.gang("a", 3, hosts=EIGHT[:1]))) == {"n1": "024"}


@pytest.mark.usefixtures("smi")
def test_what_is_taken_between_the_look_and_the_lease_is_chosen_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever has it, or whatever the last holder has left there, which a look does not tell."""
    slots = Slots(tmp_path, tmp_path / "jobs", "auto")
    slots.read_thoroughly()
    message = Lease(
        count=4,
        ports=(),
        rendezvous=None,
        allowed=None,
        cluster="",
        owner="",
        constraints=GpuConstraints(),
        whole=False,
    )
    before = slots.read()
    looks = iter((before, before))  # at what a job may have, and at what is free
    real = slots.read
    monkeypatch.setattr(slots, "read", lambda: next(looks, None) or real())
    other = Leases(tmp_path, tmp_path / "jobs")
    assert other.take((UUIDS[3],), 1, Holder("x", "x", 0.0), {UUIDS[3]: GpuUse()})
    held = Leases(tmp_path, tmp_path / "jobs")
    taken = slot_allocator.take(JobFolder(tmp_path / "state/jobs/a"), "a-1", held, slots, message)
    assert taken.slots == [*UUIDS[4:]]
    assert taken.choice is not None
    assert taken.choice.gpus == (4, 5, 6, 7)
    held.release(gone=True)
    monkeypatch.setattr(slots, "read", lambda: before)
    slots.use = {uuid: GpuUse(mib=20000 if uuid == UUIDS[1] else 4) for uuid in UUIDS}
    taken = slot_allocator.take(JobFolder(tmp_path / "state/jobs/b"), "b-1", held, slots, message)
    assert taken.slots == [*UUIDS[4:]]
    held.release(gone=True)
    # As long as any suffice, the job does not fail.
    slots.use = {uuid: GpuUse(mib=20000 if uuid in UUIDS[5:7] else 4) for uuid in UUIDS}
    taken = slot_allocator.take(JobFolder(tmp_path / "state/jobs/c"), "c-1", held, slots, message.replace(count=5))
    assert taken.slots == [UUIDS[index] for index in (0, 1, 2, 4, 7)]
    assert taken.choice is not None
    assert taken.choice.gpus == (0, 1, 2, 4, 7)
    held.release(gone=True)
    other.release(gone=True)


def test_jobs_of_whole_hosts_do_not_ask(cluster: Cluster, smi: Smi) -> None:
    """What was requested an earlier job they have, too."""
    whole, some = cluster.gang("a", 8, hosts=EIGHT[:1]), cluster.gang("b", 2, hosts=EIGHT[:1])
    placement, known = whole.allocate(JobFacts(root=True), ignore)
    assert gpus(placement) == {"n1": "01234567"}
    assert (known.near, placement.shares[0].choice) == ((), None)
    assert "topo" not in smi.calls
    cluster.end(whole)
    assembled(some)
    cluster.end(some)
    choice = assembled(cluster.gang("c", 8, hosts=EIGHT[:1])).shares[0].choice
    assert choice is not None
    assert (len(choice.ring), choice.bottleneck_gbps, choice.alternatives) == (8, 50, ())
    assert smi.calls.count("topo") == 1
