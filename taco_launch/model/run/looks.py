"""What guards see of each rank while it runs, look after look, and what that amounts to: working, hung or unknown."""

import enum
from typing import Optional, Tuple

from taco_launch.frozen import dataclass


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
class Look:
    """One look at one rank; None is "not known". Counters only grow, each from its process's start.

    `time` is monotonic, in seconds. `output` counts bytes of its log without lines that only say that it hangs. `step` is
    that of its progress. `sockets` are bytes on its connections, `network` those on interfaces and HCA ports that no
    other job of the host uses (None where one may). `read` and `written` are rchar and wchar, which count what goes through
    sockets in part. `cpu` is seconds of CPU time of all threads, `main_cpu` those of its main
    thread, `state` that thread's letter in /proc/PID/stat. `gpu` is the use of its GPUs from 0 to 1.
    """

    time: float
    output: Optional[int] = None
    step: Optional[float] = None
    sockets: Optional[int] = None
    network: Optional[int] = None
    read: Optional[int] = None
    written: Optional[int] = None
    cpu: Optional[float] = None
    main_cpu: Optional[float] = None
    state: str = ""
    gpu: Optional[float] = None
    stack: Optional[Stack] = None


@dataclass(frozen=True)
class RankLooks:
    """The looks at one rank, oldest first; `ended` when it runs no more.

    `usual` is how many bytes per second it exchanged while the job worked, where the looks of that time are no longer kept.
    """

    rank: int
    host: str
    looks: Tuple[Look, ...]
    ended: bool = False
    usual: Optional[float] = None


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
    """What a job does, and why that is known: `waiting` ranks wait for those of `missing` (empty: it is not known for whom).

    `groups` are the ranks by what they do, the odd one first.
    """

    life: Life
    why: str
    waiting: Tuple[int, ...] = ()
    missing: Tuple[int, ...] = ()
    groups: Tuple[StackGroup, ...] = ()
