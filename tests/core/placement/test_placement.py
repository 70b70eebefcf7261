"""A job gets all that it asks for or nothing, the hosts taken in the order given."""

import re
from dataclasses import replace
from itertools import combinations

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from taco_launch.core.errors import CANNOT_PLACE, PlacementError
from taco_launch.core.model.host.hosts import Host
from taco_launch.core.model.jobs import JobSpec
from taco_launch.core.model.plans import FreeSlots, Share, SlotRequest, wanted_of
from taco_launch.core.placement.default_slots import slots_of
from taco_launch.core.placement.hosts import ordered, place

FREE = st.lists(st.integers(0, 9), max_size=8).map(
    lambda slots: [FreeSlots(f"gpu{index}", count) for index, count in enumerate(slots)]
)
# Some slots taken by others.
PART = st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9)), max_size=6).map(
    lambda hosts: [
        FreeSlots(f"gpu{index}", min(pair), max(pair), "the rest is bob's") for index, pair in enumerate(hosts)
    ]
)
BY_HOST = st.builds(
    SlotRequest,
    hosts=st.none() | st.integers(1, 7),
    slots_per_host=st.none() | st.integers(1, 9),
    least=st.none() | st.integers(1, 7),
    left_out=st.lists(st.sampled_from([f"gpu{index}" for index in range(6)]), max_size=3).map(tuple),
).filter(
    lambda wanted: (
        (wanted.hosts is not None or wanted.slots_per_host is not None)
        and (wanted.least is None or (wanted.hosts is not None and wanted.least <= wanted.hosts))
    )
)


def refused(wanted: SlotRequest, free: list[FreeSlots]) -> PlacementError:
    with pytest.raises(PlacementError) as caught:
        place(wanted, free)
    assert caught.value.exit_code == CANNOT_PLACE
    return caught.value


@given(FREE, st.none() | st.integers(-2, 80))
def test_ranks_fill_the_hosts(free: list[FreeSlots], np: int | None) -> None:
    total = sum(entry.slots for entry in free)
    wanted = total if np is None else np
    if not 1 <= wanted <= total:
        assert refused(SlotRequest(np), free).never
        return
    placement = place(SlotRequest(np), free)
    assert placement.np == wanted
    assert placement.why
    # As few hosts as there can be; rank by rank every slot of theirs in the order of the hosts, cut after the last rank.
    taken = {share.host for share in placement.shares}
    assert sum(sorted((entry.slots for entry in free), reverse=True)[: len(taken) - 1]) < wanted
    slots = [entry.host for entry in free if entry.host in taken for _slot in range(entry.slots)]
    assert [share.host for share in placement.shares for _rank in range(share.ranks)] == slots[:wanted]
    assert all(share.ranks > 0 for share in placement.shares)
    assert len({share.host for share in placement.shares}) == len(placement.shares)
    assert place(SlotRequest(np), tuple(free)) == placement


def test_hosts_are_filled_one_after_the_other() -> None:
    free = [FreeSlots("gpu2", 2), FreeSlots("gpu3", 0), FreeSlots("gpu1", 4)]
    assert place(SlotRequest(3), free).shares == (Share("gpu1", 3),)
    assert place(SlotRequest(5), free).shares == (Share("gpu2", 2), Share("gpu1", 3))
    assert place(SlotRequest(), free).shares == (Share("gpu2", 2), Share("gpu1", 4))
    assert place(SlotRequest(3, left_out=("gpu2",)), free).shares == (Share("gpu1", 3),)
    assert place(SlotRequest(5, left_out=("gpu2", "other")), free).shares == (Share("gpu1", 4), Share("gpu2", 1))


