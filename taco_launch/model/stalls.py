"""A job that hangs: what its ranks' processes were seen doing, and for how long; and how that is said. Pure."""

from collections import Counter
from typing import List, Mapping, Optional, Sequence, Tuple

from taco_launch.frozen import dataclass

# Longer than a checkpoint to a slow file system, or the first compilation of a model.
TOLD_AFTER_SECONDS = 600.0
# What is said of each hang.
HANGS = "no output and no CPU use of any rank"
# How often a guard looks, at most.
LOOK_SECONDS = 5.0
_LEAST_LOOKS = 4
# Of a thousand ranks that hang, those that are told first tell enough.
_MOST_RANKS = 64
_MOST_IN_REASON = 2
# The letters of /proc/PID/stat, proc(5), those first that tell more than that a process waits.
_STATES: Mapping[str, str] = {
    "T": "is stopped",
    "t": "is stopped by a debugger",
    "D": "waits in the kernel and cannot be interrupted",
    "Z": "has ended, and nobody took notice",
    "R": "is ready to run",
    "S": "sleeps",
}


@dataclass(frozen=True)
class RankLook:
    """What a rank's processes were seen doing.

    `pid` is one process of all that the rank runs: one that is stopped or cannot be interrupted, else that which has used
    the most CPU time (0 where none is left); `program` is its name, `state` its letter in /proc/PID/stat, `where` what it
    waits for in the kernel, as far as that can be read.
    `silent` is how many seconds the rank has written nothing, `last_line` what it wrote last.
    """

    rank: int
    pid: int = 0
    program: str = ""
    state: str = ""
    where: str = ""
    silent: float = 0.0
    last_line: str = ""
    host: str = ""


@dataclass(frozen=True)
class Stall:
    """No rank has written anything or used CPU time since `since` (seconds since the epoch); the most telling ranks first."""

    since: float
    ranks: Tuple[RankLook, ...] = ()


def stall_report_delay(limit: Optional[float]) -> float:
    """Return the seconds after which a hang is told; `limit` is when it ends the job, None never."""
    return TOLD_AFTER_SECONDS if limit is None else min(limit, TOLD_AFTER_SECONDS)


def look_every(after: float) -> float:
    """Return the seconds between two looks, where a hang is told after so many."""
    return min(LOOK_SECONDS, after / _LEAST_LOOKS)


def telling(ranks: Sequence[RankLook]) -> Tuple[RankLook, ...]:
    """Put those first whose state tells most, then those that do what the fewest do: the others wait for them.

    Of those that do the same the longest silent come first; a bounded number is given.
    """
    order = "".join(_STATES)
    alike = Counter(map(_does, ranks))

    def key(look: RankLook) -> Tuple[int, int, float, int]:
        state = order.index(look.state) if look.state in _STATES else len(order)
        return state, alike[_does(look)], -look.silent, look.rank

    return tuple(sorted(ranks, key=key)[:_MOST_RANKS])


def _does(look: RankLook) -> Tuple[str, str, str]:
    return look.program, look.state, look.where


def doing(look: RankLook) -> str:
    """State in words what a rank's process does."""
    if not look.pid:
        return "has no process that can be seen"
    words = _STATES.get(look.state, "is in a state that is not known")
    return f"{words} ({look.state}{f', {look.where}' if look.where else ''})"


def reason(seconds: float, running: int, ranks: Sequence[RankLook]) -> str:
    """State in one line that a job hangs: for how long, and what the most telling of its `running` ranks do."""
    words: List[str] = []
    for look in ranks[:_MOST_IN_REASON]:
        process = f": process {look.pid} ({look.program}) {doing(look)}" if look.pid else f" {doing(look)}"
        last = f", its last line: {look.last_line}" if look.last_line else ", it wrote nothing"
        words.append(f"rank {look.rank} on {look.host}{process}{last}")
    left = running - len(words)
    more = [f"{left} more rank{'s' if left > 1 else ''}"] if words and left > 0 else []
    alike = {_does(look) for look in ranks[len(words) - 1 :]}  # the last one that is told, and the rest
    if more and len(alike) == 1 and len(ranks) == running:
        more = [f"{more[0]} like rank {ranks[len(words) - 1].rank}"]
    return "; ".join((f"{HANGS} for {seconds:.0f} s", *words, *more))
