"""Which hosts come first where leaves are known, and how few suffice."""

from dataclasses import replace
from itertools import combinations, permutations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from taco_launch.core.errors import PlacementError
from taco_launch.core.model.host.hardware import Topology
from taco_launch.core.model.plans import FreeSlots, Share, SlotRequest
from taco_launch.core.placement.bandwidth import DEFAULT
from taco_launch.core.placement.hosts import arranged, place
from taco_launch.core.placement.mesh import NEAR, GpuMesh, mesh_of
from taco_launch.core.placement.rings import MOST_GPUS, Matrix, order, rings

LEAVES = st.sampled_from(["a", "b", "c", "d", None])
HOSTS = st.lists(st.tuples(st.integers(0, 4), LEAVES), max_size=9).map(
    lambda hosts: [FreeSlots(f"gpu{index}", slots, 4, leaf=leaf) for index, (slots, leaf) in enumerate(hosts)]
)
WANTED = st.builds(SlotRequest, np=st.integers(1, 20)) | st.builds(
    SlotRequest, hosts=st.integers(1, 5), slots_per_host=st.integers(1, 4)
)


@given(HOSTS, WANTED, st.lists(st.sampled_from(["gpu0", "gpu1", "gpu4"]), unique=True))
def test_fewest_leaves_against_every_choice_of_them(
    hosts: list[FreeSlots], wanted: SlotRequest, out: list[str]
) -> None:
    wanted = replace(wanted, left_out=tuple(out))
    without = [replace(entry, leaf=None) for entry in hosts]
    if not _suffice(wanted, hosts):
        told = []
        for some in (hosts, without):
            with pytest.raises(PlacementError) as caught:
                place(wanted, some)
            told.append(str(caught.value))
        assert told[0] == told[1]
        return
    found, plain = place(wanted, hosts), place(wanted, without)
    assert found.np == plain.np
    assert "on 1 leaf" not in plain.why
    leaf = {entry.host: entry.leaf for entry in hosts}
    order = [leaf[share.host] for share in found.shares if share.host not in out]
    assert len([place for place, each in enumerate(order) if each not in order[:place]]) == _runs(order)
    if not out:
        used = set(order)
        assert not any(
            _suffice(wanted, [entry for entry in hosts if entry.leaf in few])
            for few in combinations({entry.leaf for entry in hosts}, len(used) - 1)
        )


def _runs(order: list[str | None]) -> int:
    return sum(place == 0 or each != order[place - 1] for place, each in enumerate(order))


def _suffice(wanted: SlotRequest, hosts: list[FreeSlots]) -> bool:
    try:
        return bool(place(wanted, [replace(entry, leaf=None) for entry in hosts]))
    except PlacementError:
        return False


def test_a_leaf_that_suffices_is_taken_before_an_earlier_one_that_does_not() -> None:
    hosts = [FreeSlots(f"gpu{number}", 8, leaf=leaf) for number, leaf in enumerate("abbcccba")]
    found = place(SlotRequest(hosts=3, slots_per_host=8), hosts)
    assert found.shares == tuple(Share(f"gpu{number}", 8) for number in (1, 2, 6))
    assert found.why.endswith("8 slots free; on 1 leaf: b")
    assert place(SlotRequest(np=48), hosts).why.endswith("; on 2 leaves: b, c")
    assert [entry.host for entry in arranged(hosts, dict.fromkeys((entry.host for entry in hosts), 8), 99)] == [
        f"gpu{number}" for number in (0, 7, 1, 2, 6, 3, 4, 5)
    ]