@given(PART, BY_HOST)
def test_hosts_with_as_many_slots_each(free: list[FreeSlots], wanted: SlotRequest) -> None:
    """Against every choice of hosts there is: it fits where one does, and the first such is taken."""
    count = len(free) if wanted.hosts is None else wanted.hosts

    def ranks_on(entry: FreeSlots) -> int:
        if wanted.slots_per_host is not None:
            return wanted.slots_per_host if entry.slots >= wanted.slots_per_host else 0
        return entry.slots if entry.slots == entry.total else 0

    in_order = [entry for last in (False, True) for entry in free if (entry.host in wanted.left_out) is last]
    assert list(ordered(free, wanted.left_out)) == in_order
    if wanted.least is not None:  # as many as can be had, of those to be left out only as many as are needed
        able = sum(ranks_on(entry) > 0 for entry in free if entry.host not in wanted.left_out)
        count = max([wanted.least, *(size for size in range(wanted.least, count + 1) if size <= able)])
    fitting = [
        tuple(Share(entry.host, ranks_on(entry)) for entry in chosen)
        for chosen in combinations(in_order, max(count, 0))
        if chosen and all(ranks_on(entry) > 0 for entry in chosen)
    ]
    if fitting:
        assert place(wanted, free).shares == fitting[0]
        assert place(wanted, tuple(free)) == place(wanted, free)
        return
    error = refused(wanted, free)
    whole = [FreeSlots(entry.host, entry.all) for entry in free]
    if error.never:
        assert refused(wanted, whole).never
    else:
        assert place(wanted, whole)
        assert error.reasons == tuple(
            (entry.host, f"{entry.slots} of {entry.total} free, the rest is bob's") for entry in free
        )
    # What the hint says to type is right, also each alone.
    now = whole if error.never else free
    for option, number in re.findall(r"--(hosts|slots-per-host) (\d+)", error.hint or ""):
        less = SlotRequest(
            hosts=int(number) if option == "hosts" else wanted.least or wanted.hosts,
            slots_per_host=int(number) if option == "slots-per-host" else wanted.slots_per_host,
        )
        assert place(less, now)


@given(PART, st.none() | st.integers(1, 60))
def test_slots_that_others_have_are_only_a_matter_of_time(free: list[FreeSlots], np: int | None) -> None:
    assume(free and any(entry.all for entry in free))
    total, left = sum(entry.all for entry in free), sum(entry.slots for entry in free)
    wanted = total if np is None else np
    if wanted <= left:
        assert place(SlotRequest(np), free).np == wanted
        return
    error = refused(SlotRequest(np), free)
    assert error.never == (wanted > total)
    first, *rest = error.message.splitlines()
    assert re.findall(r"\d+", first) == [str(wanted), str(total if error.never else left)]
    assert rest == [f"  {host}: {why}" for host, why in error.reasons]
    assert [host for host, _why in error.reasons] == [entry.host for entry in free]


