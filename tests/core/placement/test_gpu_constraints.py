"""Which slots of a host a job may have, and which of the free ones it gets there and on its other hosts."""

import pytest

from taco_launch.core.errors import PlacementError
from taco_launch.core.model.host.hosts import GpuConstraints, Host
from taco_launch.core.model.plans import FreeSlots, Placement, Share, SlotRequest
from taco_launch.core.model.slots import Occupancy, SlotHolder, SlotState
from taco_launch.core.placement.gpu_constraints import allowed, host_slots, place_alike, shared
from taco_launch.core.placement.host_gpus import pick
from tests.support.placement_machines import mesh

V100, A100, MIG = "Tesla V100-SXM2-16GB", "NVIDIA A100-SXM4-40GB", "NVIDIA A100-SXM4-40GB MIG"
HELD = SlotHolder("x", "x-1", 0.0)


def host(slots: str, models: tuple[str, ...] = (), gpus: int = -1) -> Occupancy:
    """Slots as a word: a dot for a free one, a letter for one that a job has."""
    states = tuple(SlotState(str(number), None if word == "." else HELD) for number, word in enumerate(slots))
    return Occupancy("h", states, len(slots) if gpus < 0 else gpus, models)


def slots(constraints: GpuConstraints, found: Occupancy, *, exclusive: bool = False) -> FreeSlots:
    return host_slots(
        Host("h", "h", constraints=constraints), found, lambda seen: f"{seen.free} told", exclusive=exclusive
    )


@pytest.mark.parametrize(
    ("constraints", "found", "expected", "lacks"),
    [
        (GpuConstraints(), host("...."), "0123", ""),
        (GpuConstraints(only=(0, 2)), host("...."), "02", "only its GPUs 0,2 may be used"),
        (GpuConstraints(only=(0, 9)), host("...."), "0", "there is no GPU 9"),
        (GpuConstraints(without=(0, 1)), host("...."), "23", "without GPU 0,1"),
        (GpuConstraints(only=(0, 2), without=(0,)), host("...."), "2", "only its GPUs 0,2 may be used; without GPU 0"),
        # slots beyond the GPUs, and hosts without any
        (GpuConstraints(without=(2,)), host("....", gpus=2), "0123", ""),
        (GpuConstraints(only=(0,)), host("....", gpus=2), "0", "only its GPUs 0 may be used"),
        (GpuConstraints(only=(0,)), host("..", gpus=0), "", "there is no GPU 0"),
        (GpuConstraints(models=("V100",)), host("..", gpus=0), "", "there is no GPU, and V100 is requested"),
        (GpuConstraints(gpus=True), host("...."), "0123", ""),
        (GpuConstraints(gpus=True), host("....", gpus=1), "0", "it has 1 GPU, and --gpus counts only GPUs"),
        (GpuConstraints(gpus=True), host("..", gpus=0), "", "it has no GPUs, and --gpus counts only GPUs"),
        # by model, in any case of letters; MIG by name alone
        (GpuConstraints(models=("v100",)), host("...", (V100, A100, V100)), "02", f"GPU 1: {A100}, not v100"),
        (GpuConstraints(models=("V100", "A100")), host("...", (V100, A100, V100)), "012", ""),
        (GpuConstraints(models=("H100",)), host("..", (V100, V100)), "", f"GPU 0,1: {V100}, not H100"),
        (
            GpuConstraints(),
            host("..", (A100, MIG)),
            "0",
            "GPU 1: MIG mode is on; --gpu-model MIG uses them anyway",
        ),
        (GpuConstraints(models=("MIG",)), host("..", (A100, MIG)), "1", f"GPU 0: {A100}, not MIG"),
    ],
)
def test_what_a_job_may_have(constraints: GpuConstraints, found: Occupancy, expected: str, lacks: str) -> None:
    assert "".join(map(str, allowed(constraints, found))) == expected
    entry = slots(constraints, found)
    assert (entry.slots, entry.all, entry.lacks) == (len(expected), len(expected), lacks)


def test_who_has_the_others_is_told_of_those_that_count() -> None:
    assert slots(GpuConstraints(only=(0, 1)), host("x...")) == FreeSlots(
        "h", 1, 2, "1 told", lacks="only its GPUs 0,1 may be used"
    )
    assert slots(GpuConstraints(only=(1, 2)), host("x..")).why == ""


def test_an_exclusive_job_takes_only_a_host_that_nobody_is_on() -> None:
    assert slots(GpuConstraints(only=(0,)), host("..x"), exclusive=True).slots == 0
    assert (
        slots(GpuConstraints(), host("..x"), exclusive=True).why
        == "2 told, and --exclusive requires a host without other jobs"
    )
    assert slots(GpuConstraints(), host("..."), exclusive=True).slots == 3


