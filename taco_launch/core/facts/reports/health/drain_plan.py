"""Decides which hosts `check --drain` drains and opens again: verdicts, earlier checks, drains and a policy become actions."""

from types import MappingProxyType
from typing import Dict, FrozenSet, List, Mapping, NamedTuple, Optional, Sequence, Tuple

from taco_launch.core.facts.reports.health.judge import HostVerdicts
from taco_launch.core.facts.reports.health.overrides import without_overridden
from taco_launch.core.facts.reports.health.verdict import FAULT, NOT_POSSIBLE, HealthVerdict, without_age
from taco_launch.core.frozen import dataclass
from taco_launch.core.model.host.hosts import HealthPolicy
from taco_launch.core.model.slots import NODE, USER, Drain, Override

# In the policy: every check.
ALL_FAULTS = "faults"
# Events of a plan.
DRAINED, RESUMED, REFUSED = "drained", "resumed", "refused"
# What users cause and remove; every other fault is one of the node.
_OF_USERS = frozenset(("disk space",))
_MOST_REASON = 200

# The fault of a link may be at either end.
_OF_TWO_HOSTS = frozenset(("network link",))


class EarlierCheck(NamedTuple):
    """A check before: the names of the checks that found a fault, by host, and of all that were judged, empty: all."""

    faults: Mapping[str, FrozenSet[str]]
    judged: FrozenSet[str] = frozenset()


@dataclass(frozen=True)
class DrainAction:
    """What is to be done about a host, and why; `kind` is that of its drain, `checks` are those that found a fault.

    `limit` is why a host is not drained that has to be; it is empty for other events.
    """

    event: str
    host: str
    reason: str
    kind: str
    checks: Tuple[str, ...]
    limit: str = ""


def plan(
    policy: HealthPolicy,
    hosts: Sequence[HostVerdicts],
    earlier: Sequence[EarlierCheck],
    drains: Mapping[str, Optional[Drain]],
    size: int,
    overrides: Mapping[str, Override] = MappingProxyType({}),
) -> Tuple[DrainAction, ...]:
    """Return what to do about hosts that were checked now, in their order.

    `earlier` are the checks before, the oldest first; `drains` the records of hosts, without those that do not answer;
    `size` is the number of all hosts of the cluster; `overrides` are the faults in spite of which hosts were opened.
    """
    actions: List[DrainAction] = []
    records = dict(drains)
    for host, verdicts in hosts:
        if host not in records:  # it answered the check, and no more since
            continue
        record = records[host]
        faults = _faults(policy, without_overridden(overrides.get(host), verdicts))
        before = [each for each in earlier if host in each.faults]
        action = _action(policy, host, verdicts, faults, before, record)
        if action is not None and action.event == DRAINED and record is None:
            limit = _limit(policy, records, size)
            action = DrainAction(REFUSED, host, action.reason, action.kind, action.checks, limit) if limit else action
        if action is None:
            continue
        actions.append(action)
        if action.event != REFUSED:
            records[host] = None if action.event == RESUMED else record_of(action, "", 0.0)
    return tuple(actions)


def record_of(action: DrainAction, by: str, since: float) -> Drain:
    """Return the record of a drain that is to be made; `since` is in seconds since the epoch."""
    return Drain(by, since, action.reason, action.kind, policy=True, checks=action.checks)


def drains_for(policy: HealthPolicy, verdicts: Sequence[HealthVerdict]) -> bool:
    """Return whether a host has a fault for which the policy drains it."""
    return bool(_faults(policy, verdicts))


def _faults(policy: HealthPolicy, verdicts: Sequence[HealthVerdict]) -> Dict[str, List[str]]:
    """Return the texts of the faults that drain a host, by the names of their checks."""
    faults: Dict[str, List[str]] = {}
    for each in verdicts:
        named = each.name in policy.drain or ALL_FAULTS in policy.drain
        if each.level == FAULT and named and each.name not in _OF_TWO_HOSTS:
            faults.setdefault(each.name, []).append(without_age(each.text))
    return faults


def _action(
    policy: HealthPolicy,
    host: str,
    verdicts: Sequence[HealthVerdict],
    faults: Mapping[str, Sequence[str]],
    before: Sequence[EarlierCheck],
    record: Optional[Drain],
) -> Optional[DrainAction]:
    """Return what a host requires, whatever the limit; `before` are its own earlier checks."""
    if record is not None and (not record.policy or record.kind != USER):  # a person ends it
        return None
    lasting = {name: texts for name, texts in faults.items() if _lasts(policy, host, name, before)}
    kind = USER if lasting.keys() <= _OF_USERS else NODE
    if lasting and (record is None or kind != record.kind):
        return DrainAction(DRAINED, host, _reason(lasting), kind, tuple(lasting))
    recent = before[max(len(before) - policy.after + 1, 0) :]
    if record is None or faults or any(each.faults[host] & set(record.checks) for each in recent):
        return None
    wanted = set(record.checks)
    seen = {each.name for each in verdicts if each.name in wanted}
    unread = {each.name for each in verdicts if each.name in wanted and each.level in (FAULT, NOT_POSSIBLE)}
    if seen < wanted or unread:  # what cannot be read may still be there
        return None
    return DrainAction(RESUMED, host, f"no fault any more: {', '.join(record.checks)}", USER, record.checks)


def _lasts(policy: HealthPolicy, host: str, name: str, before: Sequence[EarlierCheck]) -> bool:
    """Return whether the checks before that judged the same found the same fault, as often as the policy says."""
    same = [each for each in before if not each.judged or name in each.judged]
    recent = same[max(len(same) - policy.after + 1, 0) :]
    return len(recent) == policy.after - 1 and all(name in each.faults[host] for each in recent)


def _limit(policy: HealthPolicy, records: Mapping[str, Optional[Drain]], size: int) -> str:
    """Return why no further host may be drained, "" where one may."""
    most = max(1, size * policy.share // 100) if size > 1 else 0
    silent = size - len(records)
    held = silent + sum(each is not None and each.policy for each in records.values())
    if held >= most:
        more = f", {silent} of them without an answer" if silent else ""
        return f"the policy may keep {most} of {size} hosts drained (share: {policy.share} %), and {held} are{more}"
    if sum(each is None for each in records.values()) < 2:
        return "it is the last host that is open to jobs"
    return ""


def _reason(faults: Mapping[str, Sequence[str]]) -> str:
    """Return the faults as one line that a record can hold."""
    text = "policy: " + "; ".join(f"{name}: {', '.join(texts)}" for name, texts in faults.items())
    text = "".join(each if each.isprintable() else "?" for each in text)
    return text if len(text) <= _MOST_REASON else f"{text[: _MOST_REASON - 3]}..."
