"""Torch's flight recorder: the last collectives of each rank, which of them a rank has not joined, and which do not match.

Torch writes it as JSON or as a pickle. Both are read: the pickle by `plain`, which makes no objects, since it alone has
the lines of the program.
"""

import json
from typing import Any, Dict, List, Mapping, NamedTuple, Optional, Tuple

from taco_launch.model.run.looks import Frame
from taco_launch.stalls.plain import NotPlainError, loads
from taco_launch.stalls.waits import is_library

_MOST_ENTRIES, _MOST_GROUPS, _MOST_TEXT, _MOST_TENSORS = 100_000, 4096, 200, 8


class Collective(NamedTuple):
    """One collective of one rank: its process group, number, name (`gloo:all_reduce`), sizes, state, and where it was called.

    `state` is scheduled, started or completed; `is_done` also where it is retired without a state (Gloo).
    """

    group: str
    number: int
    name: str
    sizes: str
    state: str
    is_done: bool
    line: str


class Recording(NamedTuple):
    """What one rank's flight recorder holds: its collectives, oldest first, and the ranks of each group."""

    collectives: Tuple[Collective, ...]
    ranks: Tuple[Tuple[str, Tuple[int, ...]], ...]


class Disagreement(NamedTuple):
    """A collective that some ranks of a group wait in: which ranks, where, who has not joined, and who called another one."""

    group: str
    number: int
    name: str
    line: str
    waiting: Tuple[int, ...]
    missing: Tuple[int, ...]
    others: Tuple[Tuple[int, str], ...]

    def __str__(self) -> str:
        """Return it in a sentence."""
        at = f" at {self.line}" if self.line else ""
        who = f"ranks {_listed(self.waiting)} wait" if len(self.waiting) > 1 else f"rank {_listed(self.waiting)} waits"
        waiting = f"{who} in {self.name}{at} (number {self.number} of group {self.group})"
        if self.others:
            rank, name = self.others[0]
            return f"{waiting}, where rank {rank} calls {name}"
        if self.missing:
            absent = (
                f"ranks {_listed(self.missing)} have" if len(self.missing) > 1 else f"rank {_listed(self.missing)} has"
            )
            return f"{waiting}; {absent} not joined"
        return f"{waiting}; every rank has joined: look at the network between them"


def read(data: bytes) -> Recording:
    """Read a dump of one rank, JSON or pickle.

    Raises:
        ValueError: it is neither, cut, or no flight recorder's; says which.
    """
    if data[:1] == b"{":
        try:
            found = json.loads(data)
        except (ValueError, RecursionError) as error:
            raise ValueError(f"no whole JSON: {error}") from None
    else:
        found = loads(data)
    if not isinstance(found, dict) or not isinstance(found.get("entries"), list):
        raise NotPlainError("no flight recorder's dump: it has no entries")
    entries = (_collective(entry) for entry in found["entries"][-_MOST_ENTRIES:])
    return Recording(tuple(entry for entry in entries if entry is not None), _groups(found))


def verdict(recordings: Mapping[int, Recording], ranks: int) -> Tuple[Disagreement, ...]:
    """Return what the ranks wait in, by process group; `recordings` is by rank, `ranks` the world size.

    A rank whose recorder has been overwritten, or was not read, is not said to be missing.
    """
    found: List[Disagreement] = []
    for group in sorted({one.group for recording in recordings.values() for one in recording.collectives}):
        by_rank = {
            rank: [one for one in recording.collectives if one.group == group] for rank, recording in recordings.items()
        }
        told = _of_group(group, by_rank, _members(group, recordings, ranks))
        if told is not None:
            found.append(told)
    return tuple(found)


