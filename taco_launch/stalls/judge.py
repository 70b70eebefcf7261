"""The verdict of looks at all ranks: working, hung, or unknown; and who waits for whom."""

import bisect
import re
import statistics
from typing import Iterable, List, NamedTuple, Optional, Sequence, Tuple

from taco_launch.model.run.looks import Life, LifeVerdict, Look, RankLooks, Stack
from taco_launch.stalls import groups as grouping
from taco_launch.stalls.waits import busy, place, same_python

_LEAST_LOOKS = 3
_SPANNED = 0.9  # of the stall time, that looks have to span
# Traffic below this share of what the job had when it worked is keep-alives: Horovod's coordinator alone has 0.5 %.
_SHARE_OF_TRAFFIC = 0.05
# Where it is not known how much that was: what coordinators, watchdogs and NCCL's RAS exchange stays below, per rank.
_LEAST_TRAFFIC = 128 << 10
_LEAST_FILES = 4 << 10
_IDLE_CPU = 0.02
_BUSY_GPU = 0.05
_STOPPED = "Tt"
_RECEIVES = re.compile(r"\bin \S*(?:recv|Recv|Mprobe|Probe)")


class _Rank(NamedTuple):
    """One rank with the looks of the stall time, and those before."""

    of: RankLooks
    window: Tuple[Look, ...]
    before: Tuple[Look, ...]

    @property
    def span(self) -> float:
        return self.window[-1].time - self.window[0].time

    @property
    def name(self) -> str:
        return f"rank {self.of.rank} on {self.of.host}"


def judge(ranks: Sequence[RankLooks], expected: int, seconds: float) -> LifeVerdict:
    """Return what a job of `expected` ranks has done in the last `seconds`, by the looks at its ranks.

    WORKING needs one sign of work of one rank; HUNG needs that every rank is known to wait or to stand still. Whatever
    lacks leaves it UNKNOWN.
    """
    running = [_split(rank, seconds) for rank in ranks if not rank.ended]
    ended = tuple(rank.rank for rank in ranks if rank.ended)
    for rank in running:
        sign = _sign_of_work(rank)
        if sign:
            return LifeVerdict(Life.WORKING, f"{rank.name} {sign}")
    short = next((rank for rank in running if len(rank.window) < _LEAST_LOOKS or rank.span < _SPANNED * seconds), None)
    if short is not None:
        return LifeVerdict(Life.UNKNOWN, f"{short.name} was looked at for {short.span:.0f} s only")
    if len(ranks) < expected:
        return LifeVerdict(Life.UNKNOWN, f"{expected - len(ranks)} of {expected} ranks were not looked at")
    if not running:
        return LifeVerdict(Life.UNKNOWN, "no rank runs")
    traffic = _traffic(running)
    if traffic:
        return LifeVerdict(Life.WORKING, traffic)
    return _standing_still(running, ended, seconds)


def _split(rank: RankLooks, seconds: float) -> _Rank:
    last = rank.looks[-1].time if rank.looks else 0.0
    before = tuple(look for look in rank.looks if look.time <= last - seconds)
    # From the last look before the stall time on, so that it is spanned.
    window = rank.looks[max(0, len(before) - 1) :]
    return _Rank(rank, window or (Look(0.0),), before)


def _sign_of_work(rank: _Rank) -> str:
    """Return what a rank does that only a rank does that works; "" for nothing."""
    window = rank.window
    if _grew(window, "output"):
        return "writes output"
    if _grew(window, "step"):
        return "makes steps"
    files = _files(window)
    if files is not None and rank.span and files / rank.span > _LEAST_FILES:
        return f"reads or writes files ({files / rank.span:.0f} bytes/s)"
    return _computes(rank)


def _computes(rank: _Rank) -> str:
    """Return whether a rank's main thread moves, other than within a call that waits for others."""
    stacks = _stacks(rank)
    if len(stacks) < _LEAST_LOOKS:
        return ""
    if any(not same_python(one, other) for one, other in zip(stacks, stacks[1:])):
        return "moves in its program"
    where = place(stacks[-1])
    threads = [frame for frame in map(busy, stacks) if frame is not None]
    if 2 * len(threads) > len(stacks):
        return f"runs a thread in {threads[-1].function}"
    if where.waits:
        return ""
    gpus = [look.gpu for look in rank.window if look.gpu is not None]
    if gpus and statistics.median(gpus) > _BUSY_GPU and not where.gpu:
        return "uses its GPU"
    if not _is_idle(rank, "main_cpu") and not where.gpu:
        return f"computes {grouping.does(where)}"
    return ""


def _traffic(running: Sequence[_Rank]) -> str:
    """Return which rank exchanges about as much as when the job worked, or, where that is not known, more than keep-alives."""
    unknown: List[float] = []
    worked = _merged(span for rank in running for span in _worked(rank.before))
    for rank in running:
        now = _rate(rank.window)
        if now is None:
            continue
        usual = rank.of.usual if rank.of.usual is not None else _usual(rank.before, worked)
        if usual is None or usual <= _LEAST_TRAFFIC:
            unknown.append(now)
        elif now > _SHARE_OF_TRAFFIC * usual:
            return f"{rank.name} exchanges {now:.0f} bytes/s, {100 * now / usual:.0f} % of before"
    # The coordinator's rank has the keep-alives of all others: the middle one tells.
    if unknown and statistics.median_low(unknown) > _LEAST_TRAFFIC:
        return f"the ranks exchange {statistics.median_low(unknown):.0f} bytes/s each"
    return ""


