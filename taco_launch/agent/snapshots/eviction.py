"""Snapshots that were not used for long are removed, where together they are larger than a limit, or somebody asks for it.

`agent snapshot-evict STATE SECONDS [--dry-run]` does so on a host that is not the head.
"""

import contextlib
import fcntl
import os
import sys
import time
from pathlib import Path
from typing import Dict, Iterable, List, NamedTuple, Set, Tuple

from taco_launch.agent.snapshots import recycled_tree
from taco_launch.agent.snapshots.store import PART, DamagedError, SnapshotStore, checked
from taco_launch.agent.store import records, untrusted
from taco_launch.agent.store.folders import Jobs
from taco_launch.core import manifest
from taco_launch.core.errors import OK, TacoLaunchError
from taco_launch.core.protocol.calls.snapshots import SnapshotsRemoved

# Of the chunks of all snapshots on a host: 32 GiB, or an eighth of the file system where that is less.
MOST_BYTES = 32 << 30
_PART_OF_DISK = 8
# A job that was just submitted, or is being copied, uses one that no record names yet.
_FRESH_SECONDS = 600.0
# What nobody has finished to bring here by then, nobody will.
_LEFT_SECONDS = 86400.0


class Removed(NamedTuple):
    """How many snapshots were removed, and the bytes that this freed."""

    snapshots: int
    bytes: int


class _Kept(NamedTuple):
    name: str
    used: float
    chunks: Dict[str, int]


def shrink(store: SnapshotStore, keep: str = "", most: int = 0) -> Removed:
    """Remove the snapshots that were used the longest ago, until no more than `most` bytes are kept (0: as MOST_BYTES says)."""
    try:
        disk = os.statvfs(store.path)
    except OSError:
        return Removed(0, 0)
    most = most or min(MOST_BYTES, disk.f_blocks * disk.f_frsize // _PART_OF_DISK)
    size = sum(size for _path, size in _files(store))
    if size <= most:
        return Removed(0, 0)
    recycled_tree.remove(store)
    every = {kept.name: kept for kept in _snapshots(store)}
    names: List[str] = []
    for kept in sorted(_idle(store, every.values(), 0.0), key=lambda kept: kept.used):
        if size > most and kept.name != keep:
            del every[kept.name]
            others = set().union(*(other.chunks for other in every.values()))
            size -= sum(count for chunk, count in kept.chunks.items() if chunk not in others)
            names.append(kept.name)
    return _remove(store, names, dry_run=False)


def prune(store: SnapshotStore, since: float, *, dry_run: bool) -> Removed:
    """Remove the snapshots that were last used more than `since` seconds ago and that no job needs; `dry_run` only counts."""
    found = _remove(store, [kept.name for kept in _idle(store, _snapshots(store), since)], dry_run=dry_run)
    return found._replace(bytes=found.bytes + recycled_tree.remove(store, since, dry_run=dry_run))


def _idle(store: SnapshotStore, every: Iterable[_Kept], since: float) -> List[_Kept]:
    """Return the snapshots that nobody has used for so many seconds and no job needs."""
    now, used = time.time(), in_use(store)
    found = []
    for kept in every:
        least = _LEFT_SECONDS if kept.name.endswith(PART) else _FRESH_SECONDS
        if now - kept.used > max(since, least) and kept.name not in used:
            found.append(kept)
    return found


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
    """Return every snapshot that is here, whole or not, with its chunks; what is none is left out, and its chunks go."""
    found = []
    try:
        entries = list(os.scandir(store.manifests))
    except OSError:
        return []
    for entry in entries:
        snapshot = entry.name[: -len(PART)] if entry.name.endswith(PART) else entry.name
        if not manifest.is_hash(snapshot):
            continue
        with contextlib.suppress(OSError, DamagedError):
            text = untrusted.read(store.manifests / entry.name, manifest.MOST_BYTES)
            used = entry.stat(follow_symlinks=False).st_mtime
            found.append(_Kept(entry.name, used, manifest.sizes(checked(snapshot, text))))
    return found


def _files(store: SnapshotStore) -> List[Tuple[str, int]]:
    """Return every file below the chunks' folder, with its size."""
    found = []
    for folder, _folders, names in os.walk(store.chunks):
        for name in names:
            path = f"{folder}/{name}"
            with contextlib.suppress(OSError):
                found.append((path, os.lstat(path).st_size))
    return found


def _remove(store: SnapshotStore, names: List[str], *, dry_run: bool) -> Removed:
    """Remove manifests, unless a guard holds one, and the chunks that no other snapshot has."""
    gone = [name for name in names if dry_run or _unlink(store, name)]
    left = set().union(*(kept.chunks for kept in _snapshots(store) if kept.name not in gone))
    # A chunk that no snapshot has may be one that is being brought.
    oldest = time.time() - (_FRESH_SECONDS if gone else _LEFT_SECONDS)
    freed = 0
    for path, size in _files(store):
        with contextlib.suppress(OSError):
            if os.path.basename(path) not in left and os.lstat(path).st_mtime < oldest:  # noqa: PTH119
                if not dry_run:
                    os.unlink(path)  # noqa: PTH108
                freed += size
    return Removed(len(gone), freed)


def _unlink(store: SnapshotStore, name: str) -> bool:
    path = store.manifests / name
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
