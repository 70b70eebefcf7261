"""The call for the stacks of a job's ranks: each host's agent reads those of its own."""

from dataclasses import replace
from typing import Callable, Dict, Iterator, Type

from taco_launch.agent.api.rank_access import NotRunningError, argv_on_host
from taco_launch.agent.ssh import commands as ssh
from taco_launch.agent.store import records
from taco_launch.agent.store.folders import Jobs
from taco_launch.agent.upkeep import recovery
from taco_launch.core.model.jobs import JobState
from taco_launch.core.model.plans import numbered
from taco_launch.core.model.run.rank_samples import RankStack
from taco_launch.core.protocol.calls import Reply, Request
from taco_launch.core.protocol.calls.stacks import Stacks, StacksReply
from taco_launch.core.protocol.stack_messages import WHY_CHARACTERS, HostStacks

# py-spy has 20 s for each of a host's ranks, of which four are read at once; it takes less than one.
_SECONDS = 120.0


def _stacks(jobs: Jobs, _agent: str, request: Stacks) -> Iterator[Reply]:
    """Read the stacks on all hosts of a running job, side by side.

    Raises:
        NotRunningError: the job does not run.
    """
    folder = jobs.get(request.name)
    record = recovery.current_record(folder)
    if record.state is not JobState.RUNNING:
        raise NotRunningError(
            f"job {folder.name} is {record.state.value}: stacks are available only while its ranks run",
            hint=f"taco-launch get {folder.name} shows what is known about it",
        )
    spec = records.read_spec(folder)
    line = ("rank-stacks", str(folder.path))
    hosts = [(share.host, argv_on_host(folder, spec, record, share.host, line)) for share in record.shares]
    # What a host says of other hosts' ranks is not believed.
    for (_share, own), (host, answer) in zip(numbered(record.shares), ssh.ask_by(hosts, HostStacks, _SECONDS)):
        if isinstance(answer, str):
            yield StacksReply(host=host, problem=answer[:WHY_CHARACTERS])
        else:
            ranks = {told.look.rank: told for told in answer.ranks if told.look.rank in own}
            yield StacksReply(host=host, ranks=[_of_host(host, ranks[rank]) for rank in sorted(ranks)])


def _of_host(host: str, told: RankStack) -> RankStack:
    return replace(told, look=replace(told.look, host=host))


OPERATIONS: Dict[Type[Request], Callable[..., Iterator[Reply]]] = {Stacks: _stacks}
