"""A snapshot is taken from another host, which runs `agent snapshot-serve` for that."""

import os
import select
import subprocess
import time
from typing import IO

from taco_launch.agent.snapshots import serve
from taco_launch.agent.snapshots.store import LINE_BYTES, PART, DamagedError, Header, SnapshotStore, header, write
from taco_launch.agent.ssh import commands as ssh

# What a login script may print before the answer begins.
_MOST_NOISE = 1 << 16
# The other side waits for what comes to itself, and says so where that does not come.
_SILENT_SECONDS = serve.MORE_SECONDS + 20.0
_END_SECONDS = 2.0
_NO_ANSWER = "no answer of taco-launch: does a start-up file of the shell there print text?"


class TransferError(Exception):
    """What could not be had from a host, and why."""


def fetch(store: SnapshotStore, snapshot: str, host: str, agent: str) -> int:
    """Take a snapshot from a host, by ssh, and its base where that is missing; return how many bytes of contents came.

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
        assert process.stdout is not None
        answer = _Answer(process.stdout)
        answer.skip_to(serve.greeting(snapshot))
        head, text = answer.header()
        received = 0
        if head.base:
            with store.arriving(head.base):
                base = store.found(head.base)
                if base is None:
                    received = fetch(store, head.base, host, agent)
                else:
                    base.__exit__()
        return received + _receive(store, snapshot, head, text, answer)
    except (TransferError, DamagedError) as error:
        words = _ended(process) and errors.last_line()
        raise TransferError(words or str(error)) from None
    finally:
        process.kill()
        process.wait()
        for stream in (process.stdin, process.stdout):
            if stream is not None:
                stream.close()


def _ended(process: "subprocess.Popen[bytes]") -> bool:
    """Return whether ssh has ended by itself, or does in a moment: then its last words tell more."""
    try:
        return bool(process.wait(_END_SECONDS))
    except subprocess.TimeoutExpired:
        return False


def _receive(store: SnapshotStore, snapshot: str, head: Header, text: bytes, answer: "_Answer") -> int:
    part = store.pack(snapshot).with_suffix(PART)
    part.unlink(missing_ok=True)  # what comes is all of it
    pack, part, _wanted = store.begin(snapshot, head.base, text)
    try:
        with pack:
            remaining = pack.content
            while remaining:
                data = answer.some(remaining)
                write(pack.file, data)
                remaining -= len(data)
            store.finish(snapshot, pack, part)
    except (TransferError, DamagedError, OSError):
        part.unlink()
        raise
    return pack.content


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
                raise TransferError(_NO_ANSWER)

    def header(self) -> "tuple[Header, bytes]":
        """Return the header of a pack, and the text of its manifest.

        Raises:
            TransferError: it is none.
        """
        head = header(self._line(LINE_BYTES))
        if head is None:
            raise TransferError("not a taco-launch answer: it has no header")
        pieces, remaining = [], head.text
        while remaining:
            pieces.append(self.some(remaining))
            remaining -= len(pieces[-1])
        return head, b"".join(pieces)

    def some(self, most: int) -> bytes:
        """Return the next bytes, as many as are there and at most so many.

        Raises:
            TransferError: nothing comes any more.
        """
        data = self._rest or self._more()
        self._rest = data[most:]
        return data[:most]

    def _line(self, most: int) -> bytes:
        while b"\n" not in self._rest:
            if len(self._rest) > most:
                raise TransferError(_NO_ANSWER)
            self._rest += self._more()
        line, newline, self._rest = self._rest.partition(b"\n")
        return line + newline

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
