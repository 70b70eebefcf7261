"""The queue's order and who may pass whom, against a simulation of every order in which the jobs that run may end."""

import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from taco_launch.core.lifecycle import queue, slot_fit
from taco_launch.core.lifecycle.slot_fit import WaitingJob
from taco_launch.core.model.host.hosts import GpuConstraints
from taco_launch.core.model.plans import SlotRequest


def job(name: str, np: int | None = 1, hosts: str = "a", *, tried: bool = True, **more: int) -> WaitingJob:
    """A job that came in the alphabet's order; `hosts` are of one letter each."""
    wanted = SlotRequest(np, more.get("count"), more.get("each"), least=more.get("least"))
    most = more.get("most")
    return WaitingJob(
        name, more.get("priority", 0), float(ord(name[0])), wanted, tuple((h, most) for h in hosts), tried
    )


def rooms(**held: str) -> Mapping[str, slot_fit.HostCapacity]:
    """Rooms as words: a letter for the holder of each slot, a dot for a free one. Each slot is a GPU."""
    return {
        host: slot_fit.HostCapacity(tuple("" if holder == "." else holder for holder in slots), ("",) * len(slots))
        for host, slots in held.items()
    }


def begin(jobs: Iterable[WaitingJob], here: Mapping[str, slot_fit.HostCapacity], **more: Iterable[str]) -> list[str]:
    sets: dict[str, Any] = {name: frozenset(value) for name, value in more.items()}
    return list(queue.begin(queue.order(jobs), here, **sets))


def test_the_order_is_by_priority_then_submission() -> None:
    jobs = [job("a", priority=-1), job("b"), job("c"), job("d", priority=5)]
    assert [entry.name for entry in queue.order(reversed(jobs))] == ["d", "b", "c", "a"]


@pytest.mark.parametrize(
    ("jobs", "here", "begun"),
    [
        # whoever comes first starts as soon as it fits
        ([job("A", 2), job("B", 2)], rooms(a="...."), ["A", "B"]),
        ([job("A", 2), job("B", 2)], rooms(a="..x"), ["A"]),
        ([job("A", 2)], rooms(a=".xx"), []),
        # two jobs hold two slots each: A starts when either ends; whoever takes a slot in between delays it
        ([job("A", 3), job("B", 1)], rooms(a=".xxyy"), []),
        # A needs both of x and one more: the free slot besides is nobody's
        ([job("A", 4), job("B", 1)], rooms(a=".xxxxx"), ["B"]),
        ([job("A", 4), job("B", 2)], rooms(a="..xxx"), []),
        ([job("A", 4), job("B", 1), job("C", 1)], rooms(a="..xxx"), ["B"]),
        # whoever waits elsewhere keeps nobody here
        ([job("A", 9, "b"), job("B", 1, "a")], rooms(a=".", b="xxxxxxxxx"), ["B"]),
        ([job("A", 9, "ab"), job("B", 1, "a")], rooms(a=".", b="xxxxxxxx"), []),
        # A waits for the hosts a and b, of which B would take a slot on c alone
        ([job("A", 3, "ab"), job("B", 1, "ca")], rooms(a=".x", b="x", c="."), ["B"]),
        # jobs that count hosts, or want every slot, keep all of theirs
        ([job("A", None, count=1, each=4), job("B", 1)], rooms(a=".xxxxx"), []),
        ([job("A", None), job("B", 1)], rooms(a=".x"), []),
        ([job("A", None, "ab", count=1), job("B", 1, "b")], rooms(a="x", b=".y"), []),
        # B would delay C, though not A: when x ends, A and C would start together
        ([job("A", 3), job("B", 2), job("C", 1)], rooms(a=".xxxx"), []),
    ],
)
def test_who_may_begin(jobs: Sequence[WaitingJob], here: Mapping[str, slot_fit.HostCapacity], begun: list[str]) -> None:
    assert begin(jobs, here) == begun


