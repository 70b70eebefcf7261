"""The caller's frames on an agent process's stdin, read without ever waiting for them."""

import os
import select
import time
from typing import IO, List

from taco_launch.core.errors import UsageError
from taco_launch.core.protocol.calls.caller_input import MOST_DATA, SILENT_SECONDS, CallerInput, Hangup, input_of
from taco_launch.core.protocol.connection import JsonConnection
from taco_launch.core.protocol.frames import FrameReader
from taco_launch.core.protocol.rank_messages import AllowExit, Terminate

_CHUNK = 1 << 16
# POLLRDHUP: the other end of a socket writes no more, for which a pipe has POLLHUP.
_ENDED = select.POLLHUP | select.POLLERR | select.POLLRDHUP


def told_to_end(guard: JsonConnection) -> bool:
    """Return whether the guard, which has said something, has told a visitor to end, or is gone."""
    messages = guard.receive()
    return messages is None or any(isinstance(message, (Terminate, AllowExit)) for message in messages)


class CallerStream:
    """Read what the caller sends, and notice when it is gone: it keeps the stream open until it has all replies."""

    def __init__(self, stdin: IO[bytes]) -> None:
        """Go on behind what was read of `stdin`, which is not waited for any more."""
        self._file = stdin.fileno()
        os.set_blocking(self._file, False)
        self._frames = FrameReader(input_of, MOST_DATA)
        self._kept: List[CallerInput] = []
        self._heard = time.monotonic()
        # Whether the caller has left, was lost, or says what no caller of ours does.
        self.gone = False
        ahead: bytes = stdin.read1(_CHUNK) or b""  # type: ignore[attr-defined]
        self._take(ahead)

    def fileno(self) -> int:
        """For poll."""
        return self._file

    def listen(self, poll: "select.poll", *, wanted: bool) -> None:
        """Have a poll wait for more, or with `wanted` false for the end of the stream alone."""
        poll.register(self._file, (select.POLLIN if wanted else 0) | select.POLLRDHUP)

    def receive(self, event: int, *, wanted: bool) -> List[CallerInput]:
        """Return what has come, after a poll with the same `wanted` that gave `event` for it."""
        if wanted and event:
            self._read()
        elif event & _ENDED:
            self.gone = True
        now = time.monotonic()
        if not wanted:  # the caller cannot send while this side does not read
            self._heard = now
        elif now - self._heard > SILENT_SECONDS:
            self.gone = True
        kept, self._kept = self._kept, []
        return kept

    def _read(self) -> None:
        try:
            data = os.read(self._file, _CHUNK)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if data:
            self._take(data)
        else:
            self.gone = True

    def _take(self, data: bytes) -> None:
        self._heard = time.monotonic()
        try:
            messages = self._frames.feed(data)
        except UsageError:
            self.gone = True
            return
        for message in messages:
            assert isinstance(message, CallerInput)
            if isinstance(message, Hangup):
                self.gone = True
            else:
                self._kept.append(message)
