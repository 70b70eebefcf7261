"""The hashes of files that were read before, by what tells that a file has not changed since: kept in the user's cache."""

import contextlib
import json
import os
import time
from collections.abc import Iterable
from pathlib import Path

from taco_launch.agent.store.folders import make_private, private
from taco_launch.core.digest import digest
from taco_launch.jobs.code.tree_walk import FoundFile

_SCHEMA = 3
_MOST_BYTES = 1 << 27
_HASH_LENGTH = 64
# A file that changed so short before it was read may change again without another time: clocks of file systems tick slowly.
_FRESH_NS = 2_000_000_000


class HashCache:
    """The hashes of one tree's files; what cannot be read or written of it is as if it had never been there."""

    def __init__(self, folder: Path, root: str) -> None:
        """Read what is kept of the tree at `root`."""
        self._path = folder / "hashes" / f"{digest((os.fsencode(os.path.realpath(root)),))}.json"
        self._known: dict[str, str] = {}
        self._found: dict[str, str] = {}
        self._begun = time.time_ns()
        with contextlib.suppress(OSError, ValueError, RecursionError, LookupError, TypeError, AttributeError):
            with open(self._path, "rb") as file:
                document = json.loads(file.read(_MOST_BYTES))
            if document["schema"] == _SCHEMA and set(map(type, document["files"].values())) <= {str}:
                self._known = document["files"]

    def contents(self, files: Iterable[FoundFile]) -> list[str]:
        """Return the hash of each file, "" where it may have changed since it was computed."""
        hashes = []
        for path, status in files:
            kept = self._known.get(path, "")
            if kept.startswith(_stamp(status)):
                self._found[path] = kept
                hashes.append(kept[-_HASH_LENGTH:])
            else:
                hashes.append("")
        return hashes

    def keep(self, file: FoundFile, content: str) -> None:
        """Note the hash of a file that was read."""
        if max(file.status.st_mtime_ns, file.status.st_ctime_ns) < self._begun - _FRESH_NS:
            self._found[file.path] = _stamp(file.status) + content

    def save(self) -> None:
        """Write what is known of the files that were asked for, where anything of it is new."""
        if self._found == self._known:
            return
        part = self._path.with_name(f".{self._path.name}.{os.getpid()}.{os.urandom(4).hex()}")
        try:
            make_private(self._path.parent)
            with open(part, "x", encoding="ascii", opener=private) as file:
                json.dump({"schema": _SCHEMA, "files": self._found}, file, separators=(",", ":"))
            part.rename(self._path)
        except OSError:
            with contextlib.suppress(OSError):
                part.unlink()


def _stamp(status: os.stat_result) -> str:
    """Return what tells that a file has not changed: a text is compared and read faster than a list."""
    return f"{status.st_size} {status.st_mtime_ns} {status.st_ctime_ns} {status.st_ino} {status.st_dev} "