def test_of_a_host_a_job_takes_no_more_than_it_may() -> None:
    assert begin([job("A", 2, most=1)], rooms(a="..")) == []
    assert begin([job("A", 2, "ab", most=1)], rooms(a="..", b=".")) == ["A"]
    assert begin([job("A", 1, most=1), job("B", 1, most=1)], rooms(a="xx..")) == ["A", "B"]
    # A waits for a slot of b, as it takes one of a at most: whether B is in its way by taking another of a is not worked out
    assert begin([job("A", 2, "ab", most=1), job("B", 1)], rooms(a="..", b="x")) == []
    assert begin([job("A", 2, most=2), job("B", 1)], rooms(a=".xy")) == []
    assert begin([job("A", 3, most=3), job("B", 1)], rooms(a=".xxx")) == ["B"]


def test_a_job_that_nobody_is_before_begins_unseen() -> None:
    fresh = [job("A", 2, tried=False), job("B", 1, tried=False)]
    assert begin(fresh, {}) == ["A"]  # where its slots will be nobody knows: B waits for that
    assert begin(fresh, {}, trying=["A"]) == []
    assert begin(fresh, rooms(a="..."), trying=["A"]) == []
    assert begin(fresh, rooms(a="...")) == ["A", "B"]
    assert begin(fresh, rooms(a="x.")) == []  # who knows its slots need not try
    assert begin([replace(fresh[0], tried=True), fresh[1]], {}) == []
    assert begin([*fresh, job("C", 1, "b", tried=False)], {}) == ["A", "C"]


def test_a_job_that_rests_keeps_its_place() -> None:
    jobs = [job("A", 1), job("B", 2)]
    assert begin(jobs, rooms(a=".."), resting=["A"]) == []
    assert begin([job("A", 1), job("B", 1)], rooms(a=".."), resting=["A"]) == ["B"]


def test_what_can_never_fit_is_not_kept_waiting() -> None:
    jobs = [job("A", 2, tried=False), job("B", 3, most=2, tried=False)]
    assert begin(jobs, rooms(a="xx")) == ["B"]
    assert begin([job("A", 2), jobs[1]], rooms(a="xx")) == ["B"]
    assert begin([job("A", 2), job("B", 3, tried=False)], {}) == []  # how many there are is not known yet


def test_who_waits_for_a_host_that_does_not_answer_keeps_nobody() -> None:
    jobs = [job("A", 3, "ab"), job("B", 1, "a")]
    assert begin(jobs, rooms(a="..")) == []  # it may answer at any moment
    assert begin(jobs, rooms(a=".."), down=["b"]) == ["B"]
    assert begin([job("A", 2, "ab"), job("B", 1, "a")], rooms(a=".x"), down=["b"]) == []  # x's end is enough for A
    assert begin([job("A", None, "ab"), job("B", 1, "a")], rooms(a="."), down=["b"]) == ["B"]


# --- who passes delays nobody


def simulate(
    waiting: Sequence[WaitingJob], holders: Mapping[str, int], free: int, ends: Sequence[str]
) -> dict[str, int]:
    """Return after how many ends each job starts; `ends` are the jobs in the order in which they end, if they run then."""
    slots = [name for name, count in holders.items() for _slot in range(count)] + [""] * free
    left, begun = list(waiting), {}
    running, step = set(holders), 0
    while True:
        names = begin(left, {"a": slot_fit.HostCapacity(tuple(slots))})
        for name in names:
            entry = next(entry for entry in left if entry.name == name)
            left.remove(entry)
            assert entry.wanted.np is not None
            assert slots.count("") >= entry.wanted.np
            for _rank in range(entry.wanted.np):
                slots[slots.index("")] = name
            begun[name] = step
            running.add(name)
        if names:
            continue
        ended = next((name for name in ends if name in running), None)
        if ended is None:
            return begun
        running.remove(ended)
        slots = ["" if holder == ended else holder for holder in slots]
        step += 1


counts = st.integers(1, 4)


