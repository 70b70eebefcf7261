"""The tree of an attempt that has ended, for the next one on its host: what ranks wrote is left to the job, the code is kept.

Writing a tree anew takes longer than all else that an unchanged one costs; checking one that is there does not. One tree is kept
on a host, with a note of when it was written: the next attempt trusts only files that have not changed since (`checkout`).
"""

import contextlib
import os
import shutil
import stat
import time
from pathlib import Path
from typing import List, Optional, Tuple

from taco_launch.agent.snapshots.checkout import Before, statuses
from taco_launch.agent.snapshots.store import DamagedError, Pack, SnapshotStore
from taco_launch.agent.store import records
from taco_launch.agent.store.folders import JobFolder
from taco_launch.core.errors import TacoLaunchError

# A guard looks through a tree for so long; a larger one stays where it is.
_SECONDS = 2.0
# The clock of a file system ticks at least so often: what is written behind a note has a later time.
_TICK_SECONDS = 0.01
_UNKNOWN = (OSError, TacoLaunchError, ValueError, TypeError, KeyError, DamagedError)


def note(folder: JobFolder, snapshot: str) -> None:
    """Note that the tree of an attempt is written: what changes later is its ranks'."""
    time.sleep(_TICK_SECONDS)
    records.write_json(_stamp(folder.path), {})
    written = _stamp(folder.path).lstat().st_ctime_ns
    time.sleep(_TICK_SECONDS)
    records.write_json(_stamp(folder.path), {"snapshot": snapshot, "written": written})


def take(store: SnapshotStore, to: Path, wanted: Pack) -> Optional[Before]:
    """Move the tree that is kept to a path, if there is one; return what it holds, None where that is not known.

    `wanted` is what the tree is to hold.
    """
    taken = store.path / f".tree.{os.urandom(6).hex()}"
    try:
        store.spare.rename(taken)
        (taken / "code").rename(to)
        snapshot, written = _noted(taken)
        if snapshot == wanted.id:
            return Before(wanted.manifest, written)
        with store.open(snapshot) as pack:
            return Before(pack.manifest, written)
    except _UNKNOWN:
        return None
    finally:
        shutil.rmtree(taken, ignore_errors=True)


def keep(folder: JobFolder, store: SnapshotStore) -> None:
    """Keep the tree of an attempt whose processes are all gone; what its ranks have written stays in the job's folder.

    Whatever cannot be done leaves the tree where it is.
    """
    with contextlib.suppress(*_UNKNOWN):
        outputs = _outputs(folder.code, _noted(folder.path)[1])
        if outputs is None:
            return
        moved = store.path / f".tree.{os.urandom(6).hex()}"
        os.mkdir(moved, 0o700)  # noqa: PTH102
        folder.code.rename(moved / "code")
        _stamp(folder.path).rename(_stamp(moved))
        try:
            for path in outputs:
                (folder.code / path).parent.mkdir(mode=0o700, parents=True, exist_ok=True)
                (moved / "code" / path).rename(folder.code / path)
        except OSError:  # nothing of it may be lost
            (moved / "code").rename(folder.path / f"code.{moved.name[len('.tree.') :]}")
            shutil.rmtree(moved, ignore_errors=True)
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
        with contextlib.suppress(OSError):
            store.spare.rename(gone)
    freed = 0
    for there, _folders, names in os.walk(gone / "code"):
        for name in names:
            with contextlib.suppress(OSError):
                freed += os.lstat(f"{there}/{name}").st_size
    if not dry_run:
        shutil.rmtree(gone, ignore_errors=True)
    return freed


def _stamp(above: Path) -> Path:
    return above / "code.json"


def _noted(above: Path) -> Tuple[str, int]:
    """Return the snapshot that a tree was written from, and when.

    Raises:
        ValueError: the note is not JSON, or lacks one of them.
    """
    noted = records.read_json(_stamp(above))
    if not isinstance(noted, dict):
        raise ValueError(f"{_stamp(above)} is not a JSON object")  # noqa: TRY004 - as of any other wrong value
    return str(noted["snapshot"]), int(noted["written"])


def _outputs(tree: Path, written: int) -> Optional[List[str]]:
    """Return the paths that ranks have written or changed; None where looking takes too long."""
    until = time.monotonic() + _SECONDS
    found, ahead = [], [""]
    while ahead:
        above = ahead.pop()
        if time.monotonic() > until:
            return None
        prefix = f"{above}/" if above else ""
        for name, status in statuses(f"{tree}/{above}"):
            if stat.S_ISDIR(status.st_mode):
                ahead.append(prefix + name)
            elif status.st_ctime_ns >= written:
                found.append(prefix + name)
    return found
