"""Snapshots that were not used for long are removed, where together they are larger than a limit, or somebody asks for it.

`agent snapshot-evict STATE SECONDS [--dry-run]` does so on a host that is not the head.
"""

import contextlib
import fcntl
import math
import os
import shutil
import sys
import time
from pathlib import Path
from typing import List, NamedTuple, Set

from taco_launch.agent.snapshots import recycled_tree
from taco_launch.agent.snapshots.store import PART, DamagedError, SnapshotStore, header_of
from taco_launch.agent.store import records, untrusted
from taco_launch.agent.store.folders import Jobs
from taco_launch.core import manifest
from taco_launch.core.errors import OK, TacoLaunchError
from taco_launch.core.protocol.calls.snapshots import SnapshotsRemoved

# Of all snapshots on a host: 32 GiB, or an eighth of the file system where that is less.
MOST_BYTES = 32 << 30
_PART_OF_DISK = 8
# A job that was just submitted, or is being copied, uses one that no record names yet.
_FRESH_SECONDS = 600.0
# What nobody has finished to bring here by then, nobody will.
_LEFT_SECONDS = 86400.0


# Where 0.1 kept snapshots: a file for each content, and a list for each snapshot.
_OF_OLD = ("chunks", "manifests")


class Removed(NamedTuple):
    """How many snapshots were removed, and the bytes that this freed."""

    snapshots: int
    bytes: int


class _Kept(NamedTuple):
    name: str
    used: float
    size: int
    base: str


def shrink(store: SnapshotStore, keep: str = "", most: int = 0) -> Removed:
    """Remove the snapshots that were used the longest ago, until no more than `most` bytes are kept (0: as MOST_BYTES says)."""
    try:
        disk = os.statvfs(store.path)
    except OSError:
        return Removed(0, 0)
    _remove_old(store)
    most = most or min(MOST_BYTES, disk.f_blocks * disk.f_frsize // _PART_OF_DISK)
    every = _snapshots(store)
    size = sum(kept.size for kept in every)
    if size <= most:
        return Removed(0, 0)
    recycled_tree.remove(store)
    return _remove(store, every, 0.0, keep=keep, surplus=size - most)


def prune(store: SnapshotStore, since: float, *, dry_run: bool) -> Removed:
    """Remove the snapshots that were last used more than `since` seconds ago and that no job needs; `dry_run` only counts."""
    if not dry_run:
        _remove_old(store)
    found = _remove(store, _snapshots(store), since, dry_run=dry_run)
    return found._replace(bytes=found.bytes + recycled_tree.remove(store, since, dry_run=dry_run))


def _remove(
    store: SnapshotStore,
    every: List[_Kept],
    since: float,
    *,
    dry_run: bool = False,
    keep: str = "",
    surplus: float = math.inf,
) -> Removed:
    """Remove snapshots unused for `since` seconds, oldest first, until `surplus` bytes are free; a base goes after what needs it."""
    now, used = time.time(), {*in_use(store), keep}
    remaining, freed = {kept.name: kept for kept in every}, 0
    for kept in sorted(every, key=lambda kept: (not kept.base, kept.used)):
        least = _LEFT_SECONDS if kept.name.endswith(PART) else _FRESH_SECONDS
        is_needed = kept.name in used or any(other.base == kept.name for other in remaining.values())
        if is_needed or freed >= surplus or now - kept.used <= max(since, least):
            continue
        if dry_run or _unlink(store, kept.name):
            del remaining[kept.name]
            freed += kept.size
    return Removed(len(every) - len(remaining), freed)


def _remove_old(store: SnapshotStore) -> None:
    """Remove what an earlier version kept, once it has not used it for long."""
    for name in _OF_OLD:
        folder = store.path / name
        with contextlib.suppress(OSError):
            if time.time() - folder.lstat().st_mtime > _LEFT_SECONDS:
                shutil.rmtree(folder, ignore_errors=True)


def main(state: Path, since: float, dry_run: bool = False) -> int:
    """Do so on another host than the head, and say what was removed."""
    found = prune(SnapshotStore(state), since, dry_run=dry_run)
    sys.stdout.buffer.write(SnapshotsRemoved(snapshots=found.snapshots, freed=found.bytes).encode())
    sys.stdout.buffer.flush()
    return OK


def in_use(store: SnapshotStore) -> Set[str]:
    """Return the snapshots of jobs that have not ended and whose head this host is; guards hold theirs themselves."""
    jobs, found = Jobs(store.path.parent), set()
    for name in jobs.pending():
        folder = jobs.folder(name)
        with contextlib.suppress(TacoLaunchError, OSError):
            code = records.read_spec(folder).code
            if code is not None and not records.record(folder).state.is_terminal:
                found.add(code.id)
    return found


def _snapshots(store: SnapshotStore) -> List[_Kept]:
    """Return every snapshot that is here, whole or not."""
    found = []
    with contextlib.suppress(OSError):
        for entry in os.scandir(store.packs):
            if not manifest.is_hash(entry.name.partition(".")[0]):
                continue
            with contextlib.suppress(OSError):
                status, base = entry.stat(follow_symlinks=False), ""
                with contextlib.suppress(OSError, DamagedError):
                    base = header_of(Path(entry.path)).base
                found.append(_Kept(entry.name, status.st_mtime, status.st_size, base))
    return found


def _unlink(store: SnapshotStore, name: str) -> bool:
    path = store.packs / name
    try:
        file = untrusted.open_regular(path)
    except OSError:
        return False
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        path.unlink()
    except OSError:
        return False
    finally:
        os.close(file)
    return True
