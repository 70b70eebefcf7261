"""Set a cluster up: ask the hosts, plan, wait for jobs that are in the way, apply, and judge what the hosts are then."""

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from functools import cached_property

from taco_launch.core.command import shell
from taco_launch.core.errors import HostError, TacoLaunchError, UsageError
from taco_launch.core.frozen import dataclass
from taco_launch.core.model.host.facts import HostFacts
from taco_launch.core.model.host.hosts import Host, Inventory
from taco_launch.hosts.fanout import Answer, Fanout
from taco_launch.hosts.inventory.ranges import fold
from taco_launch.hosts.inventory.select import named
from taco_launch.setup.apply.findings import Findings, judge_hosts, with_firewalls, with_former
from taco_launch.setup.apply.setup_run import HostResult, Setup, SetupRequest, SetupResult
from taco_launch.setup.apply.wait_for_jobs import wait_for_jobs
from taco_launch.setup.job_containers import upkeep
from taco_launch.setup.job_containers.prepare import SetupListener
from taco_launch.setup.model.ops import ProofFailure
from taco_launch.setup.plan.host_plan import HostPlan
from taco_launch.setup.rolling_setup import RollingSetup
from taco_launch.setup.stage_parts import firewall


def choose_hosts(
    inventory: Inventory, hosts: str | None, exclude: Sequence[str]
) -> tuple[tuple[Host, ...], tuple[Host, ...]]:
    """Return the hosts that are set up, and those that are asked for their facts: each host has to know of the others.

    Raises:
        SpecError: a word names no host of the inventory.
        UsageError: no host remains.
    """
    without = named(inventory, exclude) if exclude else ()
    contacted = tuple(host for host in inventory.hosts if host not in without)
    chosen = tuple(host for host in named(inventory, () if hosts is None else (hosts,)) if host in contacted)
    if not chosen:
        raise UsageError(f"--exclude {','.join(exclude)} leaves no host", hint="exclude fewer hosts")
    return chosen, contacted


@dataclass(frozen=True)
class SetupPlan:
    """What a set-up would do on each host, what was found besides, and which hosts failed, with their errors.

    `flaws` are containers that lack GPUs of their host, where that was proved; `moved` says that the image's tag is another
    image by now, "" where it is not.
    """

    plans: tuple[HostPlan, ...]
    findings: Findings
    flaws: tuple[ProofFailure, ...]
    failed: dict[str, TacoLaunchError]
    moved: str

    @cached_property
    def has_work(self) -> bool:
        """Whether an operation is to be done on a host."""
        return any(plan.ops for plan in self.plans)

    @cached_property
    def is_blocked(self) -> bool:
        """Whether something is in the way that keeps the containers of all hosts as they are, such as a job."""
        return any(plan.stops("cluster") for plan in self.plans)

    @cached_property
    def has_drifted(self) -> bool:
        """Whether something is to be done, hardware has a fault, or hosts differ in software."""
        return bool(any(not plan.empty for plan in self.plans) or self.findings.faults or self.findings.unlike)

    def without_jobs(self) -> "SetupPlan":
        """Return it without what passes by itself: a rolling set-up waits for the jobs of each host in its turn."""
        plans = (
            replace(each, problems=tuple(problem for problem in each.problems if not problem.passes))
            for each in self.plans
        )
        return replace(self, plans=tuple(plans))


@dataclass(frozen=True)
class SetupEnd:
    """How a set-up ended: each host, what was found besides, and errors of containers that jobs have of their own."""

    result: SetupResult
    findings: Findings
    errors: tuple[TacoLaunchError, ...]

    @property
    def is_ready(self) -> bool:
        """Whether every host is as the inventory says, and nothing was found that set-up cannot fix."""
        wrong = self.errors or self.result.found or self.findings.faults
        return not wrong and all(host.error is None for host in self.result.hosts)


