"""Set hosts up in groups, while jobs run on the others: each is drained, changed, checked, and opened again."""

from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any

from taco_launch.core.errors import HostError, TacoLaunchError
from taco_launch.core.facts.reports.health.verdict import FAULT
from taco_launch.core.frozen import dataclass
from taco_launch.core.model.host.hosts import Inventory
from taco_launch.core.model.slots import Drain
from taco_launch.hosts import check, drains
from taco_launch.hosts.fanout import Answer, Fanout
from taco_launch.hosts.inventory.ranges import fold
from taco_launch.setup.apply.rolling import REASON, Rolled, Steps, grouped, roll
from taco_launch.setup.apply.setup_run import HostResult, Setup, SetupResult, refused
from taco_launch.setup.apply.wait_for_jobs import wait_for_jobs
from taco_launch.setup.plan.host_plan import HostPlan


@dataclass(frozen=True)
class RollingOptions:
    """How a rolling set-up works: `size` hosts at a time, drained as by the user `by`, and waiting `patience` seconds for jobs.

    `changing` is entered while a group's hosts are changed by these plans.
    """

    size: int
    by: str
    patience: float
    changing: Callable[[Sequence[str], Sequence[HostPlan]], AbstractContextManager[None]]


class RollingSetup:
    """A set-up of hosts in groups. `kept` are the drains of other people, which stay: their hosts are changed as well."""

    def __init__(
        self, work: Setup, inventory: Inventory, fanout: Fanout, options: RollingOptions, say: Callable[[str], None]
    ) -> None:
        """Change hosts by `work`, which has asked them for their facts; `say` is given what happens."""
        self._work, self._inventory, self._fanout, self._options, self._say = work, inventory, fanout, options, say
        self._results: list[HostResult] = []
        self.kept: dict[str, Drain] = {}

    def groups(self, plans: Sequence[HostPlan]) -> tuple[tuple[str, ...], ...]:
        """Return the groups in their order: hosts with something to do, and those that an earlier call has left drained.

        Raises:
            TacoLaunchError: a host does not answer.
        """
        chosen = [host.name for host in self._inventory.hosts if host.name in {plan.host for plan in plans}]
        records, errors = self._records(chosen)
        for error in errors.values():
            raise error
        work = {plan.host for plan in plans if not plan.empty}
        work |= {host for host, record in records.items() if _is_ours(record)}
        return grouped([name for name in chosen if name in work], self._inventory.head, self._options.size)

    def run(self, groups: Sequence[tuple[str, ...]]) -> tuple[Rolled, SetupResult]:
        """Change the groups; return how it ended, and the results of the hosts that were changed."""
        rolled = roll(groups, Steps(self._drain, self._change, self._check, self._open))
        return rolled, SetupResult(tuple(self._results), (), "")

    def _records(self, hosts: Collection[str]) -> tuple[dict[str, Drain | None], dict[str, TacoLaunchError]]:
        answers = drains.read(self._fanout.only(hosts))
        return {answer.host: answer.value for answer in answers if answer.error is None}, _errors(answers)

    def _drain(self, hosts: tuple[str, ...]) -> Mapping[str, TacoLaunchError]:
        records, errors = self._records(hosts)
        self.kept |= {host: record for host, record in records.items() if record and not _is_ours(record)}
        new = [host for host, record in records.items() if record is None]
        answers = drains.drain(self._fanout.only(new), drains.record(REASON, self._options.by), lambda: None)
        if new:
            self._say(f"{fold(new)}: drained")
        return errors | _errors(answers)

    def _change(self, hosts: tuple[str, ...]) -> Mapping[str, TacoLaunchError]:
        work = self._work
        work.only(hosts)
        plans = wait_for_jobs(work.replan(), work.plan, work.replan, self._options.patience, self._say)
        stuck = {plan.host: refused(plan) for plan in plans if plan.problems}
        work.only([host for host in hosts if host not in stuck])
        with self._options.changing(hosts, plans):
            done = work.apply()
        self._results += done.hosts
        errors = {host: work.failed[host] for host in hosts if host in work.failed}
        for flaw in done.found:
            errors |= {host: HostError(str(flaw), flaw.hint) for host in flaw.hosts if host in hosts}
        return {**errors, **stuck}

    def _check(self, hosts: tuple[str, ...]) -> Mapping[str, TacoLaunchError]:
        """Check hosts that are to be opened; who has drained another one has the last word on it."""
        opened = [host for host in hosts if host not in self.kept]
        verdicts, answers = check.look(self._fanout.only(opened), self._inventory, lambda _answer: None, sudo=True)
        errors = _errors(answers)
        for host, found in verdicts:
            faults = [each for each in found if each.level == FAULT]
            if faults:
                told = "; ".join(f"{each.name}: {each.text}" for each in faults)
                errors[host] = HostError(
                    f"{host}: fault: {told}", next((each.hint for each in faults if each.hint), None)
                )
        return errors

    def _open(self, hosts: tuple[str, ...]) -> Mapping[str, TacoLaunchError]:
        """Open hosts, except those that somebody has drained, perhaps meanwhile."""
        records, errors = self._records(hosts)
        self.kept |= {host: record for host, record in records.items() if record and not _is_ours(record)}
        ours = [host for host, record in records.items() if _is_ours(record)]
        errors |= _errors(drains.resume(self._fanout.only(ours), lambda: None))
        if opened := [host for host in ours if host not in errors]:
            self._say(f"{fold(opened)}: changed, checked, and open to jobs again")
        return errors


def _is_ours(record: Drain | None) -> bool:
    return record is not None and record.reason == REASON


def _errors(answers: Sequence[Answer[Any]]) -> dict[str, TacoLaunchError]:
    return {answer.host: answer.error for answer in answers if answer.error is not None}
