"""Which hosts the policy of `check --drain` drains and opens, and which it may not."""

from collections.abc import Mapping, Sequence

import pytest

from taco_launch.core.facts.reports.health.drain_plan import DRAINED, DrainAction, EarlierCheck, plan
from taco_launch.core.facts.reports.health.verdict import FAULT, NOT_POSSIBLE, OK, WARNING, HealthVerdict
from taco_launch.core.model.host.hosts import HealthPolicy
from taco_launch.core.model.slots import NODE, USER, Drain

ALL = HealthPolicy()
PERSON = Drain("ann@desk", 1.0, "new cable")
BY_POLICY = Drain("root@ctl", 1.0, "policy: Xid: Xid 79", NODE, policy=True, checks=("Xid",))
FULL = Drain("root@ctl", 1.0, "policy: disk space: full", USER, policy=True, checks=("disk space",))
XID, DISK = ("Xid", FAULT), ("disk space", FAULT)
WELL = (("Xid", OK), ("disk space", OK))
# Of ten hosts, the policy may keep two drained.
SIZE = 10


def done(
    policy: HealthPolicy,
    now: Sequence[tuple[str, str]],
    before: Sequence[Sequence[str] | None],
    record: Drain | None = None,
    others: Mapping[str, Drain | None] | None = None,
    size: int = SIZE,
) -> tuple[DrainAction, ...]:
    """Plan for n0, whose checks now and before (None: it did not answer) found this; the other hosts are well."""
    verdicts = tuple(HealthVerdict(name, level, f"{name} is {level}", "") for name, level in now)
    earlier = [EarlierCheck({} if names is None else {"n0": frozenset(names)}) for names in before]
    drains = {f"n{number}": None for number in range(size)} | dict(others or {}) | {"n0": record}
    return plan(policy, (("n0", verdicts),), earlier, drains, size)


@pytest.mark.parametrize(
    ("policy", "now", "before", "record", "event"),
    [
        pytest.param(ALL, WELL, [], None, None, id="well"),
        pytest.param(ALL, [XID], [], None, None, id="first fault"),
        pytest.param(ALL, [XID], [[]], None, None, id="no fault before"),
        pytest.param(ALL, [XID], [["Xid"]], None, ("drained", NODE), id="second fault"),
        pytest.param(ALL, [XID], [["Xid"], []], None, None, id="not in a row"),
        pytest.param(ALL, [XID], [[], ["Xid"]], None, ("drained", NODE), id="older checks do not matter"),
        pytest.param(ALL, WELL, [["disk space"], []], FULL, ("resumed", USER), id="nor for what ends"),
        pytest.param(ALL, [XID], [["Xid"], None], None, ("drained", NODE), id="silent in between"),
        pytest.param(ALL, [XID], [["ECC"]], None, None, id="another fault before"),
        pytest.param(HealthPolicy(after=1), [XID], [], None, ("drained", NODE), id="after 1"),
        pytest.param(HealthPolicy(after=3), [XID], [["Xid"]], None, None, id="after 3, twice"),
        pytest.param(HealthPolicy(after=3), [XID], [["Xid"]] * 2, None, ("drained", NODE), id="after 3"),
        pytest.param(HealthPolicy(("ECC",)), [XID], [["Xid"]], None, None, id="not named"),
        pytest.param(HealthPolicy(("Xid",)), [XID, DISK], [["Xid", "disk space"]], None, ("drained", NODE), id="named"),
        pytest.param(ALL, [("Xid", WARNING)], [["Xid"]], None, None, id="a warning"),
        pytest.param(ALL, [DISK], [["disk space"]], None, ("drained", USER), id="full disk"),
        pytest.param(ALL, [DISK, XID], [["disk space", "Xid"]], None, ("drained", NODE), id="both"),
        pytest.param(ALL, [XID], [["Xid"]], PERSON, None, id="drained by a person"),
        pytest.param(ALL, WELL, [[]], PERSON, None, id="a person ends it"),
        pytest.param(ALL, [XID], [["Xid"]], BY_POLICY, None, id="drained already"),
        pytest.param(ALL, WELL, [[]] * 5, BY_POLICY, None, id="a fault of the node does not end by itself"),
        pytest.param(ALL, WELL, [[]], FULL, ("resumed", USER), id="space again"),
        pytest.param(ALL, WELL, [["disk space"]], FULL, None, id="space for the first time"),
        pytest.param(ALL, [DISK], [["disk space"]], FULL, None, id="still full"),
        pytest.param(ALL, [("Xid", OK)], [[]], FULL, None, id="not looked at"),
        pytest.param(ALL, [("disk space", NOT_POSSIBLE)], [[]], FULL, None, id="not read"),
        pytest.param(ALL, [("disk space", OK), XID], [[]], FULL, None, id="another fault"),
        pytest.param(ALL, [DISK, XID], [["disk space", "Xid"]], FULL, ("drained", NODE), id="a fault of the node as well"),
    ],
)  # fmt: skip
def test_one_host(
    policy: HealthPolicy,
    now: Sequence[tuple[str, str]],
    before: Sequence[Sequence[str] | None],
    record: Drain | None,
    event: tuple[str, str] | None,
) -> None:
    actions = done(policy, now, before, record)
    assert [(each.event, each.kind) for each in actions] == ([] if event is None else [event])


