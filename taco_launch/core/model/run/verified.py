"""The condition Verified of a job: whether what runs is what was planned."""

import enum
from typing import Optional, Tuple

from taco_launch.core.frozen import dataclass


class Truth(enum.Enum):
    """The status of a condition, as Kubernetes has it."""

    TRUE = "True"
    FALSE = "False"
    UNKNOWN = "Unknown"


@dataclass(frozen=True)
class Mismatch:
    """The first thing that is not as planned: what, on which host, of which rank (None: of all there), and what to do.

    `kind` is a word for programs, such as `transport`; `planned` and `seen` are values, `cause` and `next_step` sentences.
    """

    kind: str
    host: str
    rank: Optional[int]
    planned: str
    seen: str
    cause: str
    next_step: str

    def __str__(self) -> str:
        """Return it in one sentence."""
        where = f"rank {self.rank} on {self.host}" if self.rank is not None else self.host or "the job"
        return f"{where}: {self.kind}: planned {self.planned}, is {self.seen}"


@dataclass(frozen=True)
class Verified:
    """The condition: `mismatch` with False, `why` with Unknown, and the names of what was compared."""

    status: Truth
    why: str = ""
    mismatch: Optional[Mismatch] = None
    checked: Tuple[str, ...] = ()
