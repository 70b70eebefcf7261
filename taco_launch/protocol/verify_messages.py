"""What a guard tells of its ranks, to be compared with the plan of the job."""

from typing import Sequence

from taco_launch.model.run.observed import SeenRank
from taco_launch.protocol.message import Message

# Of an environment's values, and of interfaces and addresses: a host could tell more.
_TEXT_CHARACTERS, _MOST_PARTS = 1 << 12, 1 << 10


class RanksSeen(Message):
    """What is seen of each rank of the guard's host."""

    op = "ranks-seen"
    ranks: Sequence[SeenRank]

    def check(self) -> None:
        """Check that it is told in short."""
        for one in self.ranks:
            parts = [
                *(one.env or ()),
                *one.libraries,
                *((each.interface, *each.peers) for each in one.sockets or ()),
                (one.world_source,),
            ]
            long = any(len(text) > _TEXT_CHARACTERS for part in parts for text in part)
            if one.rank < 0 or long or len(parts) > _MOST_PARTS:
                raise ValueError(
                    f"rank {one.rank} has {len(parts)} values, or one of more than {_TEXT_CHARACTERS} characters"
                )
