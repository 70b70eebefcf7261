"""Jobs on a host that any launcher has started, as they are recognised by the environment of their ranks."""

from typing import Tuple

from taco_launch.core.frozen import dataclass
from taco_launch.core.model.run.rank_samples import RankStack

# What launched processes that have no rank in their environment: found by their command alone.
NO_LAUNCHER = ""
# Of a job on all hosts.
MOST_RANKS = 1 << 20


@dataclass(frozen=True)
class HostJob:
    """The ranks of one job on one host, and whether they made progress while they were watched."""

    # What gave the ranks their numbers, such as "Open MPI"; NO_LAUNCHER where nothing did.
    launcher: str
    # By what the launcher tells its jobs apart, the same on each of their hosts; "" where it has nothing.
    name: str
    # How many ranks the job has on all hosts; 0 where that is not known.
    size: int
    # The command line of one rank.
    command: str
    # For how many seconds the ranks were watched, and for how many of these, up to the end, none made progress.
    seconds: float
    silent: float
    # The last sign of progress, in words; "" for none.
    sign: str
    ranks: Tuple[RankStack, ...]
    # The launcher, such as "torchrun", that runs and has no ranks yet: `ranks` are its own processes, numbered; "" for others.
    starting: str = ""
