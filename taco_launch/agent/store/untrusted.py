"""Files that another user or a rank may have made: opened without following a link or waiting, read up to a limit."""

import contextlib
import errno
import fcntl
import os
import pwd
import stat
from pathlib import Path
from typing import Iterator, Optional

from taco_launch.core import errors

_KINDS = (
    (stat.S_ISLNK, "a symbolic link"),
    (stat.S_ISDIR, "a directory"),
    (stat.S_ISFIFO, "a FIFO"),
    (stat.S_ISSOCK, "a socket"),
    (stat.S_ISCHR, "a device"),
    (stat.S_ISBLK, "a device"),
)


def open_regular(path: Path, flags: int = os.O_RDONLY) -> int:
    """Open a regular file.

    Raises:
        OSError: it cannot be opened, or it is another kind of file.
    """
    # O_NONBLOCK: a FIFO without a writer would keep us waiting.
    file = os.open(path, flags | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, 0o600)
    mode = os.fstat(file).st_mode
    if not stat.S_ISREG(mode):
        os.close(file)
        raise OSError(errno.EINVAL, f"{_kind(mode)}, not a regular file", str(path))
    return file


def _kind(mode: int) -> str:
    return next((text for matches, text in _KINDS if matches(mode)), "a file")


def try_lock(path: Path) -> Optional[int]:
    """Take the exclusive lock on a regular file, which is created; None when it is held. Close the result to let it go.

    Raises:
        OSError: the file cannot be opened.
    """
    file = open_regular(path, os.O_RDWR | os.O_CREAT)
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(file)
        return None
    return file


@contextlib.contextmanager
def locked(path: Path, how: int = fcntl.LOCK_EX) -> Iterator[None]:
    """Hold a lock on a regular file, which is created, while the block runs; wait for it. Raises as `open_regular` does."""
    file = open_regular(path, os.O_RDWR | os.O_CREAT)
    try:
        fcntl.flock(file, how)
        yield
    finally:
        os.close(file)


def is_locked(path: Path) -> bool:
    """Return whether a process holds an exclusive lock on a regular file; a file that cannot be opened has none."""
    try:
        file = open_regular(path)
    except OSError:
        return False
    try:
        fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError:
        return True
    finally:
        os.close(file)
    return False


def opener(path: str, flags: int) -> int:
    """Open a regular file for open(), which makes it for its owner only, whatever the umask. Raises as `open_regular` does."""
    return open_regular(Path(path), flags)


@contextlib.contextmanager
def opened(path: Path) -> Iterator[int]:
    """Open a regular file to read while the block runs. Raises as `open_regular` does."""
    file = open_regular(path)
    try:
        yield file
    finally:
        os.close(file)


def content(file: int, most: int) -> bytes:
    """Return all of an open file.

    Raises:
        OSError: it has more than `most` bytes, or cannot be read.
    """
    data = b""
    while len(data) <= most:
        piece = os.read(file, most + 1 - len(data))
        if not piece:
            return data
        data += piece
    size = f"{most >> 20} MiB" if most % (1 << 20) == 0 else f"{most} bytes"
    raise OSError(errno.EFBIG, f"larger than {size}")


def read(path: Path, most: int) -> bytes:
    """Return the content of a regular file of at most `most` bytes. Raises as `open_regular` and `content` do."""
    with opened(path) as file:
        return content(file, most)


def read_named(path: Path, most: int) -> bytes:
    """Return the same of a file that this user has named: a link is followed. Raises as `read` does."""
    return read(_real(path), most)


def open_named(path: Path) -> int:
    """Open a file that this user has named: a link is followed. Raises as `open_regular` does."""
    return open_regular(_real(path))


def _real(path: Path) -> Path:
    try:
        return path.resolve()
    except RuntimeError:  # a link in a circle
        raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), str(path)) from None


def last_line(path: Path, most: int = 4096) -> str:
    """Return the last line of a regular file that is not blank, as far as its last `most` bytes hold it; "" where none is.

    Raises as `open_regular` does.
    """
    with opened(path) as file:
        size = os.fstat(file).st_size
        return errors.last_line(os.pread(file, most, max(0, size - most)))


def describe(path: Path) -> str:
    """Return what a name stands for and whose it is: `a FIFO of bob`.

    Raises:
        OSError: nothing has that name.
    """
    found = path.lstat()
    kind = _kind(found.st_mode)
    linked = f" with {found.st_nlink} names (hard links)" if found.st_nlink > 1 and kind == "a file" else ""
    return f"{kind} of {user_name(found.st_uid)}{linked}"


def user_name(uid: int) -> str:
    """Return a user's name, `user 4711` where it has none."""
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return f"user {uid}"
