"""Faults in spite of which a person opened a host: which of them still hold."""

import pytest

from taco_launch.core.facts.reports.health.drain_plan import EarlierCheck, plan
from taco_launch.core.facts.reports.health.overrides import override_of, remaining, without_overridden
from taco_launch.core.facts.reports.health.verdict import FAULT, NOT_POSSIBLE, OK, WARNING, HealthVerdict
from taco_launch.core.model.host.hosts import HealthPolicy


def xid(text: str = "Xid 79 on GPU 3 2 h ago (RESTART_BM): off the bus", level: str = FAULT) -> HealthVerdict:
    return HealthVerdict("Xid", level, text, "")


FULL = HealthVerdict("disk space", FAULT, "/tmp has 0 B free of 1.5 TiB", "")
OPENED = override_of((xid(), FULL, xid("3 C", WARNING)), "ann@ctl", 1.0)


@pytest.mark.parametrize(
    ("now", "holds"),
    [
        ((xid(), FULL), ["Xid", "disk space"]),
        ((xid("Xid 79 on GPU 3 2.5 d ago (RESTART_BM): off the bus"),), ["Xid", "disk space"]),
        ((HealthVerdict("disk space", FAULT, "/tmp has 4.0 KiB free of 1.5 TiB", ""),), ["Xid", "disk space"]),
        ((HealthVerdict("disk space", FAULT, "/home has 0 B free of 1.5 TiB", ""),), ["Xid"]),
        ((xid("Xid 79 on GPU 4 2 h ago (RESTART_BM): off the bus"),), ["disk space"]),
        ((xid(), xid("Xid 48 on GPU 3 1 s ago (WORKFLOW_XID_48): again")), ["disk space"]),
        ((xid("none since the boot", OK),), ["disk space"]),
        ((xid("none but that", WARNING),), ["disk space"]),
        ((xid("the kernel log cannot be read", NOT_POSSIBLE),), ["Xid", "disk space"]),
        ((), ["Xid", "disk space"]),
    ],
    ids=["same", "later", "sizes", "other-disk", "other-gpu", "one-more", "ok", "warning", "unread", "not-judged"],
)
def test_what_holds_after_a_check(now: tuple[HealthVerdict, ...], holds: list[str]) -> None:
    assert OPENED is not None
    found = remaining(OPENED, now)
    assert [] if found is None else [name for name, _words in found.faults] == holds
    still = [each for each in without_overridden(found, now) if each.level == FAULT]
    assert still == [each for each in now if each.level == FAULT and each.name not in holds]


def test_a_host_without_a_fault_is_not_remembered() -> None:
    assert override_of((xid(level=OK),), "ann@ctl", 1.0) is None


def test_the_policy_does_not_drain_for_what_a_person_overrode() -> None:
    def events(*now: HealthVerdict) -> list[str]:
        earlier = (EarlierCheck({"n0": frozenset(each.name for each in now)}),)
        drains = dict.fromkeys(("n0", "n1", "n2"))
        assert OPENED is not None
        found = plan(HealthPolicy(), (("n0", now),), earlier, drains, 3, {"n0": OPENED})
        return [f"{each.event} {each.reason}" for each in found]

    assert events(xid(), FULL) == []
    assert events(xid("Xid 79 on GPU 5 1 s ago: off the bus")) == ["drained policy: Xid: Xid 79 on GPU 5: off the bus"]
