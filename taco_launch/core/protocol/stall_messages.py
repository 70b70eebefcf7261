"""The messages about what ranks are seen doing, and about their stacks: of guards, and of what reads stacks on their hosts."""

import math
from typing import Mapping, Sequence

from taco_launch.core.model.stalls import RankLook
from taco_launch.core.protocol.message import Message
from taco_launch.core.protocol.rank_messages import check_roots

_TEXT_CHARACTERS = 1 << 10

# --- between the supervisor and a guard


class ReadStacks(Message):
    """Read the stacks of the ranks now, and return SeenRanks: the job is about to be ended."""

    op = "read-stacks"


class LookAtRanks(Message):
    """Look at the ranks, and return RanksSeen (verify_messages.py): `variables` are those of the environment that are wanted."""

    op = "look-at-ranks"
    variables: Sequence[str]


class StallReport(Message):
    """For how many seconds the host's ranks have made no progress (0: they do again), and what each was seen doing."""

    op = "pulse"
    silent: float
    ranks: Sequence[RankLook]

    def check(self) -> None:
        """Check that it is a time, and that what was seen is told in short."""
        if not 0 <= self.silent < math.inf:
            raise ValueError("silent is not a time")
        check_looks(self.ranks)


class SeenRanks(Message):
    """What each rank of the host does."""

    op = "seen-ranks"
    ranks: Sequence[RankLook]

    def check(self) -> None:
        """Check that what was seen is told in short."""
        check_looks(self.ranks)


def check_looks(ranks: Sequence[RankLook]) -> None:
    """Check what another host says of its ranks.

    Raises:
        ValueError: a number is none that was measured, or a text is too long.
    """
    for look in ranks:
        numbers = (look.silent, look.rate or 0.0, look.usual or 0.0)
        if look.rank < 0 or not all(0 <= number < math.inf for number in numbers):
            raise ValueError(f"rank {look.rank}: {str(numbers)[:60]} are not measurements")
        texts = (look.program, look.state, look.where, look.last_line, look.host, look.does)
        if max(map(len, texts)) > _TEXT_CHARACTERS:
            raise ValueError(f"ranks have words of more than {_TEXT_CHARACTERS} characters")


# --- what reads stacks on the host (stacks/reader.py) to its guard, and the answer


class AskRanks(Message):
    """Ask which ranks run."""

    op = "ask-ranks"


class RunningRanks(Message):
    """Return the wrapper of each rank that runs, by the rank's number."""

    op = "running-ranks"
    ranks: Mapping[str, Sequence[int]]

    def check(self) -> None:
        """Check that they are numbers and processes."""
        check_roots(list(self.ranks.values()))
        if not all(rank.isdecimal() for rank in self.ranks):
            raise ValueError(f"ranks are {', '.join(self.ranks)[:60]!r}")
