"""The verdict of what all ranks of a job were seen doing while none made progress: working, hung, or unknown."""

import re
import statistics
from typing import List, Sequence, Tuple

from taco_launch.core.model.run.rank_samples import Life, LifeVerdict
from taco_launch.core.model.stalls import HANGS, STOPPED, RankLook, reason, telling
from taco_launch.core.stalls import groups as grouping

# Traffic below this share of what the job had when it worked is keep-alives: Horovod's coordinator alone has 0.5 %.
_SHARE_OF_TRAFFIC = 0.05
# Where it is not known how much that was: what coordinators, watchdogs and NCCL's RAS exchange stays below, per rank.
_LEAST_TRAFFIC = 128 << 10
_RECEIVES = re.compile(r"\bin \S*(?:recv|Recv|Mprobe|Probe)")


def judge(ranks: Sequence[RankLook], ended: Tuple[int, ...], how_long: str, *, all_seen: bool = True) -> LifeVerdict:
    """Return what a job does whose running `ranks`, at least one, have made no progress of their own.

    `how_long` is in words: "for 10 s"; `all_seen` says that no other rank may run. HUNG needs that every rank is known to wait or to stand still. What lacks leaves it UNKNOWN.
    """
    traffic = _traffic(ranks)
    if traffic:
        return LifeVerdict(Life.WORKING, traffic)
    still = f"{HANGS} {how_long}"
    stopped = tuple(sorted(look.rank for look in ranks if look.state and look.state in STOPPED))
    found = grouping.groups([look for look in ranks if look.does])
    waiting = tuple(sorted(rank for group in found if group.waits for rank, _host in group.ranks))
    if stopped:
        others = tuple(sorted(look.rank for look in ranks if look.rank not in stopped))
        return LifeVerdict(Life.HUNG, f"{still}; {reason(len(ranks), telling(ranks))}", others, stopped)
    unseen = [look for look in ranks if not look.does]
    polls = next((look for look in unseen if not look.idle), None)
    if polls is not None:
        why = f"{_name(polls)} uses CPU, and its stack cannot be read: it may poll or compute"
        return LifeVerdict(Life.UNKNOWN, why)
    computes = next((look for look in ranks if look.gpu and not look.waits), None)
    if computes is not None:
        return LifeVerdict(Life.UNKNOWN, f"{_name(computes)} waits {computes.does} for its GPU, which may be computing")
    if unseen:
        return LifeVerdict(Life.HUNG, f"{still}; {reason(len(ranks), telling(ranks))}", waiting, ended)
    missing = tuple(sorted(look.rank for look in ranks if look.rank not in waiting))
    told = grouping.sentence(found)
    if ended and not missing:
        numbers = ", ".join(map(str, ended))
        return LifeVerdict(Life.HUNG, f"{still}: {told}; ended: rank {numbers}", waiting, ended)
    if waiting and not missing and len(found) == 1 and all_seen:
        receives = _RECEIVES.search(found[0].does) is not None
        hint = "no rank sends" if receives else "no rank is missing: look at the network between them"
        return LifeVerdict(Life.HUNG, f"{still}: {told}; {hint}", waiting)
    return LifeVerdict(Life.HUNG, f"{still}: {told}", waiting, missing if waiting else ())


def _traffic(ranks: Sequence[RankLook]) -> str:
    """Return which rank exchanges about as much as when the job worked, or, where that is not known, more than keep-alives."""
    unknown: List[float] = []
    for look in ranks:
        if look.rate is None:
            continue
        if look.usual is None or look.usual <= _LEAST_TRAFFIC:
            unknown.append(look.rate)
        elif look.rate > _SHARE_OF_TRAFFIC * look.usual:
            return f"{_name(look)} exchanges {look.rate:.0f} bytes/s, {100 * look.rate / look.usual:.0f} % of its earlier rate"
    # The coordinator's rank has the keep-alives of all others: the middle one tells.
    if unknown and statistics.median_low(unknown) > _LEAST_TRAFFIC:
        return f"the ranks exchange {statistics.median_low(unknown):.0f} bytes/s each"
    return ""


def _name(look: RankLook) -> str:
    return f"rank {look.rank} on {look.host}"


_STALLS = re.compile(
    r"One or more tensors were submitted to be reduced|Stalled ranks:|Stalled ops:|missing ranks:|ready ranks:"
    r"|^\s*\d+: \[[\w. ,/:-]+\]\s*$|Watchdog caught collective operation timeout|\[Rank \d+\] .*(?:[Tt]imeout|heartbeat)"
    r"|Heartbeat monitor|still waiting for|failed to connect, retrying|retrying in \d|waiting for (?:all )?workers",
)
MOST_LINE = 4096


def is_stall(line: str) -> bool:
    """Return whether a line of output only says that the program waits."""
    return _STALLS.search(line[:MOST_LINE]) is not None
