"""How long the ranks of one host have made no progress, by the looks at them; and what they were seen doing since.

Progress is output, reading or writing files, and starting or ending processes; where the stack is known, also that the main
thread moves in its program, or computes. CPU time alone is no progress: ranks that wait for others poll.
"""

from dataclasses import replace
from statistics import median_high
from typing import Dict, Iterable, List, Mapping, Optional, Sequence

from taco_launch.core.model.run.rank_samples import RankSample, Stack
from taco_launch.core.model.stalls import RankLook
from taco_launch.core.stalls import groups
from taco_launch.core.stalls.waits import busy, place, same_python

# Whether a stack stands still is seen in so many.
LEAST_STACKS = 3
# Bytes per second: less is what monitors and watchdogs read.
_LEAST_FILES = 4 << 10
# As a part of one core.
_IDLE_CPU = 0.02
# How many rates are kept of the time when it made progress.
_MOST_RATES = 16


class QuietHost:
    """The looks at the ranks of a host since one of them last made progress, at most those of the last `seconds`."""

    def __init__(self, seconds: float) -> None:
        """Know of no rank yet."""
        self._seconds = seconds
        self._looks: Dict[int, List[RankSample]] = {}
        self._rates: Dict[int, List[float]] = {}
        self._since: Optional[float] = None
        self._now = 0.0
        # What was seen last of a rank that made progress.
        self.sign = ""

    @property
    def silent(self) -> float:
        """For how many seconds no rank has made progress."""
        return 0.0 if self._since is None else self._now - self._since

    def add(self, now: float, looks: Mapping[int, RankSample]) -> None:
        """Take a look at each rank that runs."""
        self._now = now
        if looks.keys() != self._looks.keys():
            self._restart(looks, "the set of running ranks changed")
            return
        sign = ""
        for rank, look in looks.items():
            before = self._looks[rank]
            sign = sign or _sign_of_work(rank, (before[-1], look))
            before.append(look)
        self._judge(sign)
        for each in self._looks.values():
            while len(each) > 2 and each[1].time <= self._now - self._seconds:
                del each[0]

    def add_stacks(self, stacks: Mapping[int, Stack]) -> None:
        """Take the stacks of ranks, read since the last look."""
        for rank, looks in self._looks.items():
            if rank in stacks:
                looks[-1] = replace(looks[-1], stack=stacks[rank])
        self._judge("")

    def standing(self, look: RankLook) -> RankLook:
        """Add what is known of a rank's stack, CPU use and traffic to what its processes were seen doing."""
        looks = self._looks.get(look.rank, [])
        stacks, span = _stacks(looks), looks[-1].time - looks[0].time if looks else 0.0
        found = replace(look, idle=_used(looks, "cpu") <= _IDLE_CPU * span, rate=_rate(looks))
        rates = self._rates.get(look.rank)
        if rates:
            found = replace(found, usual=median_high(rates))
        if not stacks:
            return found
        where = place(stacks[-1])
        # One that uses no CPU stands still: it waits for other ranks where its last stack does.
        if len(stacks) < LEAST_STACKS and not (found.idle and where.waits):
            return found
        return replace(found, does=groups.describe_activity(where), waits=where.waits, gpu=where.gpu)

    def _judge(self, sign: str) -> None:
        for rank, looks in self._looks.items():
            sign = sign or _computes(rank, looks)
        if sign:
            for rank, looks in self._looks.items():
                rate = _rate(looks[-2:])
                if rate is not None:
                    self._rates[rank] = [*self._rates.get(rank, []), rate][-_MOST_RATES:]
            self._restart({rank: looks[-1] for rank, looks in self._looks.items()}, sign)

    def _restart(self, looks: Mapping[int, RankSample], sign: str) -> None:
        self._looks = {rank: [replace(look, stack=None)] for rank, look in looks.items()}
        self._since, self.sign = self._now, sign


def _sign_of_work(rank: int, pair: Sequence[RankSample]) -> str:
    """Return what a rank did between two looks that only a rank does that works; "" for nothing."""
    first, last = pair
    if last.output is not None and last.output != first.output:
        return f"rank {rank} writes output"
    if last.changes != first.changes:
        return f"rank {rank} starts or ends processes"
    files, span = _files(first, last), last.time - first.time
    if files is not None and span and files / span > _LEAST_FILES:
        return f"rank {rank} reads or writes files ({files / span:.0f} bytes/s)"
    return ""


def _computes(rank: int, looks: Sequence[RankSample]) -> str:
    """Return whether a rank's main thread moves, other than within a call that waits for others."""
    stacks = _stacks(looks)
    if len(stacks) < LEAST_STACKS:
        return ""
    if any(not same_python(one, other) for one, other in zip(stacks, stacks[1:])):
        return f"rank {rank} runs its program: its stack changes"
    where = place(stacks[-1])
    threads = [frame for frame in map(busy, stacks) if frame is not None]
    if 2 * len(threads) > len(stacks):
        return f"rank {rank} runs a thread in {threads[-1].function}"
    span = looks[-1].time - looks[0].time
    if not where.waits and not where.gpu and _used(looks, "main_cpu") > _IDLE_CPU * span:
        return f"rank {rank} computes {groups.describe_activity(where)}"
    return ""


def _stacks(looks: Iterable[RankSample]) -> List[Stack]:
    return [look.stack for look in looks if look.stack is not None]


def _files(first: RankSample, last: RankSample) -> Optional[float]:
    """Return the bytes that went to and from files: what system calls moved, without what moved on sockets."""
    if first.read is None or last.read is None or first.written is None or last.written is None:
        return None
    if first.sockets is None or last.sockets is None:
        return None
    moved = (last.read - first.read) + (last.written - first.written)
    return max(0, moved - (last.sockets - first.sockets))


def _rate(looks: Sequence[RankSample]) -> Optional[float]:
    """Return the bytes per second between the first and the last look, on sockets and networks."""
    if len(looks) < 2 or looks[-1].time <= looks[0].time:
        return None
    first, last = looks[0], looks[-1]
    total: Optional[float] = None
    for one, other in ((first.sockets, last.sockets), (first.network, last.network)):
        if one is not None and other is not None:
            total = (total or 0.0) + max(0, other - one)
    return None if total is None else total / (last.time - first.time)


def _used(looks: Sequence[RankSample], name: str) -> float:
    """Return the seconds of CPU time between the first and the last look; as much as there is where that is not known."""
    told = [value for value in (getattr(look, name) for look in looks) if value is not None]
    return float(told[-1] - told[0]) if told else float("inf")
