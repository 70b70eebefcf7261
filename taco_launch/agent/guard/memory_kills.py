"""Find out whether the kernel killed a rank because memory ran out: cgroups of both versions count such kills."""

from pathlib import Path
from typing import Dict, NamedTuple, Optional, Tuple

_ROOT = Path("/sys/fs/cgroup")
_PROC = Path("/proc")
# Of a file of the kernel; without a limit version 1 gives the largest number of pages.
_MOST_BYTES = 1 << 16
_NO_LIMIT = 1 << 60


class _Cgroup(NamedTuple):
    """The files of a cgroup that have the kills and the limit."""

    events: Path
    limit: Path


class MemoryKills:
    """Knows how many kills the cgroup of each rank had when the rank started."""

    def __init__(self) -> None:
        """Know no rank."""
        self._before: Dict[int, Tuple[_Cgroup, int, Optional[int]]] = {}

    def begin(self, rank: int, pid: int) -> None:
        """Note the cgroup of a rank, whose wrapper is `pid`."""
        for cgroup in _cgroups(pid):
            count = _count(cgroup.events)
            if count is not None:
                self._before[rank] = cgroup, count, _count(_PROC / "vmstat")
                return

    def killed(self, rank: int) -> str:
        """Return who killed a rank by signal 9 and why, as the end of a sentence; "" if that is unknown."""
        if rank not in self._before:
            return ""
        cgroup, before, all_before = self._before[rank]
        count = _count(cgroup.events)
        if count == before and all_before is not None and _count(_PROC / "vmstat") == all_before:
            return "by a process or a user, not because memory ran out: the kernel counted no out-of-memory kill"
        # The command may have moved to another cgroup, as in a container of its own.
        if count is None or count <= before:
            return ""
        limit = _limit(cgroup.limit)
        has = (
            f"may use {limit / (1 << 30):.3g} GiB"
            if limit
            else "has no limit of its own: a parent cgroup reached its limit, or the host ran out of memory"
        )
        return f"by the kernel, because memory ran out: its cgroup {has}"


def _cgroups(pid: int) -> Tuple[_Cgroup, ...]:
    """Return where the cgroup of a process may be seen from here, the likeliest first."""
    found = []
    for line in _text(_PROC / str(pid) / "cgroup").splitlines():
        _number, controllers, path = [*line.split(":", 2), "", ""][:3]
        if ".." in path.split("/"):  # out of sight
            continue
        if "memory" in controllers.split(","):
            # A container may have a cgroup mounted as if it were the root.
            folders = (_ROOT / "memory" / path.lstrip("/"), _ROOT / "memory")
            found += [_Cgroup(folder / "memory.oom_control", folder / "memory.limit_in_bytes") for folder in folders]
        elif not controllers:
            folder = _ROOT / path.lstrip("/")
            found.append(_Cgroup(folder / "memory.events", folder / "memory.max"))
    return tuple(found)


def _limit(file: Path) -> Optional[int]:
    """Return the smallest limit in bytes of a cgroup and of those above it that are in sight; None without one."""
    texts = [_text(folder / file.name).strip() for folder in file.parents if folder == _ROOT or _ROOT in folder.parents]
    return min((int(text) for text in texts if text.isdecimal() and int(text) < _NO_LIMIT), default=None)


def _count(file: Path) -> Optional[int]:
    """Return how many processes the kernel has killed because memory ran out, None where a file does not tell."""
    for line in _text(file).splitlines():
        name, _blank, value = line.partition(" ")
        if name == "oom_kill" and value.isdecimal():
            return int(value)
    return None


def _text(path: Path) -> str:
    try:
        with path.open(encoding="ascii", errors="replace") as file:
            return file.read(_MOST_BYTES)
    except OSError:
        return ""
