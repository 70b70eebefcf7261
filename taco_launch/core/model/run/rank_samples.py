"""What a guard sees of each rank while it runs, look after look, and what that amounts to: working, hung or unknown."""

import enum
from typing import Optional, Tuple

from taco_launch.core.frozen import dataclass
from taco_launch.core.model.stalls import RankLook


@dataclass(frozen=True)
class Frame:
    """One frame of a stack: a function, the file's name and the line (0 in native code without symbols of lines)."""

    function: str
    file: str
    line: int = 0


@dataclass(frozen=True)
class OtherThread:
    """A thread beside the main one that runs Python; `active` when it was running, or could be, and did not sleep."""

    frames: Tuple[Frame, ...]
    active: bool = False


@dataclass(frozen=True)
class Stack:
    """The main thread of a rank, outermost frame last; `truncated` where more frames were there than are kept."""

    frames: Tuple[Frame, ...]
    truncated: bool = False
    others: Tuple[OtherThread, ...] = ()


@dataclass(frozen=True)
class RankSample:
    """One look at one rank; None is "not known". Counters only grow, each from its process's start.

    `time` is monotonic, in seconds. `output` counts bytes of its log without lines that only tell that it hangs.
    `sockets` are bytes on its TCP connections, `network` those on the InfiniBand ports of its host. `read` and `written` are
    rchar and wchar, which count what goes through sockets in part. `cpu` is seconds of CPU time of all threads, `main_cpu`
    those of its main thread. `changes` counts how often it was seen to have other processes than before.
    """

    time: float
    output: Optional[int] = None
    sockets: Optional[int] = None
    network: Optional[int] = None
    read: Optional[int] = None
    written: Optional[int] = None
    cpu: Optional[float] = None
    main_cpu: Optional[float] = None
    changes: int = 0
    stack: Optional[Stack] = None


@dataclass(frozen=True)
class RankStack:
    """What a rank does now: its process, and the stack of its Python program, or why that cannot be read."""

    look: RankLook
    stack: Optional[Stack] = None
    why: str = ""


class Life(enum.Enum):
    """What a job does."""

    WORKING = "working"
    HUNG = "hung"
    UNKNOWN = "unknown"


@dataclass(frozen=True)
class StackGroup:
    """Ranks that do the same: where they are in words, and whether they wait for other ranks there."""

    ranks: Tuple[Tuple[int, str], ...]
    does: str
    waits: bool


@dataclass(frozen=True)
class LifeVerdict:
    """What a job does, and why that is known: `waiting` ranks wait for those of `missing` (empty: it is not known for whom)."""

    life: Life
    why: str
    waiting: Tuple[int, ...] = ()
    missing: Tuple[int, ...] = ()

    @property
    def is_hung(self) -> bool:
        """True if the ranks hang."""
        return self.life is Life.HUNG
