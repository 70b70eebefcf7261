"""Ranks that do the same, as groups, the odd one first; and in a sentence."""

from typing import Dict, List, Sequence, Tuple

from taco_launch.core.model.run.rank_samples import StackGroup
from taco_launch.core.model.stalls import RankLook
from taco_launch.core.stalls.waits import Place

_MOST_NAMED = 3
_MOST_GROUPS = 4


def groups(looks: Sequence[RankLook]) -> Tuple[StackGroup, ...]:
    """Group ranks whose stacks are known: those that wait for no other come first, then the smaller group."""
    found: Dict[Tuple[bool, str], List[Tuple[int, str]]] = {}
    for look in looks:
        found.setdefault((look.waits, look.does), []).append((look.rank, look.host))
    made = [StackGroup(tuple(sorted(ranks)), does, waits) for (waits, does), ranks in found.items()]
    return tuple(sorted(made, key=lambda group: (group.waits, len(group.ranks), group.ranks)))


def describe_activity(where: Place) -> str:
    """Return what a rank does there: `in hvd.allreduce at train.py:57`, `in load_batch at data.py:19`."""
    at = f" at {where.line}" if where.line else ""
    if where.call:
        return f"in {where.call}{at}"
    inside = f" (in {where.inside})" if where.inside and where.inside != where.function else ""
    return f"in {where.function}{at}{inside}"


def sentence(found: Sequence[StackGroup]) -> str:
    """Return the groups in one line: "rank 5 on gpu3 is in load_batch at data.py:19; 15 ranks wait in hvd.allreduce at train.py:57"."""
    left = len(found) - _MOST_GROUPS
    more = [f"{left} more group{'s' if left > 1 else ''} of ranks"] if left > 0 else []
    return "; ".join((*map(words, found[:_MOST_GROUPS]), *more))


def words(group: StackGroup) -> str:
    """Return what the ranks of a group do."""
    count = len(group.ranks)
    if count == 1:
        rank, host = group.ranks[0]
        who = f"rank {rank} on {host}"
        return f"{who} waits {group.does}" if group.waits else f"{who} is {group.does}"
    hosts = {host for _rank, host in group.ranks}
    if len(hosts) == 1:
        named = f"{', '.join(str(rank) for rank, _host in group.ranks[:_MOST_NAMED])} on {hosts.pop()}"
    else:
        named = ", ".join(f"{rank} on {host}" for rank, host in group.ranks[:_MOST_NAMED])
    who = f"ranks {named}" if count <= _MOST_NAMED else f"{count} ranks"
    return f"{who} wait {group.does}" if group.waits else f"{who} are {group.does}"
