"""Drain hosts with lasting faults, and open them again, as the inventory's `health` says; post what was done."""

import socket
import time
from collections.abc import Mapping, Sequence
from dataclasses import field

from taco_launch.agent.messages.deliver import deliver
from taco_launch.core.command import BARE, as_typed
from taco_launch.core.errors import TacoLaunchError, UsageError
from taco_launch.core.facts.reports.health.drain_plan import (
    DRAINED,
    REFUSED,
    RESUMED,
    DrainAction,
    EarlierCheck,
    plan,
    record_of,
)
from taco_launch.core.facts.reports.health.judge import HostVerdicts
from taco_launch.core.facts.reports.health.overrides import remaining
from taco_launch.core.facts.reports.health.verdict import HealthVerdict
from taco_launch.core.frozen import dataclass
from taco_launch.core.model.codec import to_json
from taco_launch.core.model.host.hosts import HealthPolicy, Inventory
from taco_launch.core.model.slots import NODE, Override
from taco_launch.hosts import drains
from taco_launch.hosts.fanout import Fanout
from taco_launch.hosts.inventory.load import typed_anywhere


@dataclass(frozen=True)
class PolicyRun:
    """What the policy did, and on which hosts it failed; `undelivered` is why its message was not delivered.

    `overrides` are the faults for which it does not drain hosts, since a person opened these in spite of them.
    """

    actions: tuple[DrainAction, ...]
    errors: Mapping[str, TacoLaunchError]
    undelivered: str = ""
    overrides: Mapping[str, Override] = field(default_factory=dict)


def policy_of(inventory: Inventory) -> HealthPolicy:
    """Return the policy of an inventory whose hosts can be drained.

    Raises:
        UsageError: it has none, or its hosts cannot be drained.
    """
    if inventory.health is None:
        raise UsageError(
            f"--drain: {inventory.source} does not say which faults drain a host",
            hint="add, for example: health: {drain: [Xid, ECC, lost GPUs, disk space], after: 2, share: 20}; drain: [faults] means all checks",
        )
    drains.check(inventory)
    return inventory.health


def apply(
    fanout: Fanout, inventory: Inventory, hosts: Sequence[HostVerdicts], earlier: Sequence[EarlierCheck], by: str
) -> PolicyRun:
    """Apply the policy to `hosts`, which answered a check of all hosts; `fanout` has the same, `by` is the user.

    A host that fails has an error, and no action.
    """
    policy = policy_of(inventory)
    answers, forced = drains.read(fanout), drains.overrides(fanout)
    errors = {answer.host: answer.error for answer in answers if answer.error is not None}
    errors |= {answer.host: answer.error for answer in forced if answer.error is not None}
    records = {answer.host: answer.value for answer in answers if answer.host not in errors}
    overrides = _remaining_overrides(fanout, {each.host: each.value for each in forced if each.value}, dict(hosts))
    actions = plan(policy, hosts, earlier, records, len(inventory.hosts), overrides)
    who, now = f"{by}@{socket.gethostname()}", float(int(time.time()))
    new = {each.host: record_of(each, who, now) for each in actions if each.event == DRAINED}
    opened = [each.host for each in actions if each.event == RESUMED]
    done = (
        *drains.write(fanout.only(new), new, lambda: None),
        *drains.resume(fanout.only(opened), lambda: None),
    )
    errors |= {answer.host: answer.error for answer in done if answer.error is not None}
    actions = tuple(each for each in actions if each.host not in errors)
    undelivered = ""
    if policy.notify is not None and actions:
        undelivered = deliver(policy.notify, _message(inventory, actions))
    return PolicyRun(actions, errors, undelivered, overrides)


def _remaining_overrides(
    fanout: Fanout, before: Mapping[str, Override], verdicts: Mapping[str, Sequence[HealthVerdict]]
) -> dict[str, Override]:
    """Return the overrides that still hold, and note on the hosts which of them do not any more."""
    now = {host: remaining(each, verdicts[host]) if host in verdicts else each for host, each in before.items()}
    changed = [host for host in before if now[host] != before[host]]
    if changed:
        fanout.only(changed).each(lambda transport: drains.keep_override(transport, now[transport.name]))
    return {host: each for host, each in now.items() if each is not None}


def describe(action: DrainAction) -> str:
    """Return an event as a line: `gpu2: drained until host resume: policy: Xid: ...`."""
    if action.event == RESUMED:
        return f"{action.host}: open to jobs again: {action.reason}"
    if action.event == REFUSED:
        more = f"taco-launch host list shows the drained hosts; to drain this one as well: taco-launch host drain {action.host} --reason TEXT"
        return f"{action.host}: not drained, {action.limit}: {action.reason}\n  next: {more}"
    end = "host resume" if action.kind == NODE else "its cause is gone"
    return f"{action.host}: drained until {end}: {action.reason}"


def describe_override(host: str, override: Override) -> str:
    """Return as a line for which faults a host is not drained."""
    names = ", ".join(name for name, _words in override.faults)
    return f"{host}: not drained for {names}: {override.by} opened it with host resume --force"


def _message(inventory: Inventory, actions: Sequence[DrainAction]) -> dict[str, object]:
    """Return what is posted: the keys of a job's message, and the events one by one."""
    typed = typed_anywhere(inventory) or BARE
    return {
        "name": inventory.cluster,
        "event": "health",
        "reason": as_typed("\n".join(map(describe, actions)), typed),
        "hosts": [each.host for each in actions],
        "events": [to_json(each) for each in actions],
        "next": [f"{typed} host list"],
    }
