"""A job gets all its slots or none, the hosts filled in the order given."""

import re

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from taco_launch.errors import CANNOT_PLACE, PlacementError
from taco_launch.model.plans import HostSlots, Share
from taco_launch.placement import place, slots_of

FREE = st.lists(st.integers(0, 9), max_size=8).map(
    lambda slots: [HostSlots(f"gpu{index}", count) for index, count in enumerate(slots)]
)


@given(FREE, st.none() | st.integers(-2, 80))
def test_place(free: list[HostSlots], np: int | None) -> None:
    total = sum(entry.slots for entry in free)
    wanted = total if np is None else np
    if not 1 <= wanted <= total:
        with pytest.raises(PlacementError):
            place(np, free)
        return
    placement = place(np, free)
    assert placement.np == wanted
    assert placement.why
    # Written out rank by rank: every slot in the order of the hosts, cut after the last rank.
    slots = [entry.host for entry in free for _slot in range(entry.slots)]
    assert [share.host for share in placement.shares for _rank in range(share.ranks)] == slots[:wanted]
    assert all(share.ranks > 0 for share in placement.shares)
    assert len({share.host for share in placement.shares}) == len(placement.shares)
    assert place(np, tuple(free)) == placement


def test_hosts_are_filled_one_after_the_other() -> None:
    free = [HostSlots("gpu2", 2), HostSlots("gpu3", 0), HostSlots("gpu1", 4)]
    assert place(3, free).shares == (Share("gpu2", 2), Share("gpu1", 1))
    assert place(None, free).shares == (Share("gpu2", 2), Share("gpu1", 4))


@given(FREE, st.integers(1, 200))
def test_what_does_not_fit_says_how_much_there_is_and_what_would(free: list[HostSlots], np: int) -> None:
    total = sum(entry.slots for entry in free)
    assume(free and np > total)
    with pytest.raises(PlacementError) as caught:
        place(np, free)
    error = caught.value
    first, *rest = error.message.splitlines()
    assert re.findall(r"\d+", first) == [str(np), str(total)]
    assert rest == [f"  {host}: {why}" for host, why in error.reasons]
    assert [host for host, _why in error.reasons] == [entry.host for entry in free]
    assert all(why.startswith(f"{entry.slots} slot") for (_host, why), entry in zip(error.reasons, free, strict=True))
    assert error.exit_code == CANNOT_PLACE
    # What the hint says to type is right.
    assert error.hint is not None
    found = re.search(r"-H (\S+)$", error.hint)
    assert found is not None
    entries = [word.split(":") for word in found[1].split(",")]
    assert place(np, [HostSlots(host, int(slots)) for host, slots in entries]).np == np


def test_the_words() -> None:
    with pytest.raises(PlacementError) as caught:
        place(2, [HostSlots("gpu1", 1)])
    assert caught.value.message == "2 ranks do not fit: there is 1 slot\n  gpu1: 1 slot"
    assert caught.value.hint is not None
    assert "--np 1" in caught.value.hint


def test_one_rank_is_one() -> None:
    with pytest.raises(PlacementError) as caught:
        place(1, [HostSlots("gpu1", 0)])
    assert caught.value.message.startswith("1 rank does not fit: there are 0 slots")
    assert caught.value.hint is not None
    assert "--np 0" not in caught.value.hint


def test_many_hosts_are_told_by_their_number() -> None:
    free = [HostSlots(f"gpu{index}", 4 if index == 7 else 8) for index in range(100)]
    with pytest.raises(PlacementError) as caught:
        place(800, free)
    assert caught.value.reasons == (("99 hosts", "8 slots each"), ("1 host", "4 slots each"))
    assert caught.value.hint == ("ask for at most --np 796, or allow more ranks than cores or GPUs with -H gpu0:9,...")


@pytest.mark.parametrize(
    ("gpus", "cpus", "slots"), [(8, 96, 8), (1, None, 1), (0, 96, 96), (0, 1, 2), (0, None, None), (None, 96, None)]
)
def test_a_host_takes_as_many_ranks_as_it_has_gpus_else_cpus(
    gpus: int | None, cpus: int | None, slots: int | None
) -> None:
    assert slots_of(gpus, cpus) == slots
