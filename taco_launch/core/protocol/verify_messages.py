"""What a guard tells of its ranks, to be compared with the plan of the job."""

from typing import Any, Iterator, Sequence

from taco_launch.core.model.codec import to_json
from taco_launch.core.model.run.observed import NcclLog, SeenRank
from taco_launch.core.protocol.message import Message

# Of an environment's values, and of interfaces and addresses: a host could tell more.
_TEXT_CHARACTERS, _MOST_TEXTS = 1 << 12, 1 << 11


class RanksSeen(Message):
    """A guard's observations of each rank on its host, and the contents of the ranks' NCCL files there."""

    op = "ranks-seen"
    ranks: Sequence[SeenRank]
    nccl: NcclLog = NcclLog()

    def check(self) -> None:
        """Check that it is told in short."""
        if any(one.rank < 0 for one in self.ranks):
            raise ValueError("a rank is negative")
        for one in (*self.ranks, *self.nccl.processes):
            lengths = [len(text) for text in _texts(to_json(one))]
            if len(lengths) > _MOST_TEXTS or max(lengths) > _TEXT_CHARACTERS:
                raise ValueError(
                    f"a rank or process has {len(lengths)} texts, or one of more than {_TEXT_CHARACTERS} characters"
                )


def _texts(value: Any) -> Iterator[str]:
    """Yield every text within JSON."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, (list, dict)):
        for part in value.values() if isinstance(value, dict) else value:
            yield from _texts(part)