def test_the_reasons_of_a_refusal_name_what_the_hosts_lack() -> None:
    found = {"a": host("..", (MIG, MIG)), "b": host("..", (V100, V100))}
    hosts = tuple(Host(name, name) for name in found)
    free = [host_slots(each, found[each.name], lambda _seen: "", exclusive=False) for each in hosts]
    with pytest.raises(PlacementError) as caught:
        place_alike(SlotRequest(4), hosts, free, found)
    assert (
        caught.value.hint
        == "request at most --np 2, or allow the job other hosts or GPUs: --gpu-ids, --gpu-model, --exclude"
    )
    assert caught.value.reasons[0] == (
        "a",
        "0 slots (GPU 0,1: MIG mode is on; --gpu-model MIG uses them anyway)",
    )


@pytest.mark.parametrize(
    ("np", "a", "b", "expected"),
    [
        (2, host("..", (V100, V100)), host("..", (A100, A100)), ("a", V100)),  # one host: of one model
        (1, host("..", (V100, A100)), host("..", (A100, A100)), ("a", "")),
        (2, host("x.", (V100, V100)), host("..", (A100, A100)), ("b", A100)),
        (2, host("..", (V100, A100)), host("..", (A100, A100)), ("b", A100)),
        (3, host("..", (V100, A100)), host("..", (A100, A100)), ("ab", A100)),
        (3, host("..", (V100, V100)), host("..", (V100, V100)), ("ab", "")),
        (3, host("..", (V100, V100)), host("..", (A100, A100)), None),
        (2, host("x.", (V100, V100)), host("x.", (A100, A100)), False),  # when one of them ends
    ],
)
def test_a_job_is_placed_on_one_model(
    np: int, a: Occupancy, b: Occupancy, expected: tuple[str, str] | bool | None
) -> None:
    found = {"a": a, "b": b}
    hosts = tuple(Host(name, name) for name in found)
    free = [host_slots(each, found[each.name], lambda _seen: "", exclusive=False) for each in hosts]
    if isinstance(expected, tuple):
        placement, model = place_alike(SlotRequest(np), hosts, free, found)
        assert "".join(share.host for share in placement.shares) == expected[0]
        assert "".join(model) in (expected[1], "")
        return
    with pytest.raises(PlacementError) as caught:
        place_alike(SlotRequest(np), hosts, free, found)
    assert caught.value.reasons == (("a", f"2 {V100}"), ("b", f"2 {A100}"))
    assert caught.value.never is (expected is None)
    named = tuple(Host(name, name, constraints=GpuConstraints(models=("V100", "A100"))) for name in found)
    assert place_alike(SlotRequest(np), named, free, found)[0].np == np


def test_as_many_hosts_of_one_model_as_can_be_had() -> None:
    gpus = {"a": (V100, V100, A100), "b": (V100,), "c": (A100,), "d": (A100,)}
    found = {name: host("." * len(models), models) for name, models in gpus.items()}
    hosts = tuple(Host(name, name) for name in found)
    free = [host_slots(each, found[each.name], lambda _seen: "", exclusive=False) for each in hosts]
    placement, model = place_alike(SlotRequest(hosts=4, slots_per_host=1, least=1), hosts, free, found)
    assert ([share.host for share in placement.shares], model) == (["a", "c", "d"], (A100,))
    # ranks that need not be on many hosts are on GPUs of the first model
    assert place_alike(SlotRequest(3), hosts, free, found)[1] == (V100,)


def test_the_guides_jobs_on_eight_v100() -> None:
    """Four of eight: one of the two halves, whose ring has no link slower than an NVLink; the same when some are taken."""
    v100 = mesh("dgx1v")
    assert pick(4, range(8), v100, range(8)).gpus == (0, 1, 2, 3)
    assert pick(4, (1, 2, 4, 5, 6, 7), v100, (1, 2, 4, 5, 6, 7)).gpus == (4, 5, 6, 7)


def test_hosts_take_the_same_gpus_where_that_costs_nothing() -> None:
    v100 = mesh("dgx1v")
    alike = pick(4, range(8), v100, (0, 4, 5, 6, 7))
    assert alike.gpus == (4, 5, 6, 7)
    assert alike.why.endswith("; free on all hosts of the job")
    assert (alike.alternatives[0].gpus, alike.alternatives[0].why) == ((0, 1, 2, 3), "not free on all hosts of the job")
    assert pick(4, range(8), v100, (0, 1, 4, 6)).gpus == (0, 1, 2, 3)  # a ring of those would be slower
    assert pick(4, range(8), v100, (0, 1)).gpus == (0, 1, 2, 3)
    assert pick(2, (3, 4, 5), None, (4, 5)).gpus == (4, 5)
    assert pick(4, range(8), v100, (0, 1, 4, 6), topology=False).gpus == (0, 1, 4, 6)


def test_what_is_free_on_all_hosts_that_take_as_many() -> None:
    found = {"a": host("..x."), "b": host("x..."), "c": host("xxx.")}
    hosts = tuple(Host(name, name) for name in found)
    shares = (Share("a", 2), Share("b", 2), Share("c", 1))
    placement = Placement(shares, "")
    assert shared(hosts, placement, found) == {2: (1, 3), 1: (3,)}
