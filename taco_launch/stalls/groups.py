"""Ranks that do the same, as groups, the odd one first; and in a sentence."""

from typing import Dict, List, Sequence, Tuple

from taco_launch.model.run.looks import Stack, StackGroup
from taco_launch.stalls.waits import Place, place

_MOST_NAMED = 3


def groups(stacks: Sequence[Tuple[int, str, Stack]]) -> Tuple[StackGroup, ...]:
    """Group (rank, host, stack): those that wait for nobody come first, then the smaller group."""
    found: Dict[Place, List[Tuple[int, str]]] = {}
    for rank, host, stack in stacks:
        found.setdefault(place(stack), []).append((rank, host))
    made = [StackGroup(tuple(sorted(ranks)), does(where), where.waits) for where, ranks in found.items()]
    return tuple(sorted(made, key=lambda group: (group.waits, len(group.ranks), group.ranks)))


def does(where: Place) -> str:
    """Return what a rank does there: `in hvd.allreduce at train.py:57`, `in load_batch at data.py:19`."""
    at = f" at {where.line}" if where.line else ""
    if where.call:
        return f"in {where.call}{at}"
    inside = f" (in {where.inside})" if where.inside and where.inside != where.function else ""
    return f"in {where.function}{at}{inside}"


def sentence(found: Sequence[StackGroup]) -> str:
    """Return the groups in one line: "rank 5 on gpu3 is in load_batch at data.py:19; 15 ranks wait in hvd.allreduce at train.py:57"."""
    return "; ".join(_words(group) for group in found)


def _words(group: StackGroup) -> str:
    count = len(group.ranks)
    if count == 1:
        rank, host = group.ranks[0]
        who = f"rank {rank} on {host}"
        return f"{who} waits {group.does}" if group.waits else f"{who} is {group.does}"
    named = ", ".join(f"{rank} on {host}" for rank, host in group.ranks[:_MOST_NAMED])
    who = f"ranks {named}" if count <= _MOST_NAMED else f"{count} ranks"
    return f"{who} wait {group.does}" if group.waits else f"{who} are {group.does}"
