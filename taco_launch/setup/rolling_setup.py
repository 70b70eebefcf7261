"""Set hosts up in groups, while jobs run on the others: each is drained, changed, checked, and opened again."""

from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any

from taco_launch.core.errors import HostError, TacoLaunchError
from taco_launch.core.facts.reports.health.verdict import FAULT
from taco_launch.core.model.host.hosts import Inventory
from taco_launch.core.model.slots import Drain
from taco_launch.hosts import check, drains
from taco_launch.hosts.fanout import Answer, Fanout
from taco_launch.hosts.inventory.ranges import fold
from taco_launch.setup.apply.rolling import REASON, Rolled, Steps, grouped, roll
from taco_launch.setup.apply.setup_run import Setup, refused
from taco_launch.setup.apply.wait_for_jobs import wait_for_jobs
from taco_launch.setup.plan.host_plan import HostPlan


class RollingSetup:
    """A set-up of hosts in groups. `others` are the drains of people, which stay: their hosts are changed as well."""

    def __init__(
        self,
        work: Setup,
        inventory: Inventory,
        fanout: Fanout,
        say: Callable[[str], None],
        changing: Callable[[Sequence[str], Sequence[HostPlan]], AbstractContextManager[None]],
    ) -> None:
        """Change hosts by `work`, which has asked them for their facts; `say` is given what happens.

        `changing` is entered while a group's hosts are changed by these plans.
        """
        self._work, self._inventory, self._fanout, self._say, self._changing = work, inventory, fanout, say, changing
        self._by, self._patience = "", 0.0
        self.others: dict[str, Drain] = {}

    def groups(self, plans: Sequence[HostPlan], size: int) -> tuple[tuple[str, ...], ...]:
        """Return the groups of `size` hosts in their order: hosts with something to do, and those that an earlier call has left drained.

        Raises:
            TacoLaunchError: a host does not answer.
        """
        chosen = [host.name for host in self._inventory.hosts if host.name in {plan.host for plan in plans}]
        records, errors = self._records(chosen)
        for error in errors.values():
            raise error
        work = {plan.host for plan in plans if not plan.empty}
        work |= {host for host, record in records.items() if _is_ours(record)}
        return grouped([name for name in chosen if name in work], self._inventory.head, size)

    def run(self, groups: Sequence[tuple[str, ...]], by: str, patience: float) -> Rolled:
        """Change the groups, drained as by the user `by`; the jobs of each are waited for, `patience` seconds at most."""
        self._by, self._patience = by, patience
        return roll(groups, Steps(self._drain, self._change, self._check, self._open))

    def _records(self, hosts: Collection[str]) -> tuple[dict[str, Drain | None], dict[str, TacoLaunchError]]:
        answers = drains.read(self._fanout.only(hosts))
        records = {answer.host: answer.value for answer in answers if answer.error is None}
        now = {**self.others, **records}
        self.others = {host: record for host, record in now.items() if record and not _is_ours(record)}
        return records, _errors(answers)

    def _drain(self, hosts: tuple[str, ...]) -> Mapping[str, TacoLaunchError]:
        records, errors = self._records(hosts)
        new = [host for host, record in records.items() if record is None]
        answers = drains.drain(self._fanout.only(new), drains.record(REASON, self._by), lambda: None)
        if new:
            self._say(f"{fold(new)}: drained")
        return errors | _errors(answers)

    def _change(self, hosts: tuple[str, ...]) -> Mapping[str, TacoLaunchError]:
        work = self._work
        work.only(hosts)
        plans = wait_for_jobs(work.replan(), work.plan, work.replan, self._patience, self._say)
        stuck = {plan.host: refused(plan) for plan in plans if plan.problems}
        work.only([host for host in hosts if host not in stuck])
        with self._changing(hosts, plans):
            done = work.apply()
        errors = {host: work.failed[host] for host in hosts if host in work.failed}
        for flaw in done.found:
            errors |= {host: HostError(str(flaw), flaw.hint) for host in (*flaw.hosts, *flaw.at) if host in hosts}
        return {**errors, **stuck}

    def _check(self, hosts: tuple[str, ...]) -> Mapping[str, TacoLaunchError]:
        """Check hosts that are to be opened; the others are checked when a person resumes them."""
        opened = [host for host in hosts if host not in self.others]
        verdicts, answers = check.look(self._fanout.only(opened), self._inventory, lambda _answer: None, sudo=True)
        errors = _errors(answers)
        for host, found in verdicts:
            faults = [each for each in found if each.level == FAULT]
            if faults:
                told = "; ".join(f"{each.name}: {each.text}" for each in faults)
                errors[host] = HostError(f"{host}: fault: {told}", faults[0].hint or None)
        return errors

    def _open(self, hosts: tuple[str, ...]) -> Mapping[str, TacoLaunchError]:
        """Open hosts, except those that somebody has drained, perhaps meanwhile."""
        records, errors = self._records(hosts)
        ours = [host for host, record in records.items() if _is_ours(record)]
        errors |= _errors(drains.resume(self._fanout.only(ours), lambda: None))
        if opened := [host for host in ours if host not in errors]:
            self._say(f"{fold(opened)}: changed, checked, and open to jobs again")
        return errors


def _is_ours(record: Drain | None) -> bool:
    return record is not None and record.reason == REASON


def _errors(answers: Sequence[Answer[Any]]) -> dict[str, TacoLaunchError]:
    return {answer.host: answer.error for answer in answers if answer.error is not None}
