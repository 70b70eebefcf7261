"""Looks at what of a rank can be compared with the plan: its environment and its connections to other hosts."""

import os
from typing import Collection, Mapping, Optional, Sequence, Tuple

from taco_launch.agent.counters import process_trees, sockets
from taco_launch.agent.counters.process_trees import Key
from taco_launch.agent.host import processes
from taco_launch.model.run.observed import SeenRank
from taco_launch.protocol.verify_messages import RanksSeen

_MOST_VALUE = 1 << 10
# Horovod learns its world from one of these; without any, each process is a world of its own (horovod/common/operations.cc).
_OF_WORLD = frozenset(("HOROVOD_RANK", "OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK"))
_HOROVOD, _MOST_MAPS = b"/horovod/", 1 << 22
_ALONE = "Horovod, which mpirun did not start"


def seen(roots: Mapping[int, Key], variables: Collection[str]) -> RanksSeen:
    """Look at the ranks with these wrappers."""
    found = process_trees.trees(roots)
    return RanksSeen(ranks=[_seen(rank, members, variables) for rank, members in sorted(found.items())])


def _seen(rank: int, members: Sequence[Key], variables: Collection[str]) -> SeenRank:
    present = process_trees.of_rank(members)
    shown = process_trees.of_python(present) or process_trees.most_telling(present)
    told = sockets.of_processes([pid for pid, _start in members[1:]])
    env = None if shown is None else _environment(shown.pid)
    is_alone = env is not None and shown is not None and not _OF_WORLD & dict(env).keys() and _has_horovod(shown.pid)
    return SeenRank(
        rank,
        "",
        world_size=1 if is_alone else None,
        world_source=_ALONE if is_alone else "",
        env=None if env is None else tuple(pair for pair in env if pair[0] in variables),
        sockets=None if told.unknown else told.between,
    )


def _has_horovod(pid: int) -> bool:
    """Return whether a process has a library of Horovod."""
    try:
        with open(f"/proc/{pid}/maps", "rb") as file:  # it gives a page at a time
            return _HOROVOD in file.read(_MOST_MAPS)
    except OSError:  # it is gone
        return False


def _environment(pid: int) -> Optional[Tuple[Tuple[str, str], ...]]:
    """Return the variables that a process was started with; None where that cannot be read."""
    try:
        entries = processes.environment(pid, os.geteuid())
    except OSError:  # it is gone
        return None
    if not entries or not any(entries):  # another user's, or overwritten with a title
        return None
    pairs = (os.fsdecode(entry).partition("=") for entry in entries)
    told = ((name, value[:_MOST_VALUE]) for name, _equals, value in pairs)
    return tuple(sorted(told))
