"""Compares what runs with what was planned: the guards tell what they see of their ranks.

Nothing of this is loaded, and no guard is asked, before the ranks have run for some time.
"""

import time
from dataclasses import replace
from typing import TYPE_CHECKING, Callable, Dict, List, Optional, Tuple, Type

from taco_launch.agent.logs import segments
from taco_launch.agent.store import records
from taco_launch.agent.store.folders import JobFolder
from taco_launch.agent.supervisor.ranks import Ranks
from taco_launch.core.errors import JobEnd
from taco_launch.core.launch.command_line.env import VISIBLE_GPUS, has_nccl_file
from taco_launch.core.lifecycle import state
from taco_launch.core.model.codec import to_json
from taco_launch.core.model.job_facts import JobFacts
from taco_launch.core.model.jobs import JobSpec, JobState, VerifiedRun
from taco_launch.core.model.plans import LaunchPlan, Placement
from taco_launch.core.protocol.message import Message
from taco_launch.core.protocol.stall_messages import LookAtRanks

if TYPE_CHECKING:
    from taco_launch.core.model.run.observed import NcclLog
    from taco_launch.core.model.run.planned import RunPlan
    from taco_launch.core.protocol.verify_messages import RanksSeen

# Seconds after all ranks have started: libraries that meet late, or send their first bytes late, have done so by then.
_AT_SECONDS = (60.0, 300.0, 1800.0)
# How long guards have to answer.
_ANSWER_SECONDS = 10.0
# Of the beginning of a rank's log, and of how many ranks: what NCCL tells of its set-up is less. All of it is read in one second.
_LOG_BYTES, _MOST_LOGS = 1 << 17, 64


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
        self._answer: Optional[Type[RanksSeen]] = None
        self._seen: Dict[str, RanksSeen] = {}
        self._told: Optional[VerifiedRun] = None

    def begin(self, placement: Placement, launch: LaunchPlan, facts: JobFacts) -> None:
        """Keep what was planned."""
        self._plan = placement, launch, facts

    def note(self, host: str, message: Message) -> None:
        """Take what a guard says, if it is about this."""
        if self._answer is not None and isinstance(message, self._answer):
            # What a host says of other hosts' ranks is not believed.
            ranks = [one for one in message.ranks if self._ranks.started.get(one.rank) == host]
            self._seen[host] = message.replace(ranks=ranks)

    def step(self) -> Optional[state.JobOutcome]:
        """Have the guards look where that is due; tell what they saw once they have answered.

        Return how the job ends where it is strict and does not run as planned.
        """
        if self._plan is None or len(self._ranks.started) < self._ranks.np or self._ranks.ended:
            return None
        now = time.monotonic()
        self._begun = self._begun or now
        if self._asked is None:
            if self._due and now >= self._begun + self._due[0]:
                self._due.pop(0)
                self._ask(now)
        elif len(self._seen) == len(set(self._ranks.started.values())) or now > self._asked + _ANSWER_SECONDS:
            self._asked = None
            return self._judge()
        return None

    def _ask(self, now: float) -> None:
        from taco_launch.core.protocol.verify_messages import RanksSeen  # noqa: PLC0415

        self._answer = RanksSeen  # a message of a kind whose module is not loaded is not understood
        self._asked, self._seen = now, {}
        names = {name for name, _value in self._planned().env} | {VISIBLE_GPUS}
        self._order(LookAtRanks(variables=sorted(names)))

    def _planned(self, *, nccl: bool = False) -> "RunPlan":
        """Return what was planned, and what NCCL is to do only with `nccl`."""
        from taco_launch.core.launch.run_plan import run_plan  # noqa: PLC0415

        assert self._plan is not None
        planned = run_plan(*self._plan)
        if has_nccl_file(self._spec, self._plan[1]):  # for which the rank's wrapper sets that again
            planned = replace(planned, env=tuple(pair for pair in planned.env if pair[0] != "NCCL_DEBUG"))
        return planned if nccl else replace(planned, nccl=None)

    def _nccl(self) -> "NcclLog":
        """Return what NCCL wrote into files of its own, or into the ranks' logs where the user set NCCL_DEBUG=INFO."""
        from taco_launch.core.verify.nccl_log import NcclReader, together  # noqa: PLC0415 - see above

        logs = []
        for host, seen in sorted(self._seen.items()):
            processes = tuple(replace(one, host=host) for one in seen.nccl.processes)
            logs.append(replace(seen.nccl, processes=processes))
        for rank, host in sorted(self._ranks.started.items())[:_MOST_LOGS]:
            text = segments.first_words(self._folder.rank(rank), _LOG_BYTES)
            if "NCCL INFO" in text:
                reader = NcclReader(host)
                reader.feed(text)
                reader.finish()
                logs.append(reader.log())
        return together(logs)

    def _judge(self) -> Optional[state.JobOutcome]:
        """Tell what was found where that is news; what is known to be right or wrong is looked at no more."""
        from taco_launch.core.model.run.observed import SeenRun  # noqa: PLC0415
        from taco_launch.core.verify.compare import verify  # noqa: PLC0415

        seen = tuple(replace(one, host=host) for host, said in self._seen.items() for one in said.ranks)
        nccl = self._nccl()
        found = verify(self._planned(nccl=bool(nccl.processes)), SeenRun(ranks=seen, nccl=nccl))
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
