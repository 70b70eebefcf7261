"""What `agent stacks` prints of the ranks of a host."""

from typing import Sequence

from taco_launch.core.model.run.rank_samples import RankStack
from taco_launch.core.protocol.message import Message
from taco_launch.core.protocol.stall_messages import check_looks

# Of an error of py-spy.
WHY_CHARACTERS = 1 << 10


class HostStacks(Message):
    """What each rank of a host does."""

    op = "host-stacks"
    ranks: Sequence[RankStack]

    def check(self) -> None:
        """Check what another host says."""
        check_stacks(self.ranks)


def check_stacks(ranks: Sequence[RankStack]) -> None:
    """Check that what was seen is told in short.

    Raises:
        ValueError: it is not.
    """
    check_looks([told.look for told in ranks])
    if max((len(told.why) for told in ranks), default=0) > WHY_CHARACTERS:
        raise ValueError(f"why has more than {WHY_CHARACTERS} characters")
