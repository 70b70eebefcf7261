"""Reads captured outputs from files, folders and standard input, as far as they can be captures at all."""

import os
import select
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import IO

from taco_launch.agent.store import untrusted
from taco_launch.core.errors import UsageError

STDIN = Path("-")
# A folder of captures is text; what is larger than this was named by mistake.
MAX_FILE, MAX_FILES = 16 << 20, 10_000
# A pipe that a shell makes has its writer from the start, or in a moment.
_WRITER_SECONDS = 10.0


def read(paths: Sequence[Path], stdin: IO[bytes]) -> tuple[tuple[tuple[str, bytes], ...], tuple[tuple[str, str], ...]]:
    """Return (path below what was named, content) of all files in `paths`, and (path, why not) of those left out.

    Only files in folders are left out. `-` is `stdin`; a pipe, as `<(...)` is, is read to its end. Symbolic links inside a folder are
    followed to files only, so that a copy of sysfs cannot lead round in a circle.

    Raises:
        UsageError: a file that was named cannot be read or is larger than captures are, or a folder holds too many.
    """
    found: list[tuple[str, bytes]] = []
    left_out: list[tuple[str, str]] = []
    for path in paths:
        if path == STDIN:
            found.append(("standard input", _limited(stdin, "standard input")))
        elif path.is_dir():
            for file in _files(path):
                try:
                    found.append((str(file.relative_to(path)), _content(file)))
                except UsageError as error:
                    left_out.append((str(file.relative_to(path)), error.message.removeprefix(f"{file}: ")))
        else:
            found.append((path.name, _content(path, pipe=True)))
    return tuple(found), tuple(left_out)


def _files(folder: Path) -> Iterator[Path]:
    count = 0
    for inside, folders, names in os.walk(folder):
        folders.sort()
        for name in sorted(names):
            count += 1
            if count > MAX_FILES:
                raise UsageError(f"{folder}: more than {MAX_FILES} files", hint="name the folder of one capture")
            yield Path(inside, name)


def _content(path: Path, *, pipe: bool = False) -> bytes:
    try:
        if pipe and path.is_fifo():
            return _of_pipe(path)
        return untrusted.read_named(path, MAX_FILE)
    except OSError as error:
        raise UsageError(f"{path}: {error.strerror}") from None


def _of_pipe(path: Path) -> bytes:
    """Read a pipe to its end; one without a writer has no end, so the first byte is awaited for a limited time.

    Raises:
        UsageError: nothing was written into it in time.
    """
    with open(path, "rb", opener=lambda name, flags: os.open(name, flags | os.O_NONBLOCK)) as file:
        found = select.poll()
        found.register(file, select.POLLIN)
        came = found.poll(_WRITER_SECONDS * 1000)
        first = file.raw.read(1)  # None where somebody may still write, b"" where nobody does
        if not came and first == b"":
            raise UsageError(f"{path}: is a pipe, and nothing was written to it within {_WRITER_SECONDS:g} s")
        os.set_blocking(file.fileno(), True)
        return (first or b"") + _limited(file, str(path))


def _limited(file: IO[bytes], name: str) -> bytes:
    data = file.read(MAX_FILE + 1)
    if len(data) > MAX_FILE:
        raise UsageError(f"{name}: larger than {MAX_FILE >> 20} MiB, so it is not a capture")
    return data
