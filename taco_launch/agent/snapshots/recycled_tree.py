"""The tree of an attempt that has ended, for the next one on its host: what ranks wrote is left to the job, the code is kept.

Writing a tree anew takes longer than all else that an unchanged one costs; checking one that is there does not. One tree is kept
on a host. It goes by the rules of the store: whoever takes it believes nothing that it holds.
"""

import contextlib
import os
import shutil
import stat
import time
from pathlib import Path
from typing import List, Optional

from taco_launch.agent.snapshots.store import DamagedError, SnapshotStore
from taco_launch.agent.store import records
from taco_launch.agent.store.folders import JobFolder
from taco_launch.core.errors import TacoLaunchError
from taco_launch.core.manifest import Manifest

# A guard looks through a tree for so long; a larger one stays where it is.
_SECONDS = 2.0


def note(folder: JobFolder, snapshot: str) -> None:
    """Note that the tree of an attempt is written: what changes later is its ranks'."""
    records.write_json(_stamp(folder), {"snapshot": snapshot})


def take(store: SnapshotStore, to: Path) -> None:
    """Move the tree that is kept to a path, if there is one."""
    with contextlib.suppress(OSError):
        store.spare.rename(to)


def keep(folder: JobFolder, store: SnapshotStore) -> None:
    """Keep the tree of an attempt whose processes are all gone; what its ranks have written stays in the job's folder.

    Whatever cannot be done leaves the tree where it is.
    """
    with contextlib.suppress(OSError, TacoLaunchError, ValueError, TypeError, KeyError, DamagedError):
        told = records.read_json(_stamp(folder))
        written_at = _stamp(folder).lstat().st_ctime_ns
        manifest = store.read(str(told["snapshot"]))[0] if isinstance(told, dict) else None
        outputs = None if manifest is None else _outputs(folder.code, manifest, written_at)
        if outputs is None:
            return
        moved = store.path / f".tree.{os.urandom(6).hex()}"
        folder.code.rename(moved)
        _stamp(folder).unlink()
        try:
            for path in outputs:
                (folder.code / path).parent.mkdir(mode=0o700, parents=True, exist_ok=True)
                (moved / path).rename(folder.code / path)
        except OSError:  # nothing of it may be lost
            moved.rename(folder.path / f"code.{moved.name[len('.tree.') :]}")
            return
        try:
            moved.rename(store.spare)
        except OSError:  # another job's is there: one is enough
            shutil.rmtree(moved, ignore_errors=True)


def remove(store: SnapshotStore, since: float = 0.0, *, dry_run: bool = False) -> int:
    """Remove the tree that is kept, if that is for at least `since` seconds; return how many bytes that frees.

    `dry_run` only counts them.
    """
    try:
        kept = time.time() - store.spare.lstat().st_ctime
    except OSError:
        return 0
    if kept < since:
        return 0
    gone = store.spare if dry_run else store.path / f".tree.{os.urandom(6).hex()}"
    if not dry_run:
        take(store, gone)
    freed = 0
    for there, _folders, names in os.walk(gone):
        for name in names:
            with contextlib.suppress(OSError):
                freed += os.lstat(f"{there}/{name}").st_size
    if not dry_run:
        shutil.rmtree(gone, ignore_errors=True)
    return freed


def _stamp(folder: JobFolder) -> Path:
    return folder.path / "code.json"


def _outputs(tree: Path, manifest: Manifest, written_at: int) -> Optional[List[str]]:
    """Return the paths that ranks have written or changed; None where looking takes too long."""
    files = {file.path for file in manifest.files} | set(dict(manifest.links))
    until = time.monotonic() + _SECONDS
    found, ahead = [], [""]
    while ahead:
        above = ahead.pop()
        if time.monotonic() > until:
            return None
        with os.scandir(f"{tree}/{above}") as entries:
            for entry in entries:
                path = f"{above}/{entry.name}" if above else entry.name
                status = entry.stat(follow_symlinks=False)
                if stat.S_ISDIR(status.st_mode):
                    ahead.append(path)
                elif path not in files or status.st_ctime_ns > written_at:
                    found.append(path)
    return found