@given(st.lists(counts, max_size=3), st.lists(counts, min_size=1, max_size=2), counts, st.integers(0, 4))
def test_who_passes_delays_nobody(held: list[int], before: list[int], last: int, free: int) -> None:
    """A job that never ends, and may pass, leaves all before it as they were without it, whoever ends when."""
    holders = {chr(ord("x") + index): count for index, count in enumerate(held)}
    total = free + sum(held)
    waiting = [job(chr(ord("A") + index), min(np, total)) for index, np in enumerate(before) if total]
    passer = job("P", last)
    for ends in itertools.permutations([*holders, *(entry.name for entry in waiting)]):
        alone = simulate(waiting, holders, free, ends)
        both = simulate([*waiting, passer], holders, free, ends)
        both.pop("P", None)
        assert both == alone


@given(st.lists(counts, max_size=4), counts, counts, st.integers(0, 4))
def test_who_delays_nobody_may_pass(held: list[int], first: int, last: int, free: int) -> None:
    """The rule refuses nobody without need: there is an order of ends in which the job would have been in the way."""
    total = free + sum(held)
    here = rooms(a="".join(chr(ord("k") + index) * count for index, count in enumerate(held)) + "." * free)
    a, b = job("A", first), job("B", last)
    if not free < first <= total or last > free:
        return
    delayed = False
    for ends in itertools.permutations(held):
        freed = [sum(ends[:step]) for step in range(len(ends) + 1)]
        delayed |= any(free - last + some < first <= free + some for some in freed)
    assert begin([a, b], here) == ([] if delayed else ["B"])


def test_a_thousand_that_wait_are_looked_at_fast() -> None:
    jobs = [replace(job("A", 8, "ab"), name=f"j{index}", queued_at=float(index)) for index in range(1000)]
    assert begin(jobs, rooms(a="xxxxxxxx", b="xxxxxxx.")) == []
    small = replace(job("A", 1, "a"), name="small", queued_at=2000.0)
    assert begin([*jobs, small], rooms(a=".xxxxxxxx", b="xxxxxxxx")) == []  # too many are before it


# --- time limits


def test_of_many_jobs_that_ask_for_the_same_one_is_placed(monkeypatch: pytest.MonkeyPatch) -> None:
    looked: list[str] = []
    fit = slot_fit.fit

    def look(job: WaitingJob, here: slot_fit.Capacities) -> slot_fit.Taken | None:
        looked.append(job.name)
        return fit(job, here)

    monkeypatch.setattr(slot_fit, "fit", look)
    jobs = [job(f"job-{number}", 2) for number in range(100)]
    assert begin([*jobs, job("small")], rooms(a="x.")) == []
    assert looked == ["job-0", "small"]
    looked.clear()
    assert begin(jobs, rooms(a="...")) == ["job-0"]
    assert looked == ["job-0", "job-1"]  # the first has its slots by then


def test_who_is_behind_many_does_not_look_at_each_of_them() -> None:
    looked: list[str] = []

    class Before(list[WaitingJob]):
        def __iter__(self) -> Iterator[WaitingJob]:
            for other in super().__iter__():
                looked.append(other.name)
                yield other

    before = Before(job(f"job-{number}", 2) for number in range(1000))
    assert not queue.may_pass({"a": (0,)}, job("small"), before, rooms(a=".x"))
    assert len(looked) == queue._MOST_PASSED + 1


def test_a_job_passes_that_ends_before_the_first_one_starts_at_the_latest() -> None:
    here = rooms(a=".xxyy")
    limits = queue.TimeLimits(1000.0, (("x", 1600.0), ("y", 1300.0)))
    first = job("A", 3)
    short = replace(job("B", 1), lasts=300.0)
    assert queue.latest_starts((first,), here, limits) == (1300.0,)  # with one that is free and those of y

    def begun(*waiting: WaitingJob, limits: queue.TimeLimits = limits) -> tuple[str, ...]:
        return queue.begin(queue.order(waiting), here, limits=limits)

    assert begun(first, short) == ("B",)
    assert begun(first, replace(short, lasts=301.0)) == ()
    assert begun(first, replace(short, lasts=None)) == ()
    assert begun(first, short, limits=queue.TimeLimits(1000.0, (("x", 1600.0),))) == ("B",)
    assert begun(first, short, limits=queue.TimeLimits(1000.0)) == ()
    assert begun(first, job("B", 2), replace(short, name="C", queued_at=99.0)) == ("C",)


