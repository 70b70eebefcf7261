"""Which hosts come first where leaves and rings are known; without them nothing changes."""

from dataclasses import replace
from itertools import combinations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from taco_launch.errors import PlacementError
from taco_launch.model.plans import HostSlots, Share, Wanted
from taco_launch.placement import place
from taco_launch.placement.gpus import best_rings, choose
from taco_launch.placement.leaves import arranged
from tests.placement.machines import mesh

LEAVES = st.sampled_from(["a", "b", "c", "d", None])
HOSTS = st.lists(st.tuples(st.integers(0, 4), LEAVES), max_size=9).map(
    lambda hosts: [HostSlots(f"gpu{index}", slots, 4, leaf=leaf) for index, (slots, leaf) in enumerate(hosts)]
)
WANTED = st.builds(Wanted, np=st.integers(1, 20)) | st.builds(
    Wanted, hosts=st.integers(1, 5), slots_per_host=st.integers(1, 4)
)


@given(HOSTS, WANTED, st.lists(st.sampled_from(["gpu0", "gpu1", "gpu4"]), unique=True))
def test_fewest_leaves_against_every_choice_of_them(hosts: list[HostSlots], wanted: Wanted, out: list[str]) -> None:
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


def _suffice(wanted: Wanted, hosts: list[HostSlots]) -> bool:
    try:
        return bool(place(wanted, [replace(entry, leaf=None) for entry in hosts]))
    except PlacementError:
        return False


def test_a_leaf_that_suffices_is_taken_before_an_earlier_one_that_does_not() -> None:
    hosts = [HostSlots(f"gpu{number}", 8, leaf=leaf) for number, leaf in enumerate("abbcccba")]
    found = place(Wanted(hosts=3, slots_per_host=8), hosts)
    assert found.shares == tuple(Share(f"gpu{number}", 8) for number in (1, 2, 6))
    assert found.why.endswith("8 slots free; on 1 leaf: b")
    assert place(Wanted(np=48), hosts).why.endswith("; on 2 leaves: b, c")
    assert [entry.host for entry in arranged(hosts, dict.fromkeys((entry.host for entry in hosts), 8), 99)] == [
        f"gpu{number}" for number in (0, 7, 1, 2, 6, 3, 4, 5)
    ]


@given(st.lists(st.integers(0, 9), min_size=1, max_size=7), st.integers(1, 40))
@example([9, 1, 5, 5], 19)
def test_of_as_few_leaves_the_earliest(capacities: list[int], need: int) -> None:
    hosts = [HostSlots(f"gpu{number}", 1, leaf=f"leaf{number}") for number in range(len(capacities))]
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
    hosts = [HostSlots(f"gpu{number}", 8, leaf=leaf) for number, leaf in enumerate("aabbbcc")]

    def taken(count: int, *out: str) -> list[str]:
        wanted = Wanted(hosts=count, slots_per_host=8, left_out=out)
        return [share.host[3:] for share in place(wanted, hosts).shares]

    assert taken(2, "gpu1") == ["2", "3"]
    assert taken(3, "gpu4") == ["0", "1", "2"]
    assert taken(5, "gpu0", "gpu5", "gpu6") == ["1", "2", "3", "4", "0"]
    assert taken(6, "gpu0", "gpu5", "gpu6") == ["1", "2", "3", "4", "5", "6"]


def test_hosts_with_the_fastest_ring_of_as_many_gpus_come_first() -> None:
    dgx = mesh("dgx1v")
    free = {"gpu1": (0, 1, 4, 6), "gpu2": (0, 1, 2, 3, 4), "gpu3": tuple(range(8)), "gpu4": (0, 1, 6)}
    hosts = [HostSlots(name, len(gpus), 8, rings=best_rings(dgx, gpus)) for name, gpus in free.items()]
    hosts.append(HostSlots("gpu5", 8))

    def taken(count: int, each: int, *out: str) -> list[str]:
        return [share.host for share in place(Wanted(None, count, each, out), hosts).shares]

    assert taken(1, 4) == ["gpu2"]
    assert taken(4, 4) == ["gpu2", "gpu3", "gpu1", "gpu5"]
    assert taken(2, 4, "gpu2") == ["gpu3", "gpu1"]
    assert taken(2, 8) == ["gpu3", "gpu5"]
    assert taken(3, 1) == ["gpu1", "gpu2", "gpu3"]
    assert place(Wanted(hosts=1, slots_per_host=4), hosts).why.endswith("free, those with the fastest rings first")
    assert [share.host for share in place(Wanted(6), hosts).shares] == ["gpu1", "gpu2"]


@given(st.sampled_from(["dgx1v", "a6000x8_bridges", "l40sx4", "p3_8xlarge"]), st.data())
def test_the_best_rings_are_those_of_what_is_chosen(name: str, data: st.DataObject) -> None:
    on = mesh(name)
    free = tuple(sorted(data.draw(st.sets(st.sampled_from(range(len(on.matrix)))))))
    chosen = [choose(count, free, on).bottleneck_gbps or 0.0 for count in range(1, len(free) + 1)]
    assert list(best_rings(on, free)) == chosen
