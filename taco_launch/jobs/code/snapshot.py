"""A snapshot: the manifest of a tree with its hash, and where each of its chunks can be read again."""

import hashlib
import os
import stat
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import IO, NamedTuple

from taco_launch.core import manifest
from taco_launch.core.errors import UsageError
from taco_launch.core.manifest import FileEntry, Manifest, size_text
from taco_launch.jobs.code.config_files import ConfigFile
from taco_launch.jobs.code.hash_cache import HashCache
from taco_launch.jobs.code.tree_walk import FoundFile, Tree, shown

DEFAULT_MOST_BYTES = 1 << 30
_BIGGEST = 5
_TRIES = 3
_READERS = 4
_PIECE_BYTES = 1 << 20
_LEAVE_OUT = "leave it out: write its path into .tacoignore"


class Snapshot(NamedTuple):
    """A manifest, its text and the SHA-256 of that, and where the contents are, by their hashes: files below `root`, config files."""

    id: str
    manifest: Manifest
    text: bytes
    root: str
    places: dict[str, FoundFile | ConfigFile]

    def size(self, content: str) -> int:
        """Return the bytes of a content."""
        place = self.places[content]
        return place.size if isinstance(place, ConfigFile) else place.status.st_size

    def read(self, content: str) -> Iterator[bytes]:
        """Yield a content in pieces.

        Raises:
            UsageError: its file has changed since the snapshot was made, or cannot be read.
        """
        place = self.places[content]
        path, status = (
            (place.source, None) if isinstance(place, ConfigFile) else (f"{self.root}/{place.path}", place.status)
        )
        try:
            with _opened(path) as file:
                hasher, remaining = None if status else hashlib.sha256(), self.size(content)
                while remaining and (piece := file.read(min(_PIECE_BYTES, remaining))):
                    if hasher:
                        hasher.update(piece)
                    remaining -= len(piece)
                    yield piece
                now = os.fstat(file.fileno())
        except OSError as error:
            raise UsageError(f"{shown(path)}: cannot be read: {error.strerror}") from None
        if remaining or (status and _stamp(status) != _stamp(now)) or (hasher and hasher.hexdigest() != content):
            raise _changes(path)


def take(
    tree: Tree | None, config: Sequence[ConfigFile], cache: Path, most: int = DEFAULT_MOST_BYTES, alias: str = ""
) -> Snapshot:
    """Return the snapshot of a tree and of config files; `cache` is where hashes are kept, `most` its largest size in bytes.

    `alias` is a path FOLDER/NAME by which the tree is found as well, where it has nothing there: a link to its root.

    Raises:
        UsageError: it is larger than `most` bytes, with its largest files; a file cannot be read, or changes meanwhile.
    """
    places: dict[str, FoundFile | ConfigFile] = {}
    files: dict[str, FileEntry] = {}
    links: dict[str, str] = {}
    folders: list[str] = []

    if tree is not None:
        _check_size(tree, most)
        hashes, found = _hashed(tree, HashCache(cache, tree.root))
        files = {
            path: FileEntry(path, bool(status.st_mode & stat.S_IXUSR), status.st_size, content)
            for content, (path, status) in zip(hashes, found, strict=True)
        }
        places.update(zip(hashes, found, strict=True))
        links, folders = dict(tree.links), list(tree.folders)
        if alias and not _has(alias, (*files, *links, *folders)):
            links[alias] = ".."
    placed = []
    for file in config:
        entry = FileEntry(file.target, False, file.size, file.content)
        places.setdefault(file.content, file)
        if file.target.startswith("/"):
            placed.append(entry)
        else:  # it stands in the place of what the tree has there
            links.pop(file.target, None)
            files[file.target] = entry
    made = Manifest(
        tuple(sorted(files.values())), tuple(sorted(links.items())), tuple(sorted(folders)), tuple(sorted(placed))
    )
    if config:
        try:
            manifest.check(made)
        except ValueError as error:
            raise UsageError(f"--config-file: {error}") from None
    text = manifest.written(made)
    return Snapshot(hashlib.sha256(text).hexdigest(), made, text, tree.root if tree else "", places)


def _has(alias: str, paths: Sequence[str]) -> bool:
    """Return whether a tree has something at a path, or no folder above it."""
    above = alias.partition("/")[0]
    return any(path in (above, alias) or path.startswith(f"{alias}/") for path in paths)


def _check_size(tree: Tree, most: int) -> None:
    size = sum(file.status.st_size for file in tree.files)
    if size <= most:
        return
    biggest = sorted(tree.files, key=lambda file: file.status.st_size, reverse=True)[:_BIGGEST]
    count = f"{shown(tree.root)}: {size_text(size)} in {len(tree.files)} files"
    lines = (
        f"{count}, but --sync-max is {size_text(most)}; the largest are",
        *(f"  {size_text(file.status.st_size)}  {shown(file.path)}" for file in biggest),
        *_biggest_folders(tree, size),
    )
    hint = "exclude data with a .tacoignore file (same syntax as .gitignore), or raise --sync-max"
    raise UsageError("\n".join(lines), hint)


def _biggest_folders(tree: Tree, size: int) -> Iterator[str]:
    """Yield the folders of the first level that have a tenth of all bytes: many small files are no large one."""
    by_folder: dict[str, int] = {}
    for file in tree.files:
        top, below, _rest = file.path.partition("/")
        if below:
            by_folder[top] = by_folder.get(top, 0) + file.status.st_size
    for top, part in sorted(by_folder.items(), key=lambda pair: -pair[1])[:_BIGGEST]:
        if part * 10 > size:
            yield f"  {size_text(part)}  {shown(top)}/"


_Hashed = tuple[str, os.stat_result]


def _hashed(tree: Tree, cache: HashCache) -> tuple[list[str], list[FoundFile]]:
    """Return the hash of each file, and the file as it was read; those that are not known are read, several side by side."""
    known, files = cache.contents(tree.files), list(tree.files)
    new = [number for number, content in enumerate(known) if not content]
    if new:
        with ThreadPoolExecutor(_READERS) as pool:
            read = pool.map(lambda number: _read(tree.root, tree.files[number]), new)
            for number, (content, status) in zip(new, read, strict=True):
                known[number], files[number] = content, FoundFile(files[number].path, status)
                cache.keep(files[number], content)
    cache.save()
    return known, files


def _read(root: str, file: FoundFile) -> _Hashed:
    """Read a file that does not change meanwhile.

    Raises:
        UsageError: it cannot be read, or changes each time.
    """
    path = f"{root}/{file.path}"
    try:
        for _try in range(_TRIES):
            with _opened(path) as opened:
                before = os.fstat(opened.fileno())
                hasher = hashlib.sha256()
                while piece := opened.read(_PIECE_BYTES):
                    hasher.update(piece)
                after = os.fstat(opened.fileno())
            if _stamp(before) == _stamp(after):
                return hasher.hexdigest(), after
    except OSError as error:
        raise UsageError(f"{shown(path)}: cannot be read: {error.strerror}", hint=_LEAVE_OUT) from None
    raise _changes(path)


def _opened(path: str) -> IO[bytes]:
    """Open a regular file, and no link.

    Raises:
        UsageError: the file changes while it is read.
    """
    file = os.fdopen(os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC), "rb", buffering=0)
    if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
        file.close()
        raise _changes(path)
    return file


def _stamp(status: os.stat_result) -> tuple[int, ...]:
    return status.st_size, status.st_mtime_ns, status.st_ctime_ns, status.st_ino


def _changes(path: str) -> UsageError:
    return UsageError(f"{shown(path)}: changed while it was copied", hint="submit again when no process writes to it")
