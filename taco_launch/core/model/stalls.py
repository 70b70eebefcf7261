"""A job that hangs: what its ranks were seen doing, and for how long; and how that is told."""

from collections import Counter
from datetime import datetime, timezone
from typing import List, Mapping, Optional, Sequence, Tuple

from taco_launch.core.frozen import dataclass

# Longer than a checkpoint to a slow file system, or the first compilation of a model.
TOLD_AFTER_SECONDS = 600.0
# What is told of each hang.
HANGS = "no rank has made progress"
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
    "Z": "has ended, and its parent has not noticed",
    "R": "is ready to run",
    "S": "sleeps",
}
# Whatever their stacks are, processes in these states do nothing.
STOPPED = "Tt"


@dataclass(frozen=True)
class RankLook:
    """What a rank was seen doing.

    `pid` is one process of all that the rank runs: one that is stopped or cannot be interrupted, else that which has used
    the most CPU time (0 where none is left); `program` is its name, `state` its letter in /proc/PID/stat, `where` what it
    waits for in the kernel, as far as that can be read.
    `silent` is how many seconds the rank has written nothing, `last_line` what it wrote last.

    `does` is where the stack of its Python program is, in words (`in hvd.allreduce at train.py:57`), "" where it cannot be
    read or was not read yet. `waits` tells that it waits there for other ranks, `gpu` that it waits for a GPU that may be
    computing. `idle` tells that the rank has used no CPU to speak of. `rate` is how many bytes per second it has exchanged
    with others since it made progress, `usual` while it made progress; None where that is not known.
    """

    rank: int
    pid: int = 0
    program: str = ""
    state: str = ""
    where: str = ""
    silent: float = 0.0
    last_line: str = ""
    host: str = ""
    does: str = ""
    waits: bool = False
    gpu: bool = False
    idle: bool = True
    rate: Optional[float] = None
    usual: Optional[float] = None


@dataclass(frozen=True)
class Stall:
    """No rank has made progress since `since`; the most telling ranks first. Times are in seconds since the epoch.

    Where it was not `hung`, that is what the ranks did when the job reached its timeout at `since`.
    """

    since: float
    ranks: Tuple[RankLook, ...] = ()
    hung: bool = True
    # When the ranks were looked at; None in records of earlier versions.
    seen: Optional[float] = None

    def silent(self, look: RankLook, now: float) -> float:
        """Return for how many seconds a rank has written nothing, as long as the hang lasts."""
        return look.silent if self.seen is None or not self.hung else look.silent + max(0.0, now - self.seen)


def shown_time(when: float) -> str:
    """Return a time of day here, with the zone, so that it is the same time wherever it is read."""
    return datetime.fromtimestamp(when, timezone.utc).astimezone().strftime("%Y-%m-%d %H:%M:%S %z")


def stall_report_delay(limit: Optional[float]) -> float:
    """Return the seconds after which a hang is told; `limit` is when it ends the job, None never."""
    return TOLD_AFTER_SECONDS if limit is None else min(limit, TOLD_AFTER_SECONDS)


def look_every(after: float) -> float:
    """Return the seconds between two looks, where a hang is told after so many."""
    return min(LOOK_SECONDS, after / _LEAST_LOOKS)


def telling(ranks: Sequence[RankLook]) -> Tuple[RankLook, ...]:
    """Put those first whose state tells most, then those that wait for no other rank, then those that do what the fewest do.

    Of those that do the same the longest silent come first; a bounded number is given.
    """
    order = "".join(_STATES)
    alike = Counter(map(_does, ranks))

    def key(look: RankLook) -> Tuple[int, bool, int, float, int]:
        state = order.index(look.state) if look.state in _STATES else len(order)
        # Where a stack is known, it tells more than whether a thread polls or sleeps.
        if look.does and look.state not in STOPPED:
            state = order.index("R")
        return state, look.waits, alike[_does(look)], -look.silent, look.rank

    return tuple(sorted(ranks, key=key)[:_MOST_RANKS])


def _does(look: RankLook) -> Tuple[str, ...]:
    return (look.does,) if look.does else (look.program, look.state, look.where)


def doing(look: RankLook) -> str:
    """Return in words what a rank does."""
    if not look.pid:
        return "has no process that can be seen"
    if look.does and look.state not in STOPPED:
        return f"waits {look.does}" if look.waits else f"is {look.does}"
    words = _STATES.get(look.state, "is in a state that is not known")
    return f"{words} ({look.state}{f', {look.where}' if look.where else ''})"


def reason(running: int, ranks: Sequence[RankLook]) -> str:
    """Return in one line what the most telling of a job's `running` ranks do."""
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
    return "; ".join((*words, *more))
