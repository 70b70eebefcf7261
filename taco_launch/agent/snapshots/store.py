"""The snapshots that a host keeps: `snapshots/manifests/ID` and `snapshots/chunks/ab/HASH`, each file by the hash of its content.

A snapshot that is not whole yet is `manifests/ID.part`. Ranks can write here: whatever is read is checked.
"""

import contextlib
import fcntl
import hashlib
import os
from pathlib import Path
from typing import Dict, Iterator, List, Optional, Tuple

from taco_launch.agent.store import untrusted
from taco_launch.agent.store.folders import make_private
from taco_launch.core import manifest
from taco_launch.core.manifest import Manifest

PART = ".part"


class DamagedError(Exception):
    """What is kept is not what its name says, or cannot be read."""


class SnapshotStore:
    """The snapshots under one state folder."""

    def __init__(self, state: Path) -> None:
        """Name the folders; nothing is touched."""
        self.path = state / "snapshots"
        self.manifests = self.path / "manifests"
        self.chunks = self.path / "chunks"
        # The tree of an attempt that has ended, for the next one.
        self.spare = self.path / "tree"

    def chunk(self, name: str) -> Path:
        """Return where a chunk lies."""
        return self.chunks / name[:2] / name

    def manifest(self, snapshot: str) -> Path:
        """Return where a whole snapshot's manifest lies.

        Raises:
            ValueError: it is no id of a snapshot.
        """
        if not manifest.is_hash(snapshot):
            raise ValueError(f"not a snapshot ID: {snapshot[:80]!r}")
        return self.manifests / snapshot

    def use(self, snapshot: str) -> bool:
        """Note that a snapshot is used now; return whether it is here, and whole."""
        try:
            os.utime(self.manifest(snapshot), follow_symlinks=False)
        except (OSError, ValueError):
            return False
        return True

    def hold(self, snapshot: str) -> Optional[int]:
        """Return a descriptor that keeps a whole snapshot from being removed until it is closed; None where it is not here."""
        path = self.manifest(snapshot)
        with contextlib.suppress(OSError):
            file = untrusted.open_regular(path)
            fcntl.flock(file, fcntl.LOCK_SH)
            if os.fstat(file).st_nlink and path.stat().st_ino == os.fstat(file).st_ino:
                return file
            os.close(file)
        return None

    def read(self, snapshot: str) -> Tuple[Manifest, bytes]:
        """Return the manifest of a snapshot, which may not be whole, and its text.

        Raises:
            DamagedError: it is not here, or not what its hash says.
        """
        path = self.manifest(snapshot)
        for each in (path, path.with_name(path.name + PART)):
            with contextlib.suppress(FileNotFoundError):
                try:
                    data = untrusted.read(each, manifest.MOST_BYTES)
                except FileNotFoundError:
                    raise
                except OSError as error:
                    raise DamagedError(f"{each}: {error.strerror}") from None
                return checked(snapshot, data), data
        raise DamagedError(f"{path}: there is no such snapshot")

    def begin(self, snapshot: str, data: bytes) -> Manifest:
        """Keep the manifest of a snapshot that is to come, unless it is here; return it.

        Raises:
            DamagedError: it is not what its hash says.
            OSError: it cannot be written.
        """
        found = checked(snapshot, data)
        path = self.manifest(snapshot)
        if not path.exists():
            make_private(self.manifests)
            _write(path.with_name(path.name + PART), data)
        return found

    def missing(self, of: Manifest) -> Dict[str, int]:
        """Return the chunks that are not here, each with its size, in the order in which a tree is written."""
        there: Dict[str, set] = {}  # type: ignore[type-arg]  # its parameter is of Python 3.9
        found = {}
        for chunk, size in manifest.sizes(of).items():
            folder = chunk[:2]
            if folder not in there:
                try:
                    there[folder] = set(os.listdir(self.chunks / folder))
                except OSError:
                    there[folder] = set()
            if chunk not in there[folder]:
                found[chunk] = size
        return found

    def put(self, chunk: str, data: bytes) -> None:
        """Keep a chunk.

        Raises:
            DamagedError: it is not what its hash says.
            OSError: it cannot be written.
        """
        if hashlib.sha256(data).hexdigest() != chunk:
            raise DamagedError(f"chunk {chunk[:12]} is damaged")
        path = self.chunk(chunk)
        make_private(path.parent)
        _write(path, data)

    def finish(self, snapshot: str) -> None:
        """Show a snapshot whose chunks are all here as whole."""
        path = self.manifest(snapshot)
        with contextlib.suppress(FileNotFoundError):  # it was whole before
            path.with_name(path.name + PART).rename(path)

    def get(self, chunk: str, size: int) -> bytes:
        """Return a chunk of so many bytes.

        Raises:
            DamagedError: it is not here, or not what its hash says.
        """
        try:
            data = untrusted.read(self.chunk(chunk), size)
        except OSError as error:
            raise DamagedError(f"chunk {chunk[:12]}: {error.strerror or error}") from None
        if hashlib.sha256(data).hexdigest() != chunk:
            raise DamagedError(f"chunk {chunk[:12]} is damaged")
        return data

    def drop(self, snapshot: str, chunks: List[str]) -> None:
        """Forget chunks that are damaged: the snapshot is not whole any more.

        Raises:
            OSError: what stands in the place of one cannot be removed.
        """
        path = self.manifest(snapshot)
        with contextlib.suppress(FileNotFoundError):
            path.rename(path.with_name(path.name + PART))
        for chunk in chunks:
            with contextlib.suppress(FileNotFoundError):
                self.chunk(chunk).unlink()

    def incoming(self, snapshot: str) -> Path:
        """Return the file whose lock is held by who brings a snapshot here."""
        path = self.manifest(snapshot)
        return path.with_name(f".{path.name}.incoming")

    @contextlib.contextmanager
    def arriving(self, snapshot: str) -> Iterator[None]:
        """Have others know, while the block runs, that a snapshot is being brought here; one at a time does that."""
        make_private(self.manifests)
        with untrusted.locked(self.incoming(snapshot)):
            yield

    def is_arriving(self, snapshot: str) -> bool:
        """Return whether a process copies a snapshot to this host now."""
        return untrusted.is_locked(self.incoming(snapshot))


def checked(snapshot: str, data: bytes) -> Manifest:
    """Return the manifest that a text is.

    Raises:
        DamagedError: it is not that of this snapshot, or none.
    """
    if hashlib.sha256(data).hexdigest() != snapshot:
        raise DamagedError(f"the manifest of snapshot {snapshot[:12]} is damaged")
    try:
        return manifest.parsed(data)
    except ValueError as error:
        raise DamagedError(f"snapshot {snapshot[:12]}: {error}") from None


def _write(path: Path, data: bytes) -> None:
    """Write a file, whole or not at all."""
    part = path.with_name(f".{path.name}.{os.urandom(6).hex()}")
    file = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        try:
            left = memoryview(data)
            while left:
                left = left[os.write(file, left) :]
        finally:
            os.close(file)
        part.rename(path)
    except OSError:
        with contextlib.suppress(OSError):
            part.unlink()
        raise
