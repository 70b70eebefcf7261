"""Lists the files of this host that are locked (flock), from /proc/locks, without taking a lock."""

import os
import re
from typing import Container, Dict, FrozenSet, List, NamedTuple, Set, Tuple

# proc(5): `1: FLOCK  ADVISORY  WRITE 708 08:01:12345 0 EOF`; who waits for a lock comes behind it with `->`.
_LOCK = re.compile(r"^\d+: FLOCK +\S+ +\S+ +(\d+) ([0-9a-f]+):([0-9a-f]+):(\d+) ", re.MULTILINE)
# Any user may have any number of locks: the text is not held as a whole.
_PIECE = 1 << 20


class Lock(NamedTuple):
    """A flock(2) that somebody holds: the process that took it, the file's device (as st_dev) and its inode."""

    pid: int
    device: int
    inode: int


class Locks:
    """The locks at one moment."""

    def __init__(self, held: FrozenSet[Lock]) -> None:
        """Index them by inode."""
        self._by_inode: Dict[int, List[Lock]] = {}
        for lock in held:
            self._by_inode.setdefault(lock.inode, []).append(lock)

    def takers(self, file: os.stat_result, known: Container[int] = ()) -> Tuple[int, ...]:
        """Return the processes that have locked a file; `known` are those that are said to have had it last.

        Btrfs and overlayfs show another device in /proc/locks than stat does: there the process has to be a known one.
        """
        locks = self._by_inode.get(file.st_ino, ())
        return tuple(lock.pid for lock in locks if lock.device == file.st_dev or lock.pid in known)


def parse(text: str) -> FrozenSet[Lock]:
    """Read /proc/locks."""
    return frozenset(
        Lock(int(pid), os.makedev(int(major, 16), int(minor, 16)), int(inode))
        for pid, major, minor, inode in _LOCK.findall(text)
    )


def read() -> Locks:
    """Return the locks that are held now.

    Raises:
        OSError: they cannot be read.
    """
    held: Set[Lock] = set()
    with open("/proc/locks", encoding="ascii", errors="replace") as lines:
        for piece in iter(lambda: lines.readlines(_PIECE), []):
            held |= parse("".join(piece))
    return Locks(frozenset(held))
