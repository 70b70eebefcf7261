"""The messages about the stacks of a host's ranks: of one job of ours, or of every job on that host."""

import math
from typing import Sequence

from taco_launch.core.model.run.host_jobs import MOST_RANKS, HostJob
from taco_launch.core.model.run.rank_samples import RankStack
from taco_launch.core.protocol.message import Message
from taco_launch.core.protocol.stall_messages import check_looks

# Of an error of py-spy.
WHY_CHARACTERS = 1 << 10
# Of a rank's command line, and of what NCCL's RAS answers.
COMMAND_CHARACTERS = 1 << 10
RAS_CHARACTERS = 1 << 16


class HostStacks(Message):
    """What each rank of a host does."""

    op = "host-stacks"
    ranks: Sequence[RankStack]

    def check(self) -> None:
        """Check what another host says."""
        check_stacks(self.ranks)


class HostJobs(Message):
    """The jobs of a host that any launcher has started.

    `hidden` tells what of other users could not be read, `left_out` how many ranks are not among the jobs because there are
    too many; `ras` is what NCCL's RAS answers there, "" where it does not.
    """

    op = "host-jobs"
    jobs: Sequence[HostJob]
    hidden: str = ""
    left_out: int = 0
    ras: str = ""

    def check(self) -> None:
        """Check what another host says."""
        for job in self.jobs:
            check_stacks(job.ranks)
            if (
                not all(0 <= number < math.inf for number in (job.seconds, job.silent))
                or not 0 <= job.size <= MOST_RANKS
            ):
                raise ValueError(f"job {job.name[:60]!r}: its times or its number of ranks are out of range")
            if max(map(len, (job.launcher, job.name, job.command, job.sign, job.starting))) > COMMAND_CHARACTERS:
                raise ValueError(f"a job has words of more than {COMMAND_CHARACTERS} characters")
        if self.left_out < 0 or len(self.ras) > RAS_CHARACTERS or len(self.hidden) > WHY_CHARACTERS:
            raise ValueError("hidden, left_out or ras is out of bounds")


def check_stacks(ranks: Sequence[RankStack]) -> None:
    """Check that what was seen is told in short.

    Raises:
        ValueError: it is not.
    """
    check_looks([told.look for told in ranks])
    if max((len(told.why) for told in ranks), default=0) > WHY_CHARACTERS:
        raise ValueError(f"why has more than {WHY_CHARACTERS} characters")
