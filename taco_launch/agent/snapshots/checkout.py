"""A snapshot written into a folder: every content is checked as it is copied, and nothing goes by way of a link.

What an earlier attempt left in the folder stays where a rank cannot have changed it: its status has not changed since the tree
was written, which no program can undo, and it has no other name elsewhere.
"""

import hashlib
import os
import shutil
import stat
from pathlib import Path
from typing import List, NamedTuple, Optional, Sequence, Set, Tuple

from taco_launch.agent.snapshots.store import Pack, Place, write
from taco_launch.core.manifest import FileEntry, Manifest, folders_above

_BLOCK = 1 << 20


class Before(NamedTuple):
    """The tree that an earlier attempt wrote into a folder, and when (st_ctime_ns)."""

    manifest: Manifest
    written: int


def check_out(pack: Pack, folder: Path, before: Optional[Before] = None) -> List[str]:
    """Have a folder hold a tree and nothing else; return the paths that are missing, as their contents are damaged.

    Raises:
        OSError: it cannot be written.
    """
    manifest = pack.manifest
    folder.mkdir(mode=0o700, exist_ok=True)
    there = _Clearing(folder, manifest, before or Before(Manifest(), 0)).run()
    for path in sorted(_folders(manifest) - there):  # those above come first
        os.mkdir(f"{folder}/{path}", 0o700)  # noqa: PTH102 - a Path takes longer, and there may be many
    damaged = write_files(pack, [file for file in manifest.files if file.path not in there], folder)
    for path, target in manifest.links:  # last: no file is written below one
        if path not in there:
            (folder / path).symlink_to(target)
    return damaged


def write_files(pack: Pack, files: Sequence[FileEntry], folder: Path) -> List[str]:
    """Write files into the folders of a tree; return the paths that are missing, as their contents are damaged.

    Raises:
        OSError: one cannot be written.
    """
    if not files:
        return []
    places = pack.places({file.content for file in files})
    return [file.path for file in files if not _write(places[file.content], file, folder)]


def _folders(manifest: Manifest) -> Set[str]:
    """Return every folder of a tree."""
    ends = (*(file.path for file in manifest.files), *dict(manifest.links), *manifest.folders)
    return folders_above(ends, "/").union(manifest.folders)


class _Clearing:
    """Removes from a folder what is not as the tree has it."""

    def __init__(self, folder: Path, manifest: Manifest, before: Before) -> None:
        old = {file.path: file for file in before.manifest.files}
        self._folder, self._written, self._user = folder, before.written, os.geteuid()
        self._files = {file.path: file for file in manifest.files if old.get(file.path) == file}
        self._links = dict(manifest.links)
        self._folders = _folders(manifest)

    def run(self) -> Set[str]:
        """Return the paths that stay."""
        stay: Set[str] = set()
        ahead = [""]
        while ahead:
            above = ahead.pop()
            prefix = f"{above}/" if above else ""
            for name, status in statuses(f"{self._folder}/{above}"):
                path = prefix + name
                is_folder = stat.S_ISDIR(status.st_mode)
                if self._is_right(path, status):
                    stay.add(path)
                    ahead += [path] if is_folder else []
                elif is_folder:
                    shutil.rmtree(f"{self._folder}/{path}")
                else:
                    os.unlink(f"{self._folder}/{path}")  # noqa: PTH108 - a Path takes longer, and there may be many
        return stay

    def _is_right(self, path: str, status: os.stat_result) -> bool:
        file = self._files.get(path)
        if file is not None and stat.S_ISREG(status.st_mode):
            return (
                status.st_ctime_ns < self._written
                and status.st_size == file.size
                and status.st_nlink == 1
                and status.st_uid == self._user
            )
        if stat.S_ISLNK(status.st_mode):
            return path in self._links and os.readlink(f"{self._folder}/{path}") == self._links[path]
        is_private = status.st_uid == self._user and stat.S_IMODE(status.st_mode) == 0o700
        return stat.S_ISDIR(status.st_mode) and path in self._folders and is_private


def statuses(folder: str) -> List[Tuple[str, os.stat_result]]:
    """Return the name and the status of what a folder holds; by its descriptor, which spares a look-up of the path for each.

    Raises:
        OSError: it is a link, or cannot be read.
    """
    file = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        with os.scandir(file) as entries:
            return [(entry.name, entry.stat(follow_symlinks=False)) for entry in entries]
    finally:
        os.close(file)


def _write(place: Place, file: FileEntry, folder: Path) -> bool:
    """Write a file; return whether it is there: not where its content is damaged."""
    path = f"{folder}/{file.path}"
    mode = 0o700 if file.executable else 0o600
    out = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, mode)
    hasher, at = hashlib.sha256(), 0
    try:
        while at < place.size:
            data = os.pread(place.file, min(_BLOCK, place.size - at), place.offset + at)
            if not data:
                break
            hasher.update(data)
            write(out, data)
            at += len(data)
    finally:
        os.close(out)
    if hasher.hexdigest() == file.content:
        return True
    os.unlink(path)  # noqa: PTH108 - see above
    return False
