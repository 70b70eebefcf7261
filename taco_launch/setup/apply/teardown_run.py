"""Take back what set-up made on hosts: look, plan, apply, and look whether it is gone."""

import os
from collections.abc import Callable, Mapping

from taco_launch.agent.store.folders import state_folder
from taco_launch.core.command import shell
from taco_launch.core.errors import TacoLaunchError
from taco_launch.core.facts import MADE
from taco_launch.core.model.host.facts import HostFacts
from taco_launch.core.model.host.hosts import Inventory
from taco_launch.hosts.fanout import Answer, Fanout
from taco_launch.hosts.gather_facts import gather
from taco_launch.setup.apply.host_ops import Changes, SetupEvent, SetupLog, apply
from taco_launch.setup.apply.setup_run import HostResult, SetupResult, not_converged, refused
from taco_launch.setup.apply.sources import fetch, unblocked
from taco_launch.setup.model.host_files import files_of
from taco_launch.setup.model.ops import Op, Problem
from taco_launch.setup.plan.host_plan import HostPlan
from taco_launch.setup.plan.stage_rules import RULES
from taco_launch.setup.plan.teardown import plan
from taco_launch.setup.stage_parts.docker_removal import ADDED

_SUBJECTS = ("docker", MADE)


class Teardown:
    """One call of teardown: its connections, and which hosts have failed."""

    def __init__(
        self,
        inventory: Inventory,
        fanout: Fanout,
        *,
        images: bool,
        report: Callable[[SetupEvent], None] = lambda _step: None,
    ) -> None:
        """Take back the cluster on the hosts of `fanout`, with `images` its image too."""
        self._inventory, self._cluster = inventory, inventory.cluster
        self._typed = shell(("taco-launch", "-i", inventory.source))
        self._image = inventory.container.image if images and inventory.container else None
        self._fanout = fanout
        self._plans: dict[str, HostPlan] = {}
        self._changes = Changes(report)
        self.failed: dict[str, TacoLaunchError] = {}

    def refresh(self, answered: Callable[[Answer[HostFacts]], None] = lambda _answer: None) -> tuple[HostPlan, ...]:
        """Ask every host for what is there, and plan to take it back."""
        self._plans = self._planned(self._fanout, answered)
        return tuple(self._plans.values())

    def apply(self) -> SetupResult:
        """Do what was planned on all hosts side by side; what then is still there is said."""
        log = SetupLog(state_folder(os.environ, os.geteuid()) / "teardown" / self._cluster, ())
        touched: set[str] = set()
        plans = self._plans
        while plans:
            self.failed |= {name: refused(made) for name, made in plans.items() if made.problems}
            work = {name: made.ops for name, made in plans.items() if made.ops and name not in self.failed}
            touched |= set(work)
            plans = self._planned(self._fanout.only(self._work(work, log)))
        for name, left in self._planned(
            self._fanout.only([name for name in touched if name not in self.failed])
        ).items():
            if not left.empty:
                self.failed[name] = not_converged(left, log)
        names = [transport.name for transport in self._fanout.transports]
        hosts = tuple(HostResult(name, self._changes.of(name), self.failed.get(name)) for name in names)
        return SetupResult(hosts, (), str(log.folder) if log.written else "")

    def _work(self, work: Mapping[str, tuple[Op, ...]], log: SetupLog) -> list[str]:
        """Do it; give the hosts that a set-up worked on until now, which have to be planned anew."""
        busy = self._fanout.only(work)
        done = busy.each(lambda transport: apply(transport, work[transport.name], log, self._changes.take, self._typed))
        self.failed |= {answer.host: answer.error for answer in done if answer.error is not None}
        return [answer.host for answer in done if answer.value is False]

    def _planned(
        self, fanout: Fanout, answered: Callable[[Answer[HostFacts]], None] = lambda _answer: None
    ) -> dict[str, HostPlan]:
        found: dict[str, HostFacts] = {}
        for answer in gather(fanout, _SUBJECTS, answered, sudo=True, cluster=self._cluster):
            if answer.error is not None:
                self.failed[answer.host] = answer.error
            elif answer.value is not None:
                found[answer.host] = answer.value
        added = self._added(found)
        plans = []
        for name, facts in found.items():
            items = tuple(plan(facts, self._cluster, self._image, added.get(name, ""), RULES))
            ops = tuple(item for item in items if isinstance(item, Op))
            if name not in self.failed:
                plans.append(HostPlan(name, ops, tuple(item for item in items if isinstance(item, Problem))))
        return {made.host: made for made in unblocked(plans, (), self._inventory, self._fanout, self.failed)}

    def _added(self, found: Mapping[str, HostFacts]) -> Mapping[str, str]:
        """Read what set-up put into daemon.json where it did."""
        with_it = [name for name, facts in found.items() if ADDED in (files_of(facts) or {})]
        answers = self._fanout.only(with_it).each(lambda transport: fetch(transport, (ADDED,)))
        for answer in answers:
            if answer.error is not None:
                self.failed[answer.host] = answer.error
        texts = [(answer.host, answer.value) for answer in answers if answer.value is not None]
        return {host: text.get(ADDED, b"").decode("utf-8", "replace") for host, text in texts}
