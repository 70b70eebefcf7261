"""Compares what guards have seen of a job's ranks with what was planned."""

from dataclasses import replace
from typing import Dict, List, Mapping, Tuple

from taco_launch.agent.logs import segments
from taco_launch.agent.store.folders import JobFolder
from taco_launch.core.launch.command_line.env import VISIBLE_GPUS, has_nccl_file
from taco_launch.core.launch.run_plan import run_plan
from taco_launch.core.model.job_facts import JobFacts
from taco_launch.core.model.jobs import JobSpec
from taco_launch.core.model.plans import LaunchPlan, Placement
from taco_launch.core.model.run.observed import NcclLog, SeenRun
from taco_launch.core.model.run.planned import RunPlan
from taco_launch.core.model.run.verified import Verified
from taco_launch.core.protocol.message import Message
from taco_launch.core.protocol.verify_messages import RanksSeen
from taco_launch.core.verify.compare import verify
from taco_launch.core.verify.nccl_log import NcclReader, together

# Of the beginning of a rank's log, and of how many ranks: what NCCL tells of its set-up is less. All of it is read in one second.
_LOG_BYTES, _MOST_LOGS = 1 << 17, 64


class RunComparison:
    """One look of the guards at an attempt: what was planned, and what they have seen."""

    def __init__(
        self,
        spec: JobSpec,
        folder: JobFolder,
        started: Mapping[int, str],
        plan: Tuple[Placement, LaunchPlan, JobFacts],
    ) -> None:
        """Keep what was planned; `folder` is that of the attempt, `started` the host of each rank."""
        self._spec, self._folder, self._started = spec, folder, started
        self._plan = plan
        self._seen: Dict[str, RanksSeen] = {}

    @property
    def variables(self) -> List[str]:
        """The names of the variables that guards look up in their ranks."""
        return sorted({name for name, _value in self._planned().env} | {VISIBLE_GPUS})

    @property
    def is_complete(self) -> bool:
        """Return whether the guards of all hosts have answered."""
        return len(self._seen) == len(set(self._started.values()))

    def note(self, host: str, message: Message) -> None:
        """Keep what a guard has seen, if this message is about that."""
        if isinstance(message, RanksSeen):
            # What a host says of other hosts' ranks is not believed.
            ranks = [one for one in message.ranks if self._started.get(one.rank) == host]
            self._seen[host] = message.replace(ranks=ranks)

    def verdict(self) -> Verified:
        """Return whether the ranks run as planned, as far as the guards have seen."""
        seen = tuple(replace(one, host=host) for host, said in self._seen.items() for one in said.ranks)
        nccl = self._nccl()
        return verify(self._planned(nccl=bool(nccl.processes)), SeenRun(ranks=seen, nccl=nccl))

    def _planned(self, *, nccl: bool = False) -> RunPlan:
        """Return what was planned, and what NCCL is to do only with `nccl`."""
        planned = run_plan(*self._plan)
        if has_nccl_file(self._spec, self._plan[1]):  # for which the rank's wrapper sets that again
            planned = replace(planned, env=tuple(pair for pair in planned.env if pair[0] != "NCCL_DEBUG"))
        return planned if nccl else replace(planned, nccl=None)

    def _nccl(self) -> NcclLog:
        """Return what NCCL wrote into files of its own, or into the ranks' logs where the user set NCCL_DEBUG=INFO."""
        logs = []
        for host, seen in sorted(self._seen.items()):
            processes = tuple(replace(one, host=host) for one in seen.nccl.processes)
            logs.append(replace(seen.nccl, processes=processes))
        for rank, host in sorted(self._started.items())[:_MOST_LOGS]:
            text = segments.first_words(self._folder.rank(rank), _LOG_BYTES)
            if "NCCL INFO" in text:
                reader = NcclReader(host)
                reader.feed(text)
                reader.finish()
                logs.append(reader.log())
        return together(logs)
