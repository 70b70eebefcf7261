"""A snapshot written into a new folder: every chunk is checked as it is copied, and nothing goes by way of a link."""

import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Callable, Dict, Iterable, Iterator, List, Sequence, Set, Tuple, TypeVar

from taco_launch.agent.snapshots.store import DamagedError, SnapshotStore
from taco_launch.manifest import FileEntry, Manifest, chunk_size

_WORKERS = 4
# Small files are handed to a thread several at a time: handing over each alone takes as long as writing it.
_BATCH_BYTES, _BATCH_FILES = 1 << 22, 64
# The chunks that are not what they should be, each with the path of a file that it belongs to.
Damaged = List[Tuple[str, str]]
T = TypeVar("T")


def check_out(store: SnapshotStore, manifest: Manifest, folder: Path) -> Damaged:
    """Write a tree into a folder that is made for it; return the chunks because of which files are missing.

    Raises:
        OSError: it cannot be written, or the folder is there already.
    """
    folder.mkdir(mode=0o700)
    for path in sorted(_folders(manifest)):  # those above come first
        os.mkdir(f"{folder}/{path}", 0o700)  # noqa: PTH102 - a Path takes longer, and there may be many
    damaged = write_files(store, manifest.files, folder)
    for path, target in manifest.links:  # last: no file is written below one
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