def _of_group(group: str, by_rank: Mapping[int, List[Collective]], members: Tuple[int, ...]) -> Optional[Disagreement]:
    pending = {rank: next((one for one in mine if not one.is_done), None) for rank, mine in by_rank.items()}
    waiting = {rank: one for rank, one in pending.items() if one is not None}
    if not waiting:
        return None
    number = min(one.number for one in waiting.values())
    here = {rank: one for rank, one in waiting.items() if one.number == number}
    # What most ranks call is what was meant.
    names = [(one.name, one.sizes) for one in here.values()]
    usual = max(sorted(set(names)), key=names.count)
    first = next(one for one in here.values() if (one.name, one.sizes) == usual)
    mine = tuple(sorted(rank for rank, one in here.items() if (one.name, one.sizes) == usual))
    others = tuple(sorted((rank, _called(one, usual)) for rank, one in here.items() if rank not in mine))
    joined = {rank for rank, of in by_rank.items() if any(one.number >= number for one in of)}
    missing = tuple(rank for rank in members if rank in by_rank and rank not in joined)
    return Disagreement(group, number, usual[0], first.line, mine, missing, others)


def _called(one: Collective, usual: Tuple[str, str]) -> str:
    at = f" at {one.line}" if one.line else ""
    return f"{one.name}{at}" if one.name != usual[0] else f"{one.name} of {one.sizes} instead of {usual[1]}{at}"


def _members(group: str, recordings: Mapping[int, Recording], ranks: int) -> Tuple[int, ...]:
    for recording in recordings.values():
        for name, members in recording.ranks:
            if members and name in (group, ""):
                return members
    return tuple(range(ranks))


def _collective(entry: Any) -> Optional[Collective]:
    if not isinstance(entry, dict) or entry.get("is_p2p") is True:
        return None
    group = entry.get("process_group")
    number, name, state = entry.get("collective_seq_id"), entry.get("profiling_name"), entry.get("state")
    if (
        not isinstance(group, (list, tuple))
        or len(group) != 2
        or not isinstance(number, int)
        or isinstance(number, bool)
    ):
        return None
    if not isinstance(name, str) or not isinstance(state, str):
        return None
    label, words = _text(group[0]), _text(group[1])
    label = f"{label} ({words})" if words not in ("", label) else label
    done = state == "completed" or entry.get("retired") is True
    sizes = _sizes(entry.get("input_sizes"))
    return Collective(label, number, name[:_MOST_TEXT], sizes, state, done, _line(entry.get("frames")))


def _line(frames: Any) -> str:
    """Return the line of the user's file that a collective was called at, "" where there is none."""
    if not isinstance(frames, list):
        return ""
    for one in frames[:100]:
        if isinstance(one, dict) and isinstance(one.get("filename"), str) and isinstance(one.get("line"), int):
            frame = Frame(_text(one.get("name")), one["filename"], one["line"])
            if not is_library(frame):
                return f"{frame.file.rpartition('/')[2][:_MOST_TEXT]}:{frame.line}"
    return ""


def _groups(found: Dict[Any, Any]) -> Tuple[Tuple[str, Tuple[int, ...]], ...]:
    config = found.get("pg_config")
    if not isinstance(config, dict):
        return ()
    made = []
    for name, told in list(config.items())[:_MOST_GROUPS]:
        ranks = told.get("ranks") if isinstance(told, dict) else None
        try:
            members = json.loads(ranks) if isinstance(ranks, str) else ranks
        except (ValueError, RecursionError):
            continue
        if isinstance(members, list) and all(isinstance(rank, int) for rank in members):
            made.append((_text(name), tuple(members)))
    return tuple(made)


def _text(value: Any) -> str:
    """Return a text or a number as text; anything else may hold itself, or more than there is room for."""
    return str(value)[:_MOST_TEXT] if isinstance(value, (str, int)) else ""


def _sizes(value: Any) -> str:
    """Return the sizes of tensors, `[1000] [3, 4]`."""
    tensors = value[:_MOST_TENSORS] if isinstance(value, list) else []
    shapes = [[_text(size) for size in tensor[:_MOST_TENSORS]] for tensor in tensors if isinstance(tensor, list)]
    return " ".join(f"[{', '.join(shape)}]" for shape in shapes)[:_MOST_TEXT]


def _listed(ranks: Tuple[int, ...]) -> str:
    shown = ", ".join(map(str, ranks[:8]))
    return f"{shown}, ... ({len(ranks)} ranks)" if len(ranks) > 8 else shown
