"""What ranks have written into the tree of an attempt: once that has ended it stays with the job, and the code is removed."""

import contextlib
import os
import stat
import time
from pathlib import Path

from taco_launch.agent.store.folders import JobFolder

# A guard looks through a tree for so long; what it has not come to by then stays.
_SECONDS = 2.0


def note(folder: JobFolder) -> None:
    """Note that the tree of an attempt is written: what changes later is its ranks'."""
    _stamp(folder).touch()


def leave(folder: JobFolder) -> None:
    """Remove from the tree of an attempt whose processes are all gone what no rank has written or changed."""
    until = time.monotonic() + _SECONDS
    with contextlib.suppress(OSError):
        written = _stamp(folder).lstat().st_ctime_ns
        for above, folders, names in os.walk(folder.code, topdown=False):
            for name in (*names, *folders):
                path = f"{above}/{name}"
                if time.monotonic() > until:
                    return
                with contextlib.suppress(OSError):  # a folder that holds outputs
                    status = os.lstat(path)
                    if stat.S_ISDIR(status.st_mode):
                        os.rmdir(path)  # noqa: PTH106 - a Path takes longer, and there may be many
                    elif status.st_ctime_ns <= written:
                        os.unlink(path)  # noqa: PTH108 - see above
        _stamp(folder).unlink()


def _stamp(folder: JobFolder) -> Path:
    return folder.path / "code.written"
