"""A bug of taco-launch itself, written into a file of the temporary folder; of a user's the newest few are kept."""

import contextlib
import os
import tempfile
import traceback

_PREFIX, _SUFFIX = "taco-launch-bug-", ".log"
_KEPT = 5


def write(error: BaseException, head: str = "") -> str:
    """Write a traceback behind `head`, remove this user's oldest files, and return the path."""
    descriptor, path = tempfile.mkstemp(prefix=_PREFIX, suffix=_SUFFIX)
    with open(descriptor, "w", encoding="utf-8", errors="backslashreplace") as log:
        log.write(head)
        traceback.print_exception(type(error), error, error.__traceback__, file=log)
    with contextlib.suppress(OSError):
        _remove_old(os.path.dirname(path))  # noqa: PTH120 - the agent imports as little as it can
    return path


def _remove_old(folder: str) -> None:
    with os.scandir(folder) as entries:
        named = [entry for entry in entries if entry.name.startswith(_PREFIX) and entry.name.endswith(_SUFFIX)]
    found = [(entry.stat(follow_symlinks=False), entry.path) for entry in named if entry.is_file(follow_symlinks=False)]
    own = sorted((status.st_mtime_ns, path) for status, path in found if status.st_uid == os.geteuid())
    for _written, path in own[:-_KEPT]:
        os.unlink(path)  # noqa: PTH108 - see above
