"""The call about what the ranks of a running job do: their stacks."""

from typing import Sequence

from taco_launch.core.model.run.rank_samples import RankStack
from taco_launch.core.protocol.calls import Reply, Request
from taco_launch.core.protocol.stack_messages import WHY_CHARACTERS, check_stacks


class Stacks(Request):
    """Read the stacks of all ranks of a job. Replies: StacksReply, one for each host."""

    op = "stacks"
    name: str


class StacksReply(Reply):
    """What the ranks of a host do, or the problem that kept it from answering."""

    op = "stacks-read"
    host: str
    ranks: Sequence[RankStack] = ()
    problem: str = ""

    def check(self) -> None:
        """Check that it is told in short."""
        check_stacks(self.ranks)
        if len(self.problem) > WHY_CHARACTERS:
            raise ValueError(f"problem has more than {WHY_CHARACTERS} characters")
