"""The call about what the ranks of a running job do: their stacks."""

from typing import Mapping, Sequence

from taco_launch.model.run.looks import RankStack
from taco_launch.protocol.calls import Reply, Request
from taco_launch.protocol.stack_messages import WHY_CHARACTERS, check_stacks


class Stacks(Request):
    """Read the stacks of all ranks of a job. Reply: StacksReply."""

    op = "stacks"
    name: str


class StacksReply(Reply):
    """What the ranks do, in the order of their numbers; and of each host that gave no answer, why."""

    op = "stacks-read"
    ranks: Sequence[RankStack]
    problems: Mapping[str, str]

    def check(self) -> None:
        """Check that it is told in short."""
        check_stacks(self.ranks)
        if max(map(len, self.problems.values()), default=0) > WHY_CHARACTERS:
            raise ValueError(f"problems have more than {WHY_CHARACTERS} characters")
