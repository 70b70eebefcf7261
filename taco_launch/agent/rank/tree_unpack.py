"""`agent unpack`: what came as a tar archive of tree_pack.py, which is not trusted, at a path: whole, or not at all.

Nothing is written but regular files, folders, and links that lead nowhere but into the same tree, all in a new folder
beside the path; what is whole there is moved to the path in the end.
"""

import contextlib
import itertools
import os
import shutil
import signal
import sys
import tarfile
import tempfile
from pathlib import Path
from typing import IO, Callable, Dict, Iterator, List, Tuple

from taco_launch.agent.rank.tree_pack import ENTRY_BYTES, HINT, MOST_ENTRIES, ROOT, Copied
from taco_launch.core.errors import TacoLaunchError, UsageError
from taco_launch.core.manifest import links_out

_CHUNK = 1 << 20
# How much may follow the header of an entry, by its kind; long names stand in entries of their own.
_LIMITS = {
    tarfile.REGTYPE: 1 << 62,
    tarfile.AREGTYPE: 1 << 62,
    tarfile.DIRTYPE: 0,
    tarfile.SYMTYPE: 0,
    tarfile.GNUTYPE_LONGNAME: 1 << 16,
    tarfile.GNUTYPE_LONGLINK: 1 << 16,
}
# Two blocks without anything end an archive.
_END_BYTES = 2 * tarfile.BLOCKSIZE


def main(most: int, path: str) -> int:
    """Unpack what comes on stdin."""

    def say(words: str) -> None:
        sys.stderr.write(f"{words}\n")

    signal.signal(signal.SIGTERM, lambda _number, _frame: sys.exit(1))
    try:
        unpack(sys.stdin.buffer, Path(path), most, say)
    except TacoLaunchError as error:
        say(error.message)
        if error.hint:
            say(f"{HINT}{error.hint}")
        return error.exit_code
    return 0


def unpack(stream: IO[bytes], target: Path, most: int, say: Callable[[str], None]) -> Copied:
    """Bring what an archive holds to `target`, at most `most` bytes; what is left out is said.

    A file takes the place of another one; a folder of anything but an empty folder does not.

    Raises:
        UsageError: it is no whole archive, holds what it must not, or `target` is in the way or cannot be written.
    """
    with prepared(target) as place:
        copied = Unpacker(most, say).all(stream, place)
        finish(place, target)
    return copied


@contextlib.contextmanager
def prepared(target: Path) -> Iterator[Path]:
    """Return where the copy is made: in a folder of its own beside `target`, which is gone at the end of the block.

    Raises:
        UsageError: it cannot be made.
    """
    try:
        folder = Path(tempfile.mkdtemp(prefix=f".{target.name[:100]}.", suffix=".part", dir=target.parent))
    except OSError as error:
        raise UsageError(f"{target.parent}: {error.strerror}: cannot write to this folder") from None
    previous = signal.pthread_sigmask(signal.SIG_BLOCK, ())
    try:
        try:
            yield folder / ROOT
        finally:  # a lost caller ends the input and then this process: the signal would interrupt the removal
            signal.pthread_sigmask(signal.SIG_BLOCK, (signal.SIGTERM, signal.SIGINT))
    finally:
        try:
            shutil.rmtree(folder, ignore_errors=True)
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, previous)


def finish(place: Path, target: Path) -> None:
    """Move a whole copy to its place.

    Raises:
        UsageError: something else is there.
    """
    try:
        place.replace(target)
    except OSError as error:
        raise UsageError(
            f"{target}: {error.strerror}",
            hint="an existing folder is not replaced: remove it first, or give another path",
        ) from None


class _Info(tarfile.TarInfo):
    """An entry; of a kind that tree_pack.py makes. What others have in headers of their own could fill the memory."""

    def _proc_member(self, archive: tarfile.TarFile) -> tarfile.TarInfo:
        limit = _LIMITS.get(self.type)
        if limit is None:
            raise UsageError(f"{_shown(self.name)}: is neither a file, a folder nor a symbolic link")
        if self.size > limit:
            raise UsageError(f"{_shown(self.name)}: its archive header is too large ({self.size} bytes)")
        found: tarfile.TarInfo = super()._proc_member(archive)  # type: ignore[misc]
        return found


class _Counted:
    """A stream, and how much of it was read."""

    def __init__(self, stream: IO[bytes]) -> None:
        self._stream = stream
        self.count = 0

    def read(self, size: int) -> bytes:
        """Read on."""
        data = self._stream.read(size)
        self.count += len(data)
        return data


