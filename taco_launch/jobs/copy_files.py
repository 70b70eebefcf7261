"""Files and folders between this machine and a rank's host: whole, or not at all."""

import os
import posixpath
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO

from taco_launch.agent.rank import tree_pack, tree_unpack
from taco_launch.agent.rank.tree_pack import HINT, Copied
from taco_launch.core.errors import HostError, TacoLaunchError, UsageError
from taco_launch.core.protocol.calls.caller_input import CallerInput, Hangup, InputData
from taco_launch.core.protocol.calls.copy_files import ReadFiles, WriteFiles
from taco_launch.jobs.backend import Backend

MOST_BYTES = 10 << 30
_CHUNK = 1 << 18
# Of what a host says about the files.
_MOST_SAID = 1 << 16


def _say_nothing(_words: str) -> None:
    """Do nothing."""


def fetch(
    backend: Backend,
    name: str,
    rank: int,
    path: str,
    local: Path,
    most: int = MOST_BYTES,
    say: Callable[[str], None] = _say_nothing,
) -> tuple[Path, Copied]:
    """Copy a file or folder of a rank's host here; return where it is, and what was copied.

    Into a folder that is there it comes by its own name. What comes is not trusted: see tree_unpack.py.

    Raises:
        UsageError: it is not there, too large, or not what may be written here; or the place here is taken.
        HostError: the connection broke; nothing is left here.
    """
    request = ReadFiles(name=name, rank=rank, path=path, most=most)
    target = local / _name(path, name) if local.is_dir() else local
    _require_free(target)
    read, write = os.pipe()
    said = _Said(say)
    with tree_unpack.prepared(target) as place:
        stream = os.fdopen(read, "rb")
        unpacking = _Work(lambda: tree_unpack.Unpacker(most, say).all(stream, place), stream)
        try:
            code = backend.at_rank(request, (), lambda data: _write(write, data), said.take)
        except BrokenPipeError:  # we have had enough, and know why
            unpacking.result()
            raise
        finally:
            os.close(write)
            unpacking.failed()
        if code:
            raise said.error(f"{name}: rank {rank}", path, code)
        copied = unpacking.result()
        tree_unpack.finish(place, target)
    said.tell()
    return target, copied


def send(
    backend: Backend,
    name: str,
    rank: int,
    local: Path,
    path: str,
    most: int = MOST_BYTES,
    say: Callable[[str], None] = _say_nothing,
) -> Copied:
    """Copy a file or folder of this machine to a path on a rank's host; behind a `/` at its end it has its own name.

    Raises:
        UsageError: it is not there, too large, or cannot be read or written there.
        HostError: the connection broke; nothing is left there.
    """
    if path.endswith("/"):
        path += local.resolve().name
    read, write = os.pipe()
    said = _Said(say)
    out = os.fdopen(write, "wb")
    packing = _Work(lambda: tree_pack.pack(local, out, most, say), out)
    with open(read, "rb", buffering=0) as archive:
        request = WriteFiles(name=name, rank=rank, path=path, most=most)
        code = backend.at_rank(request, _frames(archive, packing), said.take, said.take)
    if code:
        packing.raise_own()
        raise said.error(f"{name}: rank {rank}", path, code)
    said.tell()
    return packing.result()


def _frames(archive: IO[bytes], packing: "_Work") -> Iterator[CallerInput]:
    """Yield an archive as it is made; where that fails, that we leave: a part of one is none."""
    try:
        while data := archive.read(_CHUNK):
            yield InputData(data=data)
    except ValueError:  # the call has ended meanwhile, and this was closed
        return
    if packing.failed():
        yield Hangup()


class _Work:
    """Something that another thread does meanwhile."""

    def __init__(self, act: Callable[[], Copied], pipe: IO[bytes]) -> None:
        """Begin it; in the end its end of a pipe is closed in that thread."""
        self._answer: Copied | BaseException | None = None

        def work() -> None:
            try:
                self._answer = act()
            except BaseException as error:  # noqa: BLE001 - raised in the thread that waits
                self._answer = error
            try:
                pipe.close()
            except OSError as error:
                self._answer = self._answer if isinstance(self._answer, BaseException) else error

        self._thread = threading.Thread(target=work, daemon=True)
        self._thread.start()

    def failed(self) -> bool:
        """Wait for its end, and return whether it failed."""
        self._thread.join()
        return isinstance(self._answer, BaseException)

    def raise_own(self) -> None:
        """Wait for its end; raise what it found wrong, unless that is that the other side has left."""
        if self.failed() and not isinstance(self._answer, BrokenPipeError):
            self.result()

    def result(self) -> Copied:
        """Wait for its end, and return what came of it.

        Raises:
            TacoLaunchError: the answer of the rank's side.
        """
        self._thread.join()
        if isinstance(self._answer, BaseException):
            raise self._answer
        assert self._answer is not None
        return self._answer


class _Said:
    """What the host says about the files: a line each."""

    def __init__(self, say: Callable[[str], None]) -> None:
        self._say = say
        self._text = b""

    def take(self, data: bytes) -> None:
        """Note it, as much as may be shown."""
        self._text = (self._text + data)[-_MOST_SAID:]

    def tell(self) -> None:
        """Pass on what was said of a copy that was made."""
        for line in self._lines():
            self._say(line)

    def _lines(self) -> list[str]:
        return [line for line in self._text.decode("utf-8", "replace").splitlines() if line.strip()]

    def error(self, whose: str, path: str, code: int) -> TacoLaunchError:
        """Return why nothing was copied."""
        lines = self._lines()
        hint = lines.pop().removeprefix(HINT) if lines and lines[-1].startswith(HINT) else None
        why = lines[-1].removeprefix("taco-launch: ") if lines else f"exit code {code}"
        told = why if why.startswith(path) else f"{path}: {why}"
        return (HostError if code == HostError.exit_code else UsageError)(f"{whose}: {told}", hint)


def _write(descriptor: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(descriptor, view) :]


def _name(path: str, job: str) -> str:
    """Return what a file or folder of a host is called here: never what the host says."""
    found = posixpath.basename(posixpath.normpath(path))
    return job if found in ("", ".", "..") else found


def _require_free(target: Path) -> None:
    if target.is_dir() and any(target.iterdir()):
        raise UsageError(
            f"{target}: the folder exists already and is not empty", hint="remove it, or name another path"
        )