@given(st.lists(st.integers(0, 9), min_size=1, max_size=7), st.integers(1, 40))
@example([9, 1, 5, 5], 19)
def test_of_as_few_leaves_the_earliest(capacities: list[int], need: int) -> None:
    hosts = [FreeSlots(f"gpu{number}", 1, leaf=f"leaf{number}") for number in range(len(capacities))]
    gives = {entry.host: capacity for entry, capacity in zip(hosts, capacities, strict=True)}
    every = [
        few
        for size in range(1, len(capacities) + 1)
        for few in combinations(range(len(capacities)), size)
        if sum(capacities[place] for place in few) >= need
    ]
    first = every[0] if every else ()
    rest = [place for place in range(len(capacities)) if place not in first]
    assert [entry.host for entry in arranged(hosts, gives, need)] == [f"gpu{place}" for place in (*first, *rest)]


def test_hosts_to_be_left_out_come_last_whatever_their_leaf() -> None:
    hosts = [FreeSlots(f"gpu{number}", 8, leaf=leaf) for number, leaf in enumerate("aabbbcc")]

    def taken(count: int, *out: str) -> list[str]:
        wanted = SlotRequest(hosts=count, slots_per_host=8, left_out=out)
        return [share.host[3:] for share in place(wanted, hosts).shares]

    assert taken(2, "gpu1") == ["2", "3"]
    assert taken(3, "gpu4") == ["0", "1", "2"]
    assert taken(5, "gpu0", "gpu5", "gpu6") == ["1", "2", "3", "4", "0"]
    assert taken(6, "gpu0", "gpu5", "gpu6") == ["1", "2", "3", "4", "5", "6"]


@given(HOSTS, st.integers(1, 20))
def test_one_host_where_one_suffices_else_the_fewest_of_the_leaves(hosts: list[FreeSlots], np: int) -> None:
    if not _suffice(SlotRequest(np), hosts):
        return
    found = place(SlotRequest(np), hosts)
    taken = [share.host for share in found.shares]
    leaf = {entry.host: entry.leaf for entry in hosts}
    able = [entry.host for entry in hosts if entry.slots >= np]
    if able:
        assert taken == able[:1]
        return
    order = list(leaf.values())
    there = sorted(hosts, key=lambda entry: order.index(entry.leaf))
    there = [entry for entry in there if entry.leaf in {leaf[host] for host in taken}]
    fewest = next(
        [entry.host for entry in few]
        for count in range(1, len(there) + 1)
        for few in combinations(there, count)
        if sum(entry.slots for entry in few) >= np
    )
    assert taken == fewest


def test_hosts_that_are_passed_over_for_fewer_ones() -> None:
    hosts = [FreeSlots("gpu1", 2, 8), FreeSlots("gpu2", 4, 8), FreeSlots("gpu3", 6, 8)]

    def taken(np: int, *out: str, unit: int = 1) -> tuple[dict[str, int], bool]:
        found = place(SlotRequest(np, left_out=out, unit=unit), hosts)
        return {share.host: share.ranks for share in found.shares}, found.why.startswith("the fewest hosts")

    assert taken(2) == ({"gpu1": 2}, False)
    assert taken(4) == ({"gpu2": 4}, True)
    assert taken(7) == ({"gpu1": 2, "gpu3": 5}, True)
    assert taken(9) == ({"gpu2": 4, "gpu3": 5}, True)
    assert taken(12) == ({"gpu1": 2, "gpu2": 4, "gpu3": 6}, False)
    assert taken(6, "gpu3") == ({"gpu1": 2, "gpu2": 4}, False)
    assert taken(8, unit=4) == ({"gpu2": 4, "gpu3": 4}, False)


# --- How near HCAs are to the GPUs of a set, against every way to give each GPU one of its own


LINKS = st.sampled_from([*NEAR, "SYS"])


def mesh(near: list[list[str]]) -> GpuMesh:
    """Return GPUs on NVSwitch with the link of each to each HCA."""
    links = [[*("X" if one == other else "NV2" for other in range(len(near))), *row] for one, row in enumerate(near)]
    gpus, hcas = (f"GPU{gpu}" for gpu in range(len(near))), (f"mlx5_{hca}" for hca in range(len(near[0])))
    return mesh_of(Topology(tuple(gpus), tuple(hcas), tuple(map(tuple, links))), DEFAULT)