@given(PART, st.integers(2, 5), st.integers(1, 12), st.sampled_from([(), ("gpu0",), ("gpu1", "gpu2")]))
def test_no_worker_is_on_two_hosts(free: list[FreeSlots], unit: int, count: int, left_out: tuple[str, ...]) -> None:
    """As if every host had whole workers alone; where they do not fit, what the hint says to type does."""
    wanted = SlotRequest(count * unit, left_out=left_out, unit=unit)
    room = sum(entry.slots // unit for entry in free)
    if count <= room:
        placement = place(wanted, free)
        assert placement.np == wanted.np
        assert all(share.ranks % unit == 0 for share in placement.shares)
        workers = [FreeSlots(entry.host, entry.slots // unit) for entry in free]
        by_worker = place(SlotRequest(count, left_out=left_out), workers)
        assert [(share.host, share.ranks) for share in placement.shares] == [
            (share.host, share.ranks * unit) for share in by_worker.shares
        ]
        return
    error = refused(wanted, free)
    assert error.never == (count > sum(entry.all // unit for entry in free))
    now = [FreeSlots(entry.host, entry.all) for entry in free] if error.never else free
    typed = dict(re.findall(r"--(workers|gpus) (\d+)", error.hint or ""))
    if "workers" in typed:
        assert place(SlotRequest(int(typed["workers"]) * unit, unit=unit), now)
    if "gpus" in typed:
        assert place(SlotRequest(count * int(typed["gpus"]), unit=int(typed["gpus"])), now)


@given(PART, st.integers(1, 5), st.integers(1, 30))
def test_no_host_has_more_ranks_than_the_most_on_each(free: list[FreeSlots], most: int, np: int) -> None:
    wanted = SlotRequest(np, most_per_host=most)
    room = sum(min(entry.slots, most) for entry in free)
    if np > room:
        refusal = refused(wanted, free)
        total = sum(min(entry.all, most) for entry in free)
        assert refusal.never == (np > total)
        fits = int(re.findall(r"--np (\d+)", refusal.hint or "--np 0")[0] if "--np" in (refusal.hint or "") else 0)
        assert fits == (total if refusal.never else room)
        return
    placement = place(wanted, free)
    assert placement.np == np
    slots = {entry.host: entry.slots for entry in free}
    assert all(0 < share.ranks <= min(most, slots[share.host]) for share in placement.shares)


@given(FREE, st.integers(1, 200))
def test_what_never_fits_says_how_much_there_is_and_what_would(free: list[FreeSlots], np: int) -> None:
    total = sum(entry.slots for entry in free)
    assume(free and np > total)
    error = refused(SlotRequest(np), free)
    assert all(why.startswith(f"{entry.slots} slot") for (_host, why), entry in zip(error.reasons, free, strict=True))
    # What the hint says to type is right.
    assert error.hint is not None
    found = re.search(r"-H (\S+)$", error.hint)
    assert found is not None
    entries = [word.split(":") for word in found[1].split(",")]
    assert place(SlotRequest(np), [FreeSlots(host, int(slots)) for host, slots in entries]).np == np


HALF, FULL = FreeSlots("gpu1", 2, 8, "6 held by job vgg16 since 14:02"), FreeSlots("gpu2", 0, 8, "8 held by job big")
BOTH, SEVEN = [HALF, FreeSlots("gpu2", 8)], FreeSlots("gpu2", 7)
ROOM = "each must fit on one host, and there is room for"
ONE_HAS, ONE_IS_FREE = "do not fit: 1 host has as many free", "do not fit: 1 host is free of other jobs"
INSTEAD = " instead of --hosts and --slots-per-host"
AS_MANY = "starts the same number of ranks on any hosts"
ALLOW = "allow more ranks than cores or GPUs with -H gpu1"
OTHERS = "choose other hosts with -H, or see who runs what: taco-launch list"


@pytest.mark.parametrize(
    ("wanted", "free", "message", "most"),
    [
        (SlotRequest(4), [HALF, FULL], "4 ranks do not fit: 2 slots free", "request at most --np 2, or"),
        (SlotRequest(), BOTH, "16 ranks do not fit: 10 slots free", "request at most --np 10, or"),
        (
            SlotRequest(8, unit=4),
            [HALF, SEVEN],
            f"2 workers with 4 slots each do not fit: {ROOM} 1",
            f"--np 8 {AS_MANY};",
        ),
        (SlotRequest(hosts=2, slots_per_host=8), BOTH, f"2 hosts with 8 slots each {ONE_HAS}", ""),
        (SlotRequest(slots_per_host=3), BOTH, f"2 hosts with 3 slots each {ONE_HAS}", f"--np 6{INSTEAD} {AS_MANY};"),
        (SlotRequest(hosts=2), BOTH, f"2 whole hosts {ONE_IS_FREE}", "--hosts 1;"),
        (SlotRequest(hosts=4, least=2), BOTH, f"at least 2 whole hosts {ONE_IS_FREE}", "--hosts 1;"),
        (
            SlotRequest(hosts=4, least=2, slots_per_host=8),
            BOTH,
            f"at least 2 hosts with 8 slots each {ONE_HAS}",
            "--hosts 1:4 starts it on 1 host;",
        ),
    ],
)
def test_the_words_where_others_have_the_slots(
    wanted: SlotRequest, free: list[FreeSlots], message: str, most: str
) -> None:
    error = refused(wanted, free)
    second = free[1]
    assert error.message.splitlines() == [
        message,
        "  gpu1: 2 of 8 free, 6 held by job vgg16 since 14:02",
        "  gpu2: 0 of 8 free, 8 held by job big"
        if second is FULL
        else f"  gpu2: {second.slots} of {second.slots} free",
    ]
    assert error.hint == f"{most} {OTHERS}".strip()


@pytest.mark.parametrize("wanted", [SlotRequest(9), SlotRequest(hosts=2), SlotRequest(8, unit=4)])
def test_a_host_that_cannot_tell_who_uses_its_gpus_is_looked_at_first(wanted: SlotRequest) -> None:
    lost = FreeSlots("gpu2", 0, 8, "8 with unknown users (nvidia-smi: Unable to determine the device handle)")
    hint = refused(wanted, [HALF, lost]).hint or ""
    assert hint.endswith("see what is wrong with its GPUs: taco-launch facts gpu2")
    assert "choose other hosts" not in hint


@pytest.mark.parametrize(
    ("wanted", "free", "message", "hint"),
    [
        (
            SlotRequest(2),
            [FreeSlots("gpu1", 1)],
            "2 ranks do not fit: there is 1 slot\n  gpu1: 1 slot",
            f"request at most --np 1, or {ALLOW}:2",
        ),
        (
            SlotRequest(1),
            [FreeSlots("gpu1", 0)],
            "1 rank does not fit: there are 0 slots\n  gpu1: 0 slots",
            f"{ALLOW}:1",
        ),
        (
            SlotRequest(hosts=3, slots_per_host=4),
            BOTH,
            "3 hosts with 4 slots each do not fit: 2 hosts have as many\n  gpu1: 8 slots\n  gpu2: 8 slots",
            f"name an inventory with 3 hosts: -i FILE; --np 12{INSTEAD} {AS_MANY}",
        ),
        (
            SlotRequest(hosts=1, slots_per_host=16),
            [HALF],
            "1 host with 16 slots does not fit: no host has as many\n  gpu1: 8 slots",
            f"--np 16{INSTEAD}, and {ALLOW}:16",
        ),
        (
            SlotRequest(hosts=2),
            [HALF],
            "2 whole hosts do not fit: there is 1 host\n  gpu1: 8 slots",
            "name an inventory with 2 hosts: -i FILE; --hosts 1",
        ),
        (
            SlotRequest(hosts=1),
            [HALF],
            "1 whole host does not fit: no host is free of other jobs\n  gpu1: 2 of 8 free, 6 held by job vgg16 since 14:02",
            OTHERS,
        ),
    ],
)
def test_the_words(wanted: SlotRequest, free: list[FreeSlots], message: str, hint: str) -> None:
    error = refused(wanted, free)
    assert (error.message, error.hint) == (message, hint)


def test_as_many_hosts_as_are_free() -> None:
    hosts = [FreeSlots("gpu1", 8), FreeSlots("gpu2", 2, 8), FreeSlots("gpu3", 8), FreeSlots("gpu4", 8)]
    found = place(SlotRequest(hosts=4, slots_per_host=8, least=2), hosts)
    assert [share.host for share in found.shares] == ["gpu1", "gpu3", "gpu4"]
    assert found.why.endswith(" with 8 slots free; 3 hosts, of 2 to 4 requested")
    # of one that failed before there is no more than the least number needs
    after = place(SlotRequest(hosts=4, slots_per_host=8, least=2, left_out=("gpu3",)), hosts)
    assert [share.host for share in after.shares] == ["gpu1", "gpu4"]
    three = place(SlotRequest(hosts=4, slots_per_host=8, least=3, left_out=("gpu3",)), hosts)
    assert [share.host for share in three.shares] == ["gpu1", "gpu4", "gpu3"]


def test_many_hosts_are_told_by_their_number() -> None:
    free = [FreeSlots(f"gpu{index}", 4 if index == 7 else 8) for index in range(100)]
    error = refused(SlotRequest(800), free)
    assert error.reasons == (("99 hosts", "8 slots each"), ("1 host", "4 slots each"))
    assert error.hint == ("request at most --np 796, or allow more ranks than cores or GPUs with -H gpu0:9,...")


def test_what_a_job_asks_for() -> None:
    hosts = (Host("gpu1", "a"),)
    spec = JobSpec("j", ("true",), hosts, host_count=1, slots_per_host=4)
    assert wanted_of(spec, ["gpu1"]) == SlotRequest(None, 1, 4, ("gpu1",))
    assert wanted_of(JobSpec("j", ("true",), hosts, np=3)) == SlotRequest(3)
    assert wanted_of(replace(spec, host_count=4, least_hosts=2)) == SlotRequest(None, 4, 4, least=2)


@pytest.mark.parametrize(
    ("gpus", "cpus", "slots"), [(8, 96, 8), (1, None, 1), (0, 96, 96), (0, 1, 2), (0, None, None), (None, 96, None)]
)
def test_a_host_takes_as_many_ranks_as_it_has_gpus_else_cpus(
    gpus: int | None, cpus: int | None, slots: int | None
) -> None:
    assert slots_of(gpus, cpus) == slots
