"""Why a job has no place: slots that others have or that are too few (exit code 4), or hosts that failed (5)."""

from dataclasses import replace

import pytest

from taco_launch.agent.gang.placement_errors import crowded, hosts_to_reach, refusal
from taco_launch.core.errors import PlacementError, UnusableError
from taco_launch.core.model.host.hosts import Host
from taco_launch.core.model.plans import FreeSlots, SlotRequest

FULL = "/var/lib/taco-launch/jobs/j: No space left on device"
HELD = "2 held by job l4 since 10:00"
CHECK = "taco-launch setup --check shows what is wrong there; or leave {} out: {}"
FEWER = "taco-launch setup --check shows what is wrong there; or request fewer ranks, because the job's other hosts have too few slots"
HOSTS = tuple(Host(name, name, slots=2) for name in ("n1", "n2", "n3"))


def free(*busy: str, failed: tuple[str, ...] = ()) -> dict[str, FreeSlots]:
    """All hosts with two slots, none of them free where it is busy; those that failed have told nothing."""
    names = [host.name for host in HOSTS if host.name not in failed]
    return {name: FreeSlots(name, 0, 2, HELD) if name in busy else FreeSlots(name, 2, 2) for name in names}


@pytest.mark.parametrize(
    ("np", "failed", "busy", "code", "never", "message"),
    [
        (6, ("n2",), (), 5, None, f"n2 cannot be used: {FULL}"),
        (None, ("n2",), (), 5, None, f"n2 cannot be used: {FULL}"),
        (None, ("n2",), ("n3",), 5, None, f"n2 cannot be used: {FULL}"),
        (6, ("n2", "n3"), (), 5, None, f"2 hosts cannot be used\n  n2: {FULL}\n  n3: {FULL}"),
        # The others would suffice, once they are free: a reason to wait.
        (4, ("n2",), ("n3",), 4, False, f"n1: 2 of 2 free\n  n2: {FULL}\n  n3: 0 of 2 free, {HELD}"),
        (7, ("n2",), (), 4, True, f"n1: 2 slots\n  n2: {FULL}\n  n3: 2 slots"),
        (6, (), ("n3",), 4, False, f"n1: 2 of 2 free\n  n2: 2 of 2 free\n  n3: 0 of 2 free, {HELD}"),
        (None, (), ("n3",), 4, False, f"n1: 2 of 2 free\n  n2: 2 of 2 free\n  n3: 0 of 2 free, {HELD}"),
        (7, (), (), 4, True, "n1: 2 slots\n  n2: 2 slots\n  n3: 2 slots"),
    ],
)
def test_who_is_to_blame(
    np: int | None, failed: tuple[str, ...], busy: tuple[str, ...], code: int, never: bool | None, message: str
) -> None:
    error = refusal(SlotRequest(np), HOSTS, free(*busy, failed=failed), dict.fromkeys(failed, FULL))
    assert error is not None
    assert error.exit_code == code
    assert getattr(error, "never", None) is never
    if code == 5:
        assert error.message == message
        # Without them a job of all slots gets smaller, and one of so many ranks has no place.
        is_every = np is None
        assert error.hint == (CHECK.format("it", "--exclude n2") if is_every else FEWER)
        assert isinstance(error, UnusableError)
        assert error.reasons == tuple((name, FULL) for name in failed)
    else:
        assert error.message.split("\n  ", 1)[1] == message


def test_a_hint_that_leaves_hosts_out_shows_that_it_does() -> None:
    names = [f"n{number}" for number in range(1, 10)]
    error = refusal(SlotRequest(None), [Host(name, name) for name in names], {}, dict.fromkeys(names, FULL))
    assert error is not None
    assert error.hint == CHECK.format("them", " ".join(f"--exclude {name}" for name in names[:8]) + " ...")


def test_a_host_that_the_others_do_not_know_yet() -> None:
    why = {"n2": "ssh: Could not resolve hostname n2: Name or service not known"}
    error = refusal(SlotRequest(6), HOSTS, free(failed=("n2",)), why)
    assert error is not None
    assert error.hint is not None
    assert error.hint.startswith(
        "after adding a host to the inventory, run taco-launch setup --only ssh_mesh so that the other hosts know its name ("
    )


def test_a_job_whose_hosts_all_failed_gains_nothing_by_fewer_ranks() -> None:
    error = refusal(SlotRequest(2), HOSTS[2:], {}, {"n3": FULL})
    assert error is not None
    assert error.hint == "taco-launch setup --check shows what is wrong there; or run the job on other hosts"