@pytest.mark.parametrize(
    ("size", "share", "others", "limit"),
    [
        (1, 100, {}, "may keep 0 of 1 hosts drained (share: 100 %), and 0 are"),
        (2, 20, {}, ""),
        (2, 20, {"n1": PERSON}, "it is the last host that is open to jobs"),
        (5, 39, {"n1": BY_POLICY}, "may keep 1 of 5 hosts drained (share: 39 %), and 1 are"),
        (5, 40, {"n1": BY_POLICY}, ""),
        (5, 40, {"n1": BY_POLICY, "n2": FULL}, "may keep 2 of 5 hosts drained (share: 40 %), and 2 are"),
        (5, 20, {"n1": PERSON, "n2": PERSON}, ""),
    ],
)
def test_the_limit(size: int, share: int, others: Mapping[str, Drain | None], limit: str) -> None:
    (action,) = done(HealthPolicy(share=share), [XID], [["Xid"]], None, others, size)
    assert (action.event, limit in action.limit) == ("refused" if limit else "drained", True)


def test_hosts_that_do_not_answer_count_as_drained() -> None:
    verdicts = (("n0", (HealthVerdict("Xid", FAULT, "Xid 79", ""),)),)
    (action,) = plan(
        ALL, verdicts, [EarlierCheck({"n0": frozenset(("Xid",))})], {"n0": None, "n1": None, "n2": None}, 4
    )
    assert (
        action.limit == "the policy may keep 1 of 4 hosts drained (share: 20 %), and 1 are, 1 of them without an answer"
    )


def test_hosts_of_one_check_count_and_those_that_are_opened_make_room() -> None:
    faulty, well = ((HealthVerdict("disk space", level, "/", ""),) for level in (FAULT, OK))
    hosts = (("n0", well), ("n1", faulty), ("n2", faulty))
    full = frozenset(("disk space",))
    earlier = [EarlierCheck({"n0": frozenset[str](), "n1": full, "n2": full})]
    actions = plan(ALL, hosts, earlier, {"n0": FULL, "n1": None, "n2": None, "n3": None}, 4)
    assert [(each.host, each.event) for each in actions] == [("n0", "resumed"), ("n1", "drained"), ("n2", "refused")]


def test_a_reason_is_one_line_that_a_record_can_hold() -> None:
    verdicts = (("n0", tuple(HealthVerdict("Xid", FAULT, text, "") for text in ("Xid 79\x1b[31m", "y" * 300))),)
    drains = dict.fromkeys(("n0", "n1"))
    (action,) = plan(HealthPolicy(after=1), verdicts, (), drains, 2)
    assert action.reason.startswith("policy: Xid: Xid 79?[31m, yyy")
    assert (len(action.reason), action.reason.isprintable()) == (200, True)


def test_a_reason_that_is_kept_has_no_age() -> None:
    text = "Xid 79 on GPU 2 13.7 s ago (RESTART_BM); Xid 48 on GPU 1 2.5 d ago (RESTART_APP)"
    hosts = (("n0", (HealthVerdict("Xid", FAULT, text, ""),)),)
    (action,) = plan(HealthPolicy(after=1), hosts, (), dict.fromkeys(("n0", "n1")), 2)
    assert action.reason == "policy: Xid: Xid 79 on GPU 2 (RESTART_BM); Xid 48 on GPU 1 (RESTART_APP)"


def test_checks_that_did_not_judge_the_same_do_not_count() -> None:
    """A quick check between two measurements says nothing of what these measure."""
    slow = HealthVerdict("CPU rate", FAULT, "1 of 10 GB/s", "")
    measured = EarlierCheck({"n0": frozenset(("CPU rate",))}, frozenset(("CPU rate", "Xid")))
    quick = EarlierCheck({"n0": frozenset[str]()}, frozenset(("Xid",)))
    fine = EarlierCheck({"n0": frozenset[str]()}, frozenset(("CPU rate", "Xid")))
    drains: dict[str, Drain | None] = {"n0": None, "n1": None}
    (action,) = plan(HealthPolicy(), (("n0", (slow,)),), (measured, quick), drains, 2)
    assert (action.event, action.checks) == (DRAINED, ("CPU rate",))
    assert plan(HealthPolicy(), (("n0", (slow,)),), (measured, fine), drains, 2) == ()


def test_a_link_drains_neither_of_its_hosts() -> None:
    slow = HealthVerdict("network link", FAULT, "gpu1 to gpu2", "")
    assert plan(HealthPolicy(after=1), (("n0", (slow,)), ("n1", (slow,))), (), {"n0": None, "n1": None}, 2) == ()
