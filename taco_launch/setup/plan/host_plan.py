"""All stages of one host, one after another: each plans on the facts that those before it should leave."""

from collections.abc import Collection, Iterator, Mapping
from typing import Literal

from taco_launch.core.facts.gpus.blocking_faults import stops
from taco_launch.core.frozen import dataclass
from taco_launch.core.model.host.facts import HostFacts
from taco_launch.core.model.host.hosts import Host, Inventory
from taco_launch.setup.model.ops import Op, PlanContext, Problem, Stage, StageRules
from taco_launch.setup.stage_parts.space import full


@dataclass(frozen=True)
class HostPlan:
    """What is to be done on one host, in order, and what keeps it from being set up further."""

    host: str
    ops: tuple[Op, ...] = ()
    problems: tuple[Problem, ...] = ()

    @property
    def empty(self) -> bool:
        """Whether the host is right as it is."""
        return not self.ops and not self.problems

    def stops(self, what: Literal["host", "cluster"]) -> bool:
        """Return whether a problem keeps all from being begun, on the host or on the whole cluster."""
        return any(problem.stops == what for problem in self.problems)


def plan_host(
    host: Host,
    facts: HostFacts,
    cluster: PlanContext,
    rules: Mapping[Stage, StageRules],
    only: Collection[Stage] | None = None,
) -> HostPlan:
    """Plan the stages in `only` (None: all) for a host; a stage with a problem is the last one, and faulty drivers or full disks keep all away.

    Of later stages it is still said what keeps the whole host from being set up, so that all of that is known at once.

    Of a stage of containers after an operation that `reveals` only that is said: a guess would announce what is not done.
    """
    broken = (*faults(facts, cluster.inventory), *full(facts, cluster.inventory))
    if broken:
        return HostPlan(host.name, (), broken)
    ops: list[Op] = []
    problems: list[Problem] = []
    for stage, of_stage in rules.items():
        if only is not None and stage not in only:
            continue
        if not problems and of_stage.of_container and any(op.reveals for op in ops):
            ops.append(Op(stage, "unknown until Docker runs", ""))
            continue
        found = tuple(of_stage.plan(host, facts, cluster))
        wrong = [item for item in found if isinstance(item, Problem)]
        if problems:
            told = {problem.message for problem in problems}
            problems += [each for each in wrong if each.stops != "stage" and each.message not in told]
            continue
        problems = wrong
        for item in found:
            if isinstance(item, Op):
                ops.append(item)
                facts = facts if problems else item.expect(facts)
    begun = not any(problem.stops == "host" for problem in problems)
    return HostPlan(host.name, tuple(ops) if begun else (), tuple(problems))


def faults(facts: HostFacts, inventory: Inventory) -> Iterator[Problem]:
    """Yield what `facts` calls a fault of drivers, as far as it is in the way of what the inventory asks for."""
    for stop in stops(facts, inventory.network.rdma, inventory.network.gdr):
        yield Problem("hardware", stop.text, stop.hint)