@given(st.integers(1, 4), st.integers(0, 4), st.data())
def test_an_hca_of_its_own(gpus: int, hcas: int, data: st.DataObject) -> None:
    near = [[data.draw(LINKS) for _hca in range(hcas)] for _gpu in range(gpus)]
    places = [*range(hcas), *(hcas for _gpu in range(gpus))]  # as many that have none
    for words, found in enumerate(mesh(near).with_hcas(range(gpus)), 1):
        assert found == max(
            sum(place < hcas and near[gpu][place] in NEAR[:words] for gpu, place in enumerate(given))
            for given in permutations(places, gpus)
        )


def test_an_hca_is_given_up_for_another() -> None:
    near = [["PIX", "PIX", "SYS"], ["SYS", "SYS", "PIX"], ["PIX", "SYS", "PIX"]]
    assert mesh(near).with_hcas(range(3)) == (3, 3, 3, 3)


def test_nodes_and_links() -> None:
    links = (("X", "NV4", "PHB"), ("NV4", "X", "SYS"), ("PHB", "SYS", "X"))
    found = mesh_of(Topology(("GPU0", "GPU1", "GPU2"), (), links, ("0-7", "0-7", "8-15"), (None, "0", None)), DEFAULT)
    assert found.nodes == ("0-7", "0", "8-15")
    assert found.links((0, 2, 1)) == ("PHB", "SYS", "NV4")
    assert found.links((0, 1)) == ("NV4",)
    assert found.links(()) == ()
    assert found.linked((0, 1, 2)) == 100 + 10 + 6


# --- The ring tables against every order of the GPUs, and the rings that are shown


@st.composite
def matrices(draw: st.DrawFn, most: int = 7) -> Matrix:
    """Return symmetric bandwidths: few different ones, as hosts have, or one for each pair."""
    count = draw(st.integers(1, most))
    values = st.integers(1, draw(st.sampled_from([1, 2, 4, 50])))
    found = [[0.0] * count for _ in range(count)]
    for one in range(count):
        for other in range(one):
            found[one][other] = found[other][one] = float(draw(values))
    return tuple(map(tuple, found))


def slowest(matrix: Matrix, ring: tuple[int, ...]) -> float:
    return min(matrix[one][other] for one, other in zip(ring, (*ring[1:], ring[0]), strict=True))


def members(mask: int) -> tuple[int, ...]:
    return tuple(gpu for gpu in range(MOST_GPUS) if mask >> gpu & 1)


@given(matrices())
def test_every_set_against_every_order_of_it(matrix: Matrix) -> None:
    found = rings(matrix)
    for mask in range(1, 1 << len(matrix)):
        first, *others = members(mask)
        if not others:
            assert found.bottleneck(mask) is None
            continue
        best = max(slowest(matrix, (first, *rest)) for rest in permutations(others))
        assert found.bottleneck(mask) == best
        ring = order(matrix, members(mask), best)
        assert (ring[0], sorted(ring)) == (first, list(members(mask)))
        assert slowest(matrix, ring) == best
        assert order(matrix, tuple(reversed(members(mask))), best) == ring


def test_sixteen_gpus() -> None:
    """A chain of fast links, closed by one: the ring over all is as fast as the links, no smaller one is."""
    around = {frozenset((gpu, (gpu + 1) % MOST_GPUS)) for gpu in range(MOST_GPUS)}
    every = range(MOST_GPUS)
    matrix = tuple(
        tuple(0.0 if one == other else 50.0 if {one, other} in around else 6.0 for other in every) for one in every
    )
    found = rings(matrix)
    assert found.bottleneck((1 << MOST_GPUS) - 1) == 50
    assert order(matrix, every, 50.0) == tuple(every)
    assert {found.bottleneck(((1 << MOST_GPUS) - 1) & ~(1 << gpu)) for gpu in every} == {6.0}
    with pytest.raises(ValueError, match="at most 16"):
        rings(((0.0,) * 17,) * 17)