def _worked(looks: Sequence[Look]) -> List[Tuple[float, float]]:
    """Return the times between looks in which a rank wrote output, made steps, or used files."""
    found = []
    for pair in zip(looks, looks[1:]):
        files = _files(pair)
        span = pair[1].time - pair[0].time
        if _grew(pair, "output") or _grew(pair, "step") or (files is not None and span and files / span > _LEAST_FILES):
            found.append((pair[0].time, pair[1].time))
    return found


def _merged(spans: Iterable[Tuple[float, float]]) -> List[Tuple[float, float]]:
    """Return spans in order, those that touch as one."""
    found: List[Tuple[float, float]] = []
    for begin, end in sorted(spans):
        if found and begin <= found[-1][1]:
            found[-1] = (found[-1][0], max(found[-1][1], end))
        else:
            found.append((begin, end))
    return found


def _usual(looks: Sequence[Look], worked: Sequence[Tuple[float, float]]) -> Optional[float]:
    """Return the bytes per second that a rank exchanged while the job worked; None where that was not seen."""
    rates = []
    for pair in zip(looks, looks[1:]):
        rate = _rate(pair)
        # The span that begins last before this pair's end.
        index = bisect.bisect_left(worked, (pair[1].time, 0.0)) - 1
        if rate is not None and index >= 0 and worked[index][1] > pair[0].time:
            rates.append(rate)
    return statistics.median_high(rates) if rates else None


def _standing_still(running: Sequence[_Rank], ended: Tuple[int, ...], seconds: float) -> LifeVerdict:
    stopped = tuple(rank.of.rank for rank in running if all(look.state in tuple(_STOPPED) for look in rank.window))
    seen = [(rank.of.rank, rank.of.host, look.stack) for rank in running for look in rank.window[-1:] if look.stack]
    found = grouping.groups([(rank, host, stack) for rank, host, stack in seen if stack is not None])
    waiting = tuple(sorted(rank for group in found if group.waits for rank, _host in group.ranks))
    still = f"no output, steps, files, traffic or other work for {seconds:.0f} s"
    if stopped:
        names = ", ".join(rank.name for rank in running if rank.of.rank in stopped)
        others = tuple(rank.of.rank for rank in running if rank.of.rank not in stopped)
        return LifeVerdict(Life.HUNG, f"{still}: {names} stopped by a signal", others, stopped, found)
    unseen = [rank for rank in running if len(_stacks(rank)) < _LEAST_LOOKS]
    if unseen:
        polls = next((rank for rank in unseen if not _is_idle(rank, "cpu")), None)
        if polls is not None:
            return LifeVerdict(
                Life.UNKNOWN, f"{polls.name} uses CPU, and without its stack nobody knows whether it polls or computes"
            )
        if ended or len(unseen) < len(running):
            return LifeVerdict(Life.HUNG, still, waiting, ended, found)
        return LifeVerdict(Life.HUNG, f"{still}, no CPU use of any rank", (), (), found)
    gpu = next((rank for rank in running if _may_compute_on_gpu(rank)), None)
    if gpu is not None:
        return LifeVerdict(Life.UNKNOWN, f"{gpu.name} waits for its GPU, which is in use", (), (), found)
    missing = tuple(rank.of.rank for rank in running if rank.of.rank not in waiting)
    told = grouping.sentence(found)
    if ended and not missing:
        return LifeVerdict(
            Life.HUNG, f"{still}: {told}; ended: rank {', '.join(map(str, ended))}", waiting, ended, found
        )
    if waiting and not missing and len(found) == 1:
        receives = _RECEIVES.search(found[0].does) is not None
        hint = "nobody sends" if receives else "no rank is missing: look at the network between them"
        return LifeVerdict(Life.HUNG, f"{still}: {told}; {hint}", waiting, (), found)
    return LifeVerdict(Life.HUNG, f"{still}: {told}", waiting, missing if waiting else (), found)


def _may_compute_on_gpu(rank: _Rank) -> bool:
    stack = rank.window[-1].stack
    gpus = [look.gpu for look in rank.window if look.gpu is not None]
    return stack is not None and place(stack).gpu and not place(stack).waits and (not gpus or max(gpus) > _BUSY_GPU)


def _grew(window: Sequence[Look], name: str) -> bool:
    told = [value for value in (getattr(look, name) for look in window) if value is not None]
    return len(told) > 1 and told[-1] != told[0]


def _files(window: Sequence[Look]) -> Optional[float]:
    """Return the bytes that went to and from files: what system calls moved, without what moved on sockets."""
    first, last = window[0], window[-1]
    if None in (first.read, first.written, first.sockets, last.read, last.written, last.sockets):
        return None
    assert first.read is not None
    assert last.read is not None
    moved = (last.read - first.read) + ((last.written or 0) - (first.written or 0))
    return max(0, moved - ((last.sockets or 0) - (first.sockets or 0)))


def _rate(looks: Sequence[Look]) -> Optional[float]:
    """Return the bytes per second between the first and the last look, on sockets and networks."""
    if len(looks) < 2 or looks[-1].time <= looks[0].time:
        return None
    first, last = looks[0], looks[-1]
    total: Optional[float] = None
    for one, other in ((first.sockets, last.sockets), (first.network, last.network)):
        if one is not None and other is not None:
            total = (total or 0.0) + max(0, other - one)
    return None if total is None else total / (last.time - first.time)


def _is_idle(rank: _Rank, name: str) -> bool:
    """Return whether it, or its main thread, is known to have used no CPU time to speak of."""
    first, last = getattr(rank.window[0], name), getattr(rank.window[-1], name)
    return first is not None and last is not None and rank.span > 0 and (last - first) / rank.span <= _IDLE_CPU


def _stacks(rank: _Rank) -> List[Stack]:
    return [look.stack for look in rank.window if look.stack is not None]
