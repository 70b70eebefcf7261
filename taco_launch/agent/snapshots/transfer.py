"""A snapshot is taken from another host, which runs `agent snapshot-serve` for that; every chunk is checked as it comes."""

import os
import select
import subprocess
import time
from typing import IO, Dict, Optional

from taco_launch.agent.snapshots import serve
from taco_launch.agent.snapshots.checkout import files_by_chunk
from taco_launch.agent.snapshots.store import DamagedError, SnapshotStore
from taco_launch.agent.ssh import commands as ssh
from taco_launch.core import manifest
from taco_launch.core.manifest import CHUNK_BYTES, MOST_BYTES

# What a login script may print before the answer begins.
_MOST_NOISE = 1 << 16
_LINE_BYTES = 1000
# The other side waits for what comes to itself, and says so where that does not come.
_SILENT_SECONDS = serve.CHUNK_SECONDS + 20.0
_END_SECONDS = 2.0


class TransferError(Exception):
    """What could not be had from a host, and why."""


def fetch(store: SnapshotStore, snapshot: str, host: str, agent: str) -> int:
    """Take what is missing of a snapshot from a host, by ssh; return how many bytes of chunks came.

    Raises:
        TransferError: it does not have it, sends something else, or is silent.
        OSError: it cannot be kept here.
    """
    errors, state = ssh.ErrorOutput(), store.path.parent
    try:
        process = subprocess.Popen(
            ssh.argv(host, agent, "snapshot-serve", str(state), snapshot, state=state),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=errors.file,
        )
    except OSError as error:
        raise TransferError(f"ssh: {error.strerror}") from None
    errors.limit(process.pid)
    try:
        assert process.stdin is not None
        assert process.stdout is not None
        return _receive(store, snapshot, _Answer(process.stdout), process.stdin)
    except (TransferError, BrokenPipeError) as error:
        said = _ended(process) and errors.last_line()
        raise TransferError(
            str(error) if isinstance(error, TransferError) and not said else said or "it ended"
        ) from None
    finally:
        process.kill()
        process.wait()
        for stream in (process.stdin, process.stdout):
            if stream is not None:
                try:
                    stream.close()
                except OSError:
                    continue


def _ended(process: "subprocess.Popen[bytes]") -> bool:
    """Return whether ssh has ended by itself, or does in a moment: then its last words tell more."""
    try:
        return bool(process.wait(_END_SECONDS))
    except subprocess.TimeoutExpired:
        return False


def _receive(store: SnapshotStore, snapshot: str, answer: "_Answer", asks: IO[bytes]) -> int:
    answer.skip_to(serve.greeting(snapshot))
    text = answer.piece(MOST_BYTES)
    try:
        found = store.begin(snapshot, text)
    except DamagedError as error:
        raise TransferError(str(error)) from None
    missing = store.missing(found)
    asks.write(serve.bits(manifest.sizes(found), missing))
    asks.flush()
    paths: Optional[Dict[str, str]] = None
    for chunk, size in missing.items():
        data = answer.piece(CHUNK_BYTES)
        try:
            store.put(chunk, data if len(data) == size else b"")
        except DamagedError:
            paths = paths or files_by_chunk(found)
            raise TransferError(f"it sent a damaged copy of {paths[chunk]}") from None
    if not store.missing(found):
        store.finish(snapshot)
    return sum(missing.values())


class _Answer:
    """What comes from the other host, piece by piece."""

    def __init__(self, stream: IO[bytes]) -> None:
        self._stream = stream
        os.set_blocking(stream.fileno(), False)
        self._rest = b""

    def skip_to(self, line: bytes) -> None:
        """Read up to a line, and that.

        Raises:
            TransferError: the line does not come.
        """
        noise = 0
        while True:
            read = self._line(_MOST_NOISE)
            if read == line:
                return
            noise += len(read)
            if noise > _MOST_NOISE:
                raise TransferError("no answer of taco-launch: does a start-up file of the shell there print text?")

    def piece(self, most: int) -> bytes:
        """Return the bytes that stand behind their number.

        Raises:
            TransferError: the number is missing, or above `most`.
        """
        count = serve.length_of(self._exactly(serve.LENGTH_BYTES))
        if not count:
            words = self._line(_LINE_BYTES).decode("utf-8", "replace").strip()
            raise TransferError(words if words.isprintable() and words else "it stopped sending and gave no reason")
        if count > most:
            raise TransferError(f"not a taco-launch answer: it has a block of {count} bytes")
        return self._exactly(count)

    def _line(self, most: int) -> bytes:
        while b"\n" not in self._rest:
            if len(self._rest) > most:
                raise TransferError("no answer of taco-launch: does a start-up file of the shell there print text?")
            self._rest += self._more()
        line, newline, self._rest = self._rest.partition(b"\n")
        return line + newline

    def _exactly(self, count: int) -> bytes:
        pieces, have = [self._rest], len(self._rest)
        while have < count:
            pieces.append(self._more())
            have += len(pieces[-1])
        data = b"".join(pieces)
        self._rest = data[count:]
        return data[:count]

    def _more(self) -> bytes:
        until = time.monotonic() + _SILENT_SECONDS
        while True:
            if not select.select([self._stream], [], [], max(0.0, until - time.monotonic()))[0]:
                raise TransferError(f"it sent nothing for {_SILENT_SECONDS:g} s")
            try:
                data = os.read(self._stream.fileno(), 1 << 20)
            except BlockingIOError:
                continue
            if not data:
                raise TransferError("its answer broke off")
            return data