def test_when_jobs_start_at_the_latest() -> None:
    limits = queue.TimeLimits(0.0, (("x", 100.0), ("y", 50.0)))
    timed = [replace(job(name, np), lasts=500.0) for name, np in (("A", 3), ("B", 2), ("C", 4))]
    assert queue.latest_starts(timed, rooms(a="xxyy"), limits) == (100.0, 600.0, 1100.0)
    assert queue.latest_starts([timed[0], timed[1]], rooms(a="xxyy."), limits) == (50.0, 100.0)
    endless = replace(timed[1], lasts=None)
    assert queue.latest_starts([timed[0], endless, timed[2]], rooms(a="xxyy"), limits) == (100.0, 600.0, None)
    assert queue.latest_starts(timed, rooms(a="xxyyz"), queue.TimeLimits(0.0, (("x", 9.0),))) == (None,) * 3
    assert queue.latest_starts([job("A", 3, "ab")], rooms(a="xxyy"), limits) == (None,)  # the slots of b are unknown


places = st.sampled_from(["a", "b", "ab"])


@given(
    st.lists(st.tuples(counts, counts, st.sampled_from("ab")), max_size=4),
    st.lists(st.tuples(counts, counts, places), max_size=5),
    st.data(),
)
def test_who_passes_by_its_time_limit_keeps_the_promise(
    held: list[tuple[int, int, str]], later: list[tuple[int, int, str]], data: st.DataObject
) -> None:
    """A job that is the first on its hosts starts no later than was promised then, however early other jobs end."""
    slots = {host: [""] * data.draw(st.integers(1, 3)) for host in "ab"}
    ends: dict[str, float] = {}
    for name, (count, end, host) in zip("klmn", held, strict=False):
        slots[host] += [name] * count
        ends[name] = float(end)
    waiting = [
        replace(job("B", min(np, sum(len(slots[host]) for host in hosts)), hosts), name=f"B{n}", lasts=float(t))
        for n, (np, t, hosts) in enumerate(later)
    ]
    early = {name: data.draw(st.integers(0, int(end))) for name, end in ends.items()}
    due: dict[str, float] = {}
    for now in range(40):
        for host, holders in slots.items():
            slots[host] = ["" if early.get(holder, now + 1) <= now else holder for holder in holders]
        here = {host: slot_fit.HostCapacity(tuple(holders)) for host, holders in slots.items()}
        limits = queue.TimeLimits(float(now), tuple(ends.items()))
        for place, entry in enumerate(waiting):
            if all({*dict(entry.hosts)}.isdisjoint(dict(other.hosts)) for other in waiting[:place]):
                (latest,) = queue.latest_starts([entry], here, limits)
                assert latest is not None
                assert latest <= due.setdefault(entry.name, latest)
        for name in queue.begin(waiting, here, limits=limits):
            entry = next(entry for entry in waiting if entry.name == name)
            waiting.remove(entry)
            taken = slot_fit.fit(
                entry, {host: slot_fit.HostCapacity(tuple(holders)) for host, holders in slots.items()}
            )
            assert taken is not None
            for host, numbers in taken.items():
                for number in numbers:
                    slots[host][number] = name
            assert entry.lasts is not None
            ends[name] = now + entry.lasts
            early[name] = now + data.draw(st.integers(1, int(entry.lasts)))
    assert not waiting


def test_a_job_that_begins_in_the_same_pass_counts_with_its_limit() -> None:
    limits = queue.TimeLimits(0.0, (("r", 1000.0),))
    waiting = [replace(job("A", 1), lasts=10.0), job("B", 3), replace(job("C", 2), lasts=900.0)]
    assert list(queue.begin(waiting, rooms(a="...rrrrr"), limits=limits)) == ["A"]


