"""Looks at what of a rank can be compared with the plan: its environment and its connections to other hosts."""

import os
from typing import Collection, Mapping, Optional, Sequence, Tuple

from taco_launch.agent.counters import process_trees, sockets
from taco_launch.agent.counters.process_trees import Key
from taco_launch.agent.host import processes
from taco_launch.model.run.observed import SeenRank
from taco_launch.protocol.verify_messages import RanksSeen

_MOST_VALUE = 1 << 10


def seen(roots: Mapping[int, Key], variables: Collection[str]) -> RanksSeen:
    """Look at the ranks with these wrappers."""
    found = process_trees.trees(roots)
    return RanksSeen(ranks=[_seen(rank, members, variables) for rank, members in sorted(found.items())])


def _seen(rank: int, members: Sequence[Key], variables: Collection[str]) -> SeenRank:
    present = process_trees.of_rank(members)
    shown = process_trees.of_python(present) or process_trees.most_telling(present)
    told = sockets.of_processes([pid for pid, _start in members[1:]])
    return SeenRank(
        rank,
        "",
        env=None if shown is None else _environment(shown.pid, variables),
        sockets=None if told.unknown else told.between,
    )


def _environment(pid: int, variables: Collection[str]) -> Optional[Tuple[Tuple[str, str], ...]]:
    """Return those of the variables that a process was started with; None where that cannot be read."""
    try:
        entries = processes.environment(pid, os.geteuid())
    except OSError:  # it is gone
        return None
    if not entries or not any(entries):  # another user's, or overwritten with a title
        return None
    pairs = (os.fsdecode(entry).partition("=") for entry in entries)
    told = ((name, value[:_MOST_VALUE]) for name, _equals, value in pairs)
    return tuple(sorted((name, value) for name, value in told if name in variables))