class Unpacker:
    """Unpacks one archive."""

    def __init__(self, most: int, say: Callable[[str], None]) -> None:
        """Take at most `most` bytes."""
        self._most = most
        self._say = say
        self._taken = self._entries = 0
        self._files = self._size = 0
        self._links: List[Tuple[Path, str]] = []
        # Modes of folders are set in the end: one may not be written to.
        self._folders: Dict[Path, int] = {}

    def all(self, stream: IO[bytes], place: Path) -> Copied:
        """Write all of an archive at `place`, whose folder is empty and nobody else's. Raises as `unpack` does."""
        counted = _Counted(stream)
        try:
            with tarfile.open(
                fileobj=counted,  # type: ignore[call-overload]
                mode="r|",
                tarinfo=_Info,
                encoding="utf-8",
                errors="surrogateescape",
            ) as archive:
                entry = archive.next()
                while entry is not None:
                    self._take(archive, entry, place)
                    archive.members.clear()
                    entry = archive.next()
                end = archive.offset
            self._pass_over(counted)
        except TacoLaunchError:
            raise
        except OSError as error:
            raise UsageError(f"cannot write: {error.strerror or error}") from None
        except Exception as error:  # noqa: BLE001 - tarfile raises what it likes for what is not an archive
            raise UsageError(f"the received data is not a taco-launch archive: {error!s:.100}") from None
        if counted.count < end + _END_BYTES or not self._entries:
            raise UsageError("the copy is incomplete: the connection closed before its end", hint="run it again")
        self._finish()
        return Copied(self._files, self._size)

    def _pass_over(self, counted: _Counted) -> None:
        """Read what stands behind the end of the archive.

        Raises:
            UsageError: more follows than the limit allows.
        """
        while counted.read(_CHUNK):
            if counted.count > self._most + _CHUNK:
                raise self._too_large()

    def _take(self, archive: tarfile.TarFile, entry: tarfile.TarInfo, place: Path) -> None:
        self._entries += 1
        self._taken += entry.size + ENTRY_BYTES
        if self._taken > self._most:
            raise self._too_large()
        if self._entries > MOST_ENTRIES:
            raise UsageError(f"has more than {MOST_ENTRIES} files")
        path = self._path(entry, place)
        if entry.isdir():
            path.mkdir(mode=0o700)
            self._folders[path] = entry.mode & 0o777
        elif entry.issym():
            self._links.append((path, self._link(entry)))
        else:
            self._write(archive, entry, path)

    def _path(self, entry: tarfile.TarInfo, place: Path) -> Path:
        first, *parts = entry.name.split("/")
        if first != ROOT or any(part in ("", ".", "..") or "\0" in part for part in parts):
            raise UsageError(f"{_shown(entry.name)}: its path leads outside of the copied folder")
        if not parts and entry.issym():
            raise UsageError("the received archive is a symbolic link, not a file or a folder")
        if not parts and self._entries > 1:
            raise UsageError("the received archive contains more than one file or folder at the top")
        return place.joinpath(*parts)

    def _link(self, entry: tarfile.TarInfo) -> str:
        """Return where a link leads, "" where that is out of the tree, or nobody can tell."""
        target = entry.linkname
        parts = target.split("/")
        up = len(parts) - len(list(itertools.dropwhile(lambda part: part in ("..", "."), parts)))
        within = entry.name.partition("/")[2]
        # Behind another name `..` may lead anywhere: that name may be a link.
        if not target or "\0" in target or ".." in parts[up:] or links_out(((within, target),)):
            self._say(f"left out: {_shown(entry.name)}: this link points outside of the copied folder")
            return ""
        return target

    def _write(self, archive: tarfile.TarFile, entry: tarfile.TarInfo, path: Path) -> None:
        content = archive.extractfile(entry)
        assert content is not None
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
        with os.fdopen(descriptor, "wb") as file:
            shutil.copyfileobj(content, file, _CHUNK)
            if file.tell() != entry.size:
                raise UsageError("the copy is incomplete: the connection closed before its end", hint="run it again")
            os.fchmod(descriptor, entry.mode & 0o777 & ~_umask() | 0o600)
        with contextlib.suppress(OSError, OverflowError, ValueError):  # a time that no file can have
            os.utime(path, (entry.mtime, entry.mtime))
        self._files, self._size = self._files + 1, self._size + entry.size

    def _finish(self) -> None:
        """Make the links, of which none leads anywhere while files are written, and close the folders.

        Raises:
            UsageError: a link cannot be made.
        """
        try:
            for path, target in self._links:
                if target:
                    path.symlink_to(target)
            for path, mode in reversed(tuple(self._folders.items())):
                path.chmod(mode & ~_umask() | 0o700)
        except OSError as error:
            raise UsageError(f"cannot write: {error.strerror or error}") from None

    def _too_large(self) -> UsageError:
        return UsageError(f"is larger than {self._most} bytes", hint="copy a part, or raise --max")


def _umask() -> int:
    mask = os.umask(0o077)
    os.umask(mask)
    return mask


def _shown(name: str) -> str:
    text = name.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")[:200]
    return text if text.isprintable() else ascii(text)[1:-1]