def test_a_job_delays_none_of_those_before_it_on_other_hosts() -> None:
    limits = queue.TimeLimits(0.0, (("x", 10000.0), ("y", 10.0)))
    here = rooms(a="xxxx", b="..yy")
    waiting = [job("A", 4, "a"), job("B", 4, "b"), replace(job("C", 2, "ab"), lasts=5000.0)]
    assert list(queue.begin(waiting, here, limits=limits)) == []
    assert queue.latest_starts(waiting, here, limits)[:2] == (10000.0, 10.0)


def test_what_a_job_may_not_have_is_not_counted() -> None:
    """By the numbers of slots: GPUs that are left out, and those that are named alone."""
    here = rooms(a="..x.", b="....")
    wants_two = job("A", 2, "a")
    assert begin([wants_two], here) == ["A"]
    assert begin([replace(wants_two, constraints=(("a", GpuConstraints(without=(0, 2))),))], here) == ["A"]
    assert begin([replace(wants_two, constraints=(("a", GpuConstraints(without=(0, 1))),))], here) == []
    assert begin([replace(wants_two, constraints=(("a", GpuConstraints(only=(2, 3))),))], here) == []
    # one that can never fit starts, to be refused
    assert begin([replace(wants_two, constraints=(("a", GpuConstraints(only=(2,))),), tried=False)], here) == ["A"]
    # the next one may have what the first leaves
    first = replace(job("A", 1, "b"), constraints=(("b", GpuConstraints(only=(3,))),))
    assert begin([first, replace(job("B", 1, "b"), constraints=(("b", GpuConstraints(only=(3,))),))], here) == ["A"]
    assert begin([first, job("B", 3, "b")], here) == ["A", "B"]
    # who waits for certain GPUs is passed by nobody who would take any of that host
    waits = replace(job("A", 1, "a"), constraints=(("a", GpuConstraints(only=(2,))),))
    assert begin([waits, job("B", 1, "a")], here) == []
    assert begin([waits, job("B", 1, "b")], here) == ["B"]


def of(here: Mapping[str, slot_fit.HostCapacity], **models: str) -> Mapping[str, slot_fit.HostCapacity]:
    """Rooms whose GPUs have models: a letter each; those behind the last letter are no GPUs."""
    return {host: replace(room, models=tuple(models[host])) for host, room in here.items()}


def test_gpus_of_a_model_that_a_job_may_not_have_are_not_counted() -> None:
    here = of(rooms(a="....", b="xx.."), a="VVVV", b="AAAA")
    wants = replace(job("A", 3, "ab"), constraints=tuple((host, GpuConstraints(models=("A",))) for host in "ab"))
    assert begin([wants], here) == []
    assert begin([wants], of(rooms(a="....", b="x..."), a="VVVV", b="AAAA")) == ["A"]
    # there are four: with five it is refused at once, as one that nobody has to give way to
    five = replace(wants, wanted=SlotRequest(5), tried=False)
    assert begin([five], here) == ["A"]
    assert begin([replace(five, tried=True), job("B", 4, "a")], here) == []
    # the free ones of the other model are in nobody's way, and are not counted as if they could be had by A
    assert begin([wants, job("B", 1, "b")], here) == []
    # slots beyond the GPUs are had where no GPUs are requested
    assert begin(
        [replace(job("A", 3, "a"), constraints=(("a", GpuConstraints(without=(0,))),))], of(rooms(a="...."), a="V")
    ) == ["A"]
    assert (
        begin(
            [replace(job("A", 1, "a"), constraints=(("a", GpuConstraints(models=("V",))),))], of(rooms(a="x."), a="V")
        )
        == []
    )


