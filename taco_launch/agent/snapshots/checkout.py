"""A snapshot written into a folder, whatever that holds: every chunk is checked as it is copied, every file that is there as well.

Nothing goes by way of a link, and no file is kept that has another name elsewhere.
"""

import contextlib
import hashlib
import os
import shutil
import stat
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Callable, Dict, Iterable, Iterator, List, Sequence, Set, Tuple, TypeVar

from taco_launch.agent.snapshots.store import DamagedError, SnapshotStore
from taco_launch.agent.store import untrusted
from taco_launch.core.manifest import FileEntry, Manifest, chunk_size

_WORKERS = 4
# Small files are handed to a thread several at a time: handing over each alone takes as long as writing it.
_BATCH_BYTES, _BATCH_FILES = 1 << 22, 64
# The chunks that are not what they should be, each with the path of a file that it belongs to.
Damaged = List[Tuple[str, str]]
T = TypeVar("T")


def check_out(store: SnapshotStore, manifest: Manifest, folder: Path) -> Damaged:
    """Have a folder hold a tree and nothing else; return the chunks because of which files are missing.

    Raises:
        OSError: it cannot be written.
    """
    folder.mkdir(mode=0o700, exist_ok=True)
    files = {file.path: file for file in manifest.files}
    links = dict(manifest.links)
    folders = _folders(manifest)
    there = _clear(folder, files, links, folders)
    for path in sorted(folders - there):  # those above come first
        os.mkdir(f"{folder}/{path}", 0o700)  # noqa: PTH102 - a Path takes longer, and there may be many
    known = [files[path] for path in there & files.keys()]
    right = {path for found in _in_threads(known, lambda file: _is_right(folder, file)) for path in found}
    damaged = write_files(store, [file for file in manifest.files if file.path not in right], folder)
    for path, target in manifest.links:  # last: no file is written below one
        if path not in there:
            (folder / path).symlink_to(target)
    return damaged


def write_files(store: SnapshotStore, files: Sequence[FileEntry], folder: Path) -> Damaged:
    """Write files into the folders of a tree; return the chunks because of which some are missing.

    Raises:
        OSError: one cannot be written.
    """
    return [each for found in _in_threads(files, lambda file: _write(store, file, folder)) for each in found]


def of_chunks(manifest: Manifest, chunks: Iterable[str]) -> List[FileEntry]:
    """Return the files that have any of these chunks."""
    wanted = set(chunks)
    return [file for file in manifest.files if wanted.intersection(file.chunks)]


def files_by_chunk(manifest: Manifest) -> Dict[str, str]:
    """Return a file for each chunk, by the chunk's hash."""
    found: Dict[str, str] = {}
    for file in (*manifest.files, *manifest.config):
        for chunk in file.chunks:
            found.setdefault(chunk, file.path)
    return found


def _folders(manifest: Manifest) -> Set[str]:
    """Return every folder of a tree."""
    found: Set[str] = set()
    above = [path.rpartition("/")[0] for path in (*(file.path for file in manifest.files), *dict(manifest.links))]
    for path in (*manifest.folders, *above):
        while path and path not in found:
            found.add(path)
            path = path.rpartition("/")[0]  # noqa: PLW2901 - up to the root
    return found


def _clear(folder: Path, files: Dict[str, FileEntry], links: Dict[str, str], folders: Set[str]) -> Set[str]:
    """Remove what is not as the tree has it, as far as that is seen without reading; return the paths that stay."""
    stay: Set[str] = set()
    ahead = [""]
    while ahead:
        above = ahead.pop()
        with os.scandir(f"{folder}/{above}") as entries:
            inside = list(entries)
        for entry in inside:
            path = f"{above}/{entry.name}" if above else entry.name
            status = entry.stat(follow_symlinks=False)
            if stat.S_ISDIR(status.st_mode):
                if path in folders and _is_ours(status, 0o700):
                    stay.add(path)
                    ahead.append(path)
                else:
                    shutil.rmtree(entry.path)
            elif _is_as_written(entry, status, files.get(path), links.get(path)):
                stay.add(path)
            else:
                os.unlink(entry.path)  # noqa: PTH108 - see above
    return stay


def _is_as_written(
    entry: "os.DirEntry[str]", status: os.stat_result, file: "FileEntry | None", link: "str | None"
) -> bool:
    if file is not None:
        mode = 0o700 if file.executable else 0o600
        regular = stat.S_ISREG(status.st_mode) and status.st_nlink == 1
        return regular and status.st_size == file.size and _is_ours(status, mode)
    return link is not None and stat.S_ISLNK(status.st_mode) and os.readlink(entry.path) == link


def _is_ours(status: os.stat_result, mode: int) -> bool:
    return stat.S_IMODE(status.st_mode) == mode and status.st_uid == os.geteuid()


def _is_right(folder: Path, file: FileEntry) -> Iterator[str]:
    """Yield the path of a file that holds what it should; remove one that does not."""
    path = f"{folder}/{file.path}"
    with contextlib.suppress(OSError):
        opened = untrusted.open_regular(Path(path))
        try:
            if all(_has(opened, chunk, chunk_size(file, number)) for number, chunk in enumerate(file.chunks)):
                yield file.path
                return
        finally:
            os.close(opened)
    os.unlink(path)  # noqa: PTH108 - see above


def _has(file: int, chunk: str, size: int) -> bool:
    data = os.read(file, size)
    while len(data) < size:
        more = os.read(file, size - len(data))
        if not more:
            return False
        data += more
    return hashlib.sha256(data).hexdigest() == chunk


def _in_threads(files: Sequence[FileEntry], act: Callable[[FileEntry], Iterable[T]]) -> Iterator[List[T]]:
    """Yield what `act` finds of files, some of them at a time."""
    with ThreadPoolExecutor(_WORKERS) as pool:
        yield from pool.map(lambda batch: [each for file in batch for each in act(file)], _batches(files))


def _batches(files: Sequence[FileEntry]) -> Iterator[List[FileEntry]]:
    batch: List[FileEntry] = []
    size = 0
    for file in files:
        batch.append(file)
        size += file.size
        if size >= _BATCH_BYTES or len(batch) >= _BATCH_FILES:
            yield batch
            batch, size = [], 0
    if batch:
        yield batch


def _write(store: SnapshotStore, file: FileEntry, folder: Path) -> Damaged:
    """Write a file; return the chunks because of which it is not there, each with its path."""
    path = f"{folder}/{file.path}"
    mode = 0o700 if file.executable else 0o600
    out = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, mode)
    damaged = []
    try:
        for number, chunk in enumerate(file.chunks):
            try:
                left = memoryview(store.get(chunk, chunk_size(file, number)))
            except DamagedError:
                damaged.append((chunk, file.path))
                continue
            while left:
                left = left[os.write(out, left) :]
    finally:
        os.close(out)
    if damaged:
        os.unlink(path)  # noqa: PTH108 - see above
    return damaged
