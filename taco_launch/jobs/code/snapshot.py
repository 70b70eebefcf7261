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


class _Place(NamedTuple):
    """Where a content lies: a file, its size, and what tells that it has not changed; None of a config file."""

    path: str
    size: int
    status: os.stat_result | None


class Snapshot(NamedTuple):
    """A manifest, its text and the SHA-256 of that, and where the contents are, by their hashes."""

    id: str
    manifest: Manifest
    text: bytes
    places: dict[str, _Place]

    def read(self, content: str) -> Iterator[bytes]:
        """Yield a content in pieces.

        Raises:
            UsageError: its file has changed since the snapshot was made, or cannot be read.
        """
        place = self.places[content]
        try:
            with _opened(place.path) as file:
                hasher, remaining = None if place.status else hashlib.sha256(), place.size
                while remaining and (piece := file.read(min(_PIECE_BYTES, remaining))):
                    if hasher:
                        hasher.update(piece)
                    remaining -= len(piece)
                    yield piece
                now = os.fstat(file.fileno())
        except OSError as error:
            raise UsageError(f"{shown(place.path)}: cannot be read: {error.strerror}") from None
        if (
            remaining
            or (place.status and _stamp(place.status) != _stamp(now))
            or (hasher and hasher.hexdigest() != content)
        ):
            raise _changes(place.path)


def take(
    tree: Tree | None, config: Sequence[ConfigFile], cache: Path, most: int = DEFAULT_MOST_BYTES, alias: str = ""
) -> Snapshot:
    """Return the snapshot of a tree and of config files; `cache` is where hashes are kept, `most` its largest size in bytes.

    `alias` is a path FOLDER/NAME by which the tree is found as well, where it has nothing there: a link to its root.

    Raises:
        UsageError: it is larger than `most` bytes, with its largest files; a file cannot be read, or changes meanwhile.
    """
    places: dict[str, _Place] = {}
    files: dict[str, FileEntry] = {}
    links: dict[str, str] = {}
    folders: list[str] = []

    if tree is not None:
        _check_size(tree, most)
        for found, (content, status) in zip(tree.files, _hashed(tree, HashCache(cache, tree.root)), strict=True):
            files[found.path] = FileEntry(found.path, bool(status.st_mode & stat.S_IXUSR), status.st_size, content)
            places.setdefault(content, _Place(f"{tree.root}/{found.path}", status.st_size, status))
        links, folders = dict(tree.links), list(tree.folders)
        if alias and not _has(alias, (*files, *links, *folders)):
            links[alias] = ".."
    placed = []
    for file in config:
        entry = FileEntry(file.target, False, file.size, file.content)
        places.setdefault(file.content, _Place(file.source, file.size, None))
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
    return Snapshot(hashlib.sha256(text).hexdigest(), made, text, places)


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


def _hashed(tree: Tree, cache: HashCache) -> list[_Hashed]:
    """Return the hash of each file, and its status; files that are not known are read, several side by side."""
    found: list[_Hashed | None] = []
    for file in tree.files:
        content = cache.content(file.path, file.status)
        found.append(None if content is None else (content, file.status))
    new = [number for number, known in enumerate(found) if known is None]
    if new:
        with ThreadPoolExecutor(_READERS) as pool:
            read = pool.map(lambda number: _read(tree.root, tree.files[number]), new)
            for number, hashed in zip(new, read, strict=True):
                found[number] = hashed
                cache.keep(tree.files[number].path, hashed[1], hashed[0])
    cache.save()
    return [hashed for hashed in found if hashed is not None]


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