def test_a_job_begins_on_gpus_of_one_model() -> None:
    both = {"a": "VV", "b": "AA"}
    assert begin([job("A", 2, "ab")], of(rooms(a="x.", b="x."), **both)) == []
    assert begin([job("A", 2, "ab")], of(rooms(a="x.", b=".."), **both)) == ["A"]
    assert begin([job("A", 1, "ab")], of(rooms(a="x.", b="x."), **both)) == ["A"]
    # who takes the one does not take the other
    first = job("A", 2, "a")
    assert begin([first, job("B", 2, "a")], of(rooms(a="...."), a="VAAV")) == ["A", "B"]
    assert begin([first, job("B", 1, "a")], of(rooms(a="x.."), a="VAV")) == []
    # those that are divided into instances are had by name
    assert begin([job("A", 1, "a")], of({"a": slot_fit.HostCapacity(("",))}, a=["A MIG"])) == []  # type: ignore[arg-type]
    # of several models by name
    named = replace(job("A", 2, "ab"), constraints=tuple((host, GpuConstraints(models=("V", "A"))) for host in "ab"))
    assert begin([named], of(rooms(a="x.", b="x."), **both)) == ["A"]
    # one that fits on several models only never fits
    wide = job("A", 3, "ab", tried=False)
    assert begin([wide], of(rooms(a="xx", b="x."), **both)) == ["A"]
    assert begin([wide], of(rooms(a="xx", b="x."), a="VV", b="VV")) == []


def test_an_exclusive_job_begins_on_a_host_without_others() -> None:
    alone = replace(job("A", 1, "ab"), wanted=SlotRequest(1, exclusive=True))
    assert begin([alone], rooms(a=".x", b="x.")) == []
    assert begin([alone, job("B", 1, "b")], rooms(a=".x", b="..")) == ["A"]
    assert begin([alone, job("B", 1, "a")], rooms(a="..", b="..")) == ["A"]
    # nobody takes a slot of the host that it waits for
    assert begin([alone, job("B", 1, "a")], rooms(a=".x", b="x.")) == []


def test_a_worker_has_one_host() -> None:
    workers = replace(job("A", 2, "ab"), wanted=SlotRequest(2, unit=2))
    assert begin([workers], rooms(a=".x", b=".x")) == []
    assert begin([workers], rooms(a=".x", b="..")) == ["A"]
    # nobody takes a slot of hosts on which it may begin
    wide = replace(job("A", 2, "abd"), wanted=SlotRequest(2, unit=2))
    assert begin([wide, job("B", 1, "a")], rooms(a=".x", b=".y", d=".z")) == []
    assert begin([workers, job("B", 1, "c")], rooms(a=".x", b="x.", c=".")) == ["B"]


@given(st.lists(st.sampled_from(["..", ".x", "xy"]), min_size=1, max_size=5), counts, counts)
def test_a_job_begins_with_as_many_hosts_as_are_free(held: list[str], one: int, other: int) -> None:
    """As soon as the least number is free; who is behind it may have a host then that it does not take, and none before."""
    least, most = sorted((one, other))
    names = "abcde"[: len(held)]
    here = rooms(**dict(zip(names, held, strict=True)))
    free = [name for name, slots in zip(names, held, strict=True) if slots == ".."]
    first = job("A", None, names, count=most, each=2, least=least)
    begun = least <= len(free)
    assert begin([first], here) == (["A"] if begun else [])
    for name in free:
        after = begin([first, job("B", 1, name)], here)
        assert after == (["A", "B"] if begun and name not in free[:most] else ["A"] if begun else [])
    # with nobody on any host it never fits, and is refused at once
    refused = begin([replace(first, tried=False)], rooms(**dict.fromkeys(names, "xx")))
    assert refused == (["A"] if least > len(names) else [])


def test_a_job_takes_the_fewest_leaves() -> None:
    wide = replace(job("A", 4, "abc"), leaves=(("a", "x"), ("b", "y"), ("c", "y")))
    here = rooms(a="..", b="..", c="..")
    assert begin([wide, job("B", 2, "a")], here) == ["A", "B"]
    assert begin([wide, job("B", 2, "c")], here) == ["A"]
