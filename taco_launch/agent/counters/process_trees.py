"""The processes of a rank: which there are, which one tells most, and which one runs its program in Python."""

import os
from typing import Collection, Dict, List, Mapping, NamedTuple, Optional, Sequence, Set, Tuple

from taco_launch.agent.host import processes

Key = Tuple[int, int]  # pid, start
# A launcher within a rank (`accelerate launch`) uses less than this part of what its program uses.
_LAUNCHER_SHARE = 0.25
_MOST_BYTES = 1 << 12


class RankProcess(NamedTuple):
    """A process of a rank: its number, its letter in /proc/PID/stat and the CPU time that it has used, in clock ticks."""

    pid: int
    state: str
    ticks: int
    start: int


def trees(roots: Mapping[int, Key]) -> Dict[int, List[Key]]:
    """Find the processes of each rank; its wrapper, to which its orphans come, is the first. Empty where that is gone."""
    children: Dict[int, List[processes.Process]] = {}
    for entry in filter(None, map(processes.identify, processes.pids())):
        children.setdefault(entry.parent, []).append(entry)
    found: Dict[int, List[Key]] = {}
    for rank, root in roots.items():
        inside: Set[int] = set()
        keys = [root] if processes.lives(*root) else []
        more = list(keys)
        while more:
            pid, _start = more.pop()
            below = [entry for entry in children.get(pid, []) if entry.pid not in inside]
            inside.update(entry.pid for entry in below)
            keys += [(entry.pid, entry.start) for entry in below]
            more += [(entry.pid, entry.start) for entry in below]
        found[rank] = keys
    return found


def of_rank(keys: Sequence[Key]) -> List[RankProcess]:
    """Look at the processes of a rank, without its wrapper."""
    return look_at(keys[1:])


def look_at(keys: Sequence[Key]) -> List[RankProcess]:
    """Look at processes; those that are gone are left out."""
    return [one for key in keys for one in [_look(key)] if one is not None]


def most_telling(found: Collection[RankProcess]) -> Optional[RankProcess]:
    """Return the process that tells most: the others may wait for one that is stopped; else that which did the work."""
    return max(found, key=lambda one: (one.state in "TtD", one.state != "Z", one.ticks, one.start), default=None)


def of_python(found: Collection[RankProcess]) -> Optional[RankProcess]:
    """Return the process that runs a rank's program in Python: the oldest one, or what a launcher has started."""
    known = sorted((one for one in found if runs_python(one.pid)), key=lambda one: (one.start, one.pid))
    if not known:
        return None
    busiest = max(known, key=lambda one: one.ticks)
    return busiest if known[0].ticks < _LAUNCHER_SHARE * busiest.ticks else known[0]


def where(pid: int) -> str:
    """Return what a process waits for in the kernel: a function's name, or the number of a system call; "" if not known."""
    function = word(pid, "wchan")
    if function not in ("", "0"):
        return f"in {function}"
    number = word(pid, "syscall").partition(" ")[0]
    return f"in system call {number}" if number.isdecimal() else ""


def word(pid: int, name: str) -> str:
    """Return what /proc/PID has under a name; "" where the process is gone or another user's."""
    try:
        with open(f"/proc/{pid}/{name}", encoding="utf-8", errors="replace") as file:
            return file.read(_MOST_BYTES).strip()
    except OSError:
        return ""


def _look(key: Key) -> Optional[RankProcess]:
    """Read fields 3, 14, 15 and 22 of /proc/PID/stat, proc(5)."""
    fields = word(key[0], "stat").rpartition(")")[2].split()
    if len(fields) < 20 or fields[19] != str(key[1]):
        return None
    return RankProcess(key[0], fields[0], int(fields[11]) + int(fields[12]), key[1])


def runs_python(pid: int) -> bool:
    """Return whether a process runs Python; False where that cannot be read."""
    try:
        return os.path.basename(os.readlink(f"/proc/{pid}/exe")).startswith("python")  # noqa: PTH119 - may be gone
    except OSError:
        return False
