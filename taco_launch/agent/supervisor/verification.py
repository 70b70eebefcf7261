"""Has guards look at their ranks, and reports whether these run as planned.

Nothing of this is loaded, and no guard is asked, before the ranks have run for some time.
"""

import time
from typing import TYPE_CHECKING, Callable, List, Optional, Tuple

from taco_launch.agent.store import records
from taco_launch.agent.store.folders import JobFolder
from taco_launch.agent.supervisor.ranks import Ranks
from taco_launch.core.errors import JobEnd
from taco_launch.core.lifecycle import state
from taco_launch.core.model.codec import to_json
from taco_launch.core.model.job_facts import JobFacts
from taco_launch.core.model.jobs import JobSpec, JobState, VerifiedRun
from taco_launch.core.model.plans import LaunchPlan, Placement
from taco_launch.core.protocol.message import Message
from taco_launch.core.protocol.stall_messages import LookAtRanks

if TYPE_CHECKING:
    from taco_launch.agent.gang.run_comparison import RunComparison
    from taco_launch.core.model.run.verified import Verified

# Seconds after all ranks have started: libraries that meet late, or send their first bytes late, have done so by then.
_AT_SECONDS = (60.0, 300.0, 1800.0)
# How long guards have to answer.
_ANSWER_SECONDS = 10.0


class Verification:
    """The looks at an attempt, and what was found."""

    def __init__(
        self, spec: JobSpec, folder: JobFolder, ranks: Ranks, events: records.Events, order: Callable[[Message], object]
    ) -> None:
        """Know of no plan yet; `folder` is that of the attempt, and `order` sends all guards an order."""
        self._spec, self._folder = spec, folder
        self._ranks, self._events, self._order = ranks, events, order
        self._plan: Optional[Tuple[Placement, LaunchPlan, JobFacts]] = None
        self._due: List[float] = list(_AT_SECONDS)
        self._begun: Optional[float] = None
        self._asked: Optional[float] = None
        self._comparison: Optional[RunComparison] = None
        self._told: Optional[VerifiedRun] = None

    def begin(self, placement: Placement, launch: LaunchPlan, facts: JobFacts) -> None:
        """Keep what was planned."""
        self._plan = placement, launch, facts

    def note(self, host: str, message: Message) -> None:
        """Take what a guard says, if it is about this."""
        if self._comparison is not None:
            self._comparison.note(host, message)

    def step(self) -> Optional[state.JobOutcome]:
        """Have the guards look where that is due; tell what they saw once they have answered.

        Return how the job ends where it is strict and does not run as planned.
        """
        if self._plan is None or len(self._ranks.started) < self._ranks.np or self._ranks.ended:
            return None
        now = time.monotonic()
        self._begun = self._begun or now
        if self._asked is None or self._comparison is None:
            if self._due and now >= self._begun + self._due[0]:
                self._due.pop(0)
                self._asked, self._comparison = now, self._ask(self._plan)
        elif self._comparison.is_complete or now > self._asked + _ANSWER_SECONDS:
            self._asked = None
            return self._judge(self._comparison.verdict())
        return None

    def _ask(self, plan: Tuple[Placement, LaunchPlan, JobFacts]) -> "RunComparison":
        # Until it is loaded the guards' answer is not understood.
        from taco_launch.agent.gang.run_comparison import RunComparison  # noqa: PLC0415

        comparison = RunComparison(self._spec, self._folder, self._ranks.started, plan)
        self._order(LookAtRanks(variables=comparison.variables))
        return comparison

    def _judge(self, found: "Verified") -> Optional[state.JobOutcome]:
        """Tell what was found where that is news; what is known to be right or wrong is looked at no more."""
        wrong = found.mismatch
        why = found.why or ", ".join(found.checked)
        to_do = "" if wrong is None else f"{wrong.cause} {wrong.next_step}".replace(" NAME ", f" {self._spec.name} ")
        told = VerifiedRun(found.status.value, why, to_do)
        if found.status.value != "Unknown":
            self._due.clear()
        if told != self._told:
            self._told = told
            words = {"True": "it runs as planned", "False": "it does not run as planned"}.get(
                told.status, "whether it runs as planned is not known"
            )
            self._events.add(state.VERIFIED, f"{words}: {told.why}", **to_json(told))
        if wrong is None or not self._spec.policy.strict:
            return None
        return state.JobOutcome(
            JobState.FAILED, JobEnd.NOT_AS_PLANNED, f"it does not run as planned (--strict): {why}", to_do
        )
