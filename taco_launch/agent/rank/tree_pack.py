"""`agent pack`: a file, or a folder with all below it, as a tar archive; links are packed as links, and nothing is changed.

Every name in it is below `tree`: who unpacks it decides what it is called there.
"""

import os
import stat
import sys
import tarfile
from pathlib import Path
from typing import IO, Callable, List, NamedTuple

from taco_launch.core.errors import TacoLaunchError, UsageError

ROOT = "tree"
# How the line begins on stderr that says what to do about the error in the line before.
HINT = "hint: "
# Entries of one archive, each of which takes memory where it is unpacked.
MOST_ENTRIES = 1 << 20
# What an entry takes besides its content, in the archive.
ENTRY_BYTES = 1024


class Copied(NamedTuple):
    """Count what was copied: files, without folders and links, and their bytes."""

    files: int
    size: int


def main(most: int, path: str) -> int:
    """Write the archive on stdout."""

    def say(words: str) -> None:
        sys.stderr.write(f"{words}\n")

    try:
        pack(Path(path), sys.stdout.buffer, most, say)
    except TacoLaunchError as error:
        say(error.message)
        if error.hint:
            say(f"{HINT}{error.hint}")
        return error.exit_code
    except BrokenPipeError:
        return 1
    return 0


def pack(path: Path, out: IO[bytes], most: int, say: Callable[[str], None]) -> Copied:
    """Write the archive of `path`, which has at most `most` bytes; what cannot be copied is said, or an error.

    Raises:
        UsageError: it is not there, is larger, or has what cannot be read, or what changes while it is read.
        BrokenPipeError: nobody reads it.
    """
    shown = _shown(path)
    try:
        top = path.resolve(strict=True)
    except (OSError, RuntimeError) as error:  # RuntimeError: links in a circle, before Python 3.13
        raise UsageError(f"{shown}: {getattr(error, 'strerror', None) or error}") from None
    writer = _Writer(most, say, shown)
    with tarfile.open(fileobj=out, mode="w|", format=tarfile.GNU_FORMAT, encoding="utf-8") as archive:
        writer.add(archive, str(top), ROOT)
    return Copied(writer.files, writer.size)


class _Writer:
    def __init__(self, most: int, say: Callable[[str], None], top: str) -> None:
        self._most = most
        self._say = say
        self._top = top
        self._taken = 0
        self._entries = 0
        self.files = self.size = 0

    def add(self, archive: tarfile.TarFile, path: str, name: str) -> None:
        """Add what lies at a path, and all below it.

        Raises:
            UsageError: an entry cannot be read.
        """
        waiting = [(path, name)]
        while waiting:
            path, name = waiting.pop()
            try:
                below = self._add_one(archive, path, name)
            except BrokenPipeError:
                raise
            except OSError as error:
                raise UsageError(f"{_shown(path)}: {error.strerror or error}") from None
            waiting += [(os.path.join(path, each), f"{name}/{each}") for each in below]  # noqa: PTH118 - many

    def _add_one(self, archive: tarfile.TarFile, path: str, name: str) -> List[str]:
        """Add one entry; return the names of what is in it, where it is a folder.

        Raises:
            UsageError: it is neither a file nor a folder, or became shorter meanwhile.
        """
        info = archive.gettarinfo(path, name)
        mode = os.lstat(path).st_mode
        if info is None or not (stat.S_ISREG(mode) or stat.S_ISDIR(mode) or stat.S_ISLNK(mode)):
            if name == ROOT:
                raise UsageError(f"{_shown(path)}: is neither a file nor a folder")
            self._say(f"left out: {_shown(path)}: is neither a file, a folder nor a link")
            return []
        archive.inodes = {}  # type: ignore[attr-defined]  # a file of several names is packed by each
        if info.islnk():  # by a name that was seen before: see above
            info.type, info.linkname = tarfile.REGTYPE, ""
        info.uname = info.gname = ""
        self._count(info.size if info.isreg() else 0)
        if not info.isreg():
            archive.addfile(info)
            return sorted(os.listdir(path), reverse=True) if info.isdir() else []
        # Another kind of file may have taken its place meanwhile, such as a FIFO, which would keep us waiting.
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
        with os.fdopen(descriptor, "rb") as file:
            info.size = os.fstat(file.fileno()).st_size
            self.files, self.size = self.files + 1, self.size + info.size
            try:
                archive.addfile(info, file)
            except OSError as error:
                if not error.errno:  # tarfile's own: it has become shorter
                    raise UsageError(f"{_shown(path)}: became shorter while it was copied") from None
                raise
        return []

    def _count(self, size: int) -> None:
        self._entries += 1
        self._taken += size + ENTRY_BYTES
        if self._entries > MOST_ENTRIES:
            raise UsageError(f"{self._top}: has more than {MOST_ENTRIES} files")
        if self._taken > self._most:
            raise UsageError(f"{self._top}: is larger than {self._most} bytes", hint="copy a part, or raise --max")


def _shown(path: object) -> str:
    text = str(path).encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")
    return text if text.isprintable() else ascii(text)[1:-1]