def test_leases_that_cannot_be_written_have_a_step_of_their_own() -> None:
    why = (
        "cannot write lease files in /x: Permission denied, set another folder with TACO_LAUNCH_LEASES, or run as root"
    )
    error = refusal(SlotRequest(2), HOSTS[2:], {}, {"n3": why})
    assert error is not None
    assert error.hint == "export TACO_LAUNCH_LEASES=FOLDER, with a folder of your own; or run the job on other hosts"


def test_where_it_fits_nobody_is_to_blame() -> None:
    assert refusal(SlotRequest(4), HOSTS, free("n3"), {}) is None
    assert refusal(SlotRequest(2), HOSTS, free("n3", failed=("n2",)), {"n2": FULL}) is None


def test_a_failed_host_of_unknown_size_may_have_been_enough() -> None:
    hosts = (HOSTS[0], Host("n2", "n2"))
    error = refusal(SlotRequest(100), hosts, {"n1": FreeSlots("n1", 2, 2)}, {"n2": FULL})
    assert isinstance(error, UnusableError)


@pytest.mark.parametrize(
    ("wanted", "reached", "more"),
    [
        (SlotRequest(2), (), ["n1"]),
        (SlotRequest(3), (), ["n1", "n2"]),
        (SlotRequest(3), ("n1",), ["n2"]),
        (SlotRequest(2), ("n1",), []),
        (SlotRequest(), ("n1",), ["n2", "n3"]),
        (SlotRequest(hosts=2), (), ["n1", "n2"]),
        (SlotRequest(hosts=1, slots_per_host=2), ("n1",), []),
        (SlotRequest(slots_per_host=1), (), ["n1", "n2", "n3"]),
        (SlotRequest(2, left_out=("n1",)), (), ["n2"]),
        (SlotRequest(6, left_out=("n1",)), (), ["n2", "n3", "n1"]),
        (SlotRequest(99), ("n1", "n2", "n3"), []),
        # as many as can be had: all up to the most, and one that failed before only where it is needed
        (SlotRequest(hosts=2, least=1), (), ["n1", "n2"]),
        (SlotRequest(hosts=9, least=1), ("n1",), ["n2", "n3"]),
        (SlotRequest(hosts=3, least=1, left_out=("n1",)), (), ["n2", "n3"]),
        (SlotRequest(hosts=3, least=1, left_out=("n1",)), ("n2", "n3"), []),
        (SlotRequest(hosts=3, least=3, left_out=("n1",)), ("n2", "n3"), ["n1"]),
    ],
)
def test_no_more_hosts_are_asked_than_are_needed(
    wanted: SlotRequest, reached: tuple[str, ...], more: list[str]
) -> None:
    known = {name: slots for name, slots in free().items() if name in reached}
    assert [host.name for host in hosts_to_reach(wanted, HOSTS, known)] == more


def test_in_the_place_of_busy_hosts_others_are_asked() -> None:
    known = {name: slots for name, slots in free("n1").items() if name == "n1"}
    assert [host.name for host in hosts_to_reach(SlotRequest(2), HOSTS, known)] == ["n2"]


def test_those_of_the_fewest_leaves_are_asked_wherever_they_stand() -> None:
    hosts = tuple(replace(host, labels=(("leaf", leaf),)) for host, leaf in zip(HOSTS, "abb", strict=True))
    assert [host.name for host in hosts_to_reach(SlotRequest(4), hosts, {})] == ["n2", "n3"]
    assert [host.name for host in hosts_to_reach(SlotRequest(4), hosts, {"n3": FreeSlots("n3", 0, 2, HELD, "b")})] == [
        "n1",
        "n2",
    ]
    assert [host.name for host in hosts_to_reach(SlotRequest(99), hosts, {})] == ["n1", "n2", "n3"]


def test_others_that_were_faster() -> None:
    error = crowded(SlotRequest(1), list(free("n2").values()))
    assert isinstance(error, PlacementError)
    assert error.message.startswith(
        "could not reserve slots for 1 rank: other jobs took them first, several times in a row; run the command again\n  n1: 2 of 2 free\n"
    )
    assert not error.never


def test_hosts_that_nobody_knows_may_have_one_worker_each() -> None:
    hosts = [Host(name, name) for name in ("n1", "n2", "n3")]
    assert hosts_to_reach(SlotRequest(4, unit=2), hosts, {}) == hosts[:2]
    assert hosts_to_reach(SlotRequest(4, unit=2), hosts, {"n1": FreeSlots("n1", 5)}) == []
    assert hosts_to_reach(SlotRequest(4, unit=2), hosts, {"n1": FreeSlots("n1", 3)}) == hosts[1:2]