class ClusterSetup:
    """A set-up of hosts of an inventory."""

    def __init__(
        self,
        inventory: Inventory,
        chosen: Sequence[Host],
        fanout: Fanout,
        request: SetupRequest,
        listener: SetupListener,
    ) -> None:
        """Set up `chosen`; `fanout` reaches every host that is asked for its facts. See `choose_hosts`.

        Raises:
            UsageError: the inventory has no container, or a file that it names cannot be read.
        """
        self.chosen, self.contacted = tuple(chosen), fanout.transports
        self._inventory, self._listener, self._fanout = inventory, listener, fanout
        self._work = Setup(inventory, chosen, fanout, request, listener.step, listener.proof)
        self._variants = upkeep.Variants(inventory, chosen, fanout, request.stages, listener)

    def refresh(self, answered: Callable[[Answer[HostFacts]], None] = lambda _answer: None) -> None:
        """Ask every host for its facts. See `Setup.refresh`."""
        self._work.refresh(answered)

    def plan(self, *, patience: float = 0, prove: bool = False) -> SetupPlan:
        """Plan, after waiting for jobs that are in the way, `patience` seconds at most; `prove` the GPUs of containers, too.

        Raises:
            HostError: the head does not list the containers of its jobs.
        """
        work, say = self._work, self._listener.say
        plans = wait_for_jobs(work.plan(), work.plan, work.replan, patience, say)
        if work.moved:
            say(work.moved)
        flaws = work.proved(plans) if prove else ()
        plans = (*plans, *self._variants.look(plans))
        errors = {plan.host: "\n".join(problem.message for problem in plan.problems) for plan in plans}
        findings = judge_hosts(work.facts, self._inventory, errors)
        opened = {plan.host for plan in plans if any(op.name == firewall.OPEN for op in plan.ops)}
        findings = with_firewalls(findings, work.facts, self._inventory, opened)
        findings = with_former(findings, work.former)
        return SetupPlan(plans, findings, flaws, work.failed, work.moved)

    @property
    def chosen_failed(self) -> bool:
        """Whether a host that is to be set up has failed."""
        return self._work.chosen_failed

    def diffs(self, plans: Sequence[HostPlan]) -> tuple[tuple[str, tuple[str, ...]], ...]:
        """Return what these plans would change in files: (host, unified diffs)."""
        return self._work.diffs(plans)

    def apply(self) -> SetupEnd:
        """Do what was planned, stage by stage on all hosts; a host that fails keeps no other from being set up."""
        result = self._work.apply()
        errors = self._variants.apply(result)
        known_errors = {host: error.message for host, error in self._work.failed.items()}
        return SetupEnd(result, judge_hosts(self._work.facts, self._inventory, known_errors), errors)

    def rolling(
        self, changing: Callable[[Sequence[str], Sequence[HostPlan]], AbstractContextManager[None]]
    ) -> RollingSetup:
        """Return what changes the hosts in groups, instead of `apply`; `finish` comes after it."""
        return RollingSetup(self._work, self._inventory, self._fanout, self._listener.say, changing)

    def finish(self) -> tuple[TacoLaunchError, ...]:
        """Look after what no group could do, once all are done: jobs' own containers; return what is wrong or left."""
        self._work.only([host.name for host in self.chosen])
        ready = SetupResult(tuple(HostResult(host.name, 0) for host in self.chosen), (), "")
        errors = self._variants.apply(ready)
        plans = self._work.plan()
        flaws = tuple(HostError(str(flaw), flaw.hint) for flaw in self._work.proved(plans, is_applied=True))
        left = [plan.host for plan in plans if plan.ops]
        if left:
            typed = shell(("taco-launch", "-i", self._inventory.source, "setup", "-H", fold(left)))
            what = ", ".join(dict.fromkeys(op.name for plan in plans for op in plan.ops))
            errors += (
                HostError(f"{fold(left)}: later changes on other hosts require these steps here: {what}", typed),
            )
        return errors + flaws
