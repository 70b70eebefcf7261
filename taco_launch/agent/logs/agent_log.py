"""The agent log of a job, kept on its head where that was requested: what its supervisor and its guards decided and said.

The supervisor is the only one that writes it. A guard sends it its lines, and keeps the last ones while nobody listens.
"""

import collections
import contextlib
from typing import Deque, Optional

from taco_launch import trace
from taco_launch.agent.logs import segments
from taco_launch.agent.store.folders import JobFolder
from taco_launch.protocol.connection import Line
from taco_launch.protocol.messages import Trace

_BYTES = 16 << 20
# Of a guard that has no connection, and of what it has posted and not yet sent.
_WAITING_LINES, _WAITING_BYTES = 1000, 1 << 18

# A supervisor has one job.
_file: Optional[segments.Writer] = None


def begin(folder: JobFolder, *, wanted: bool) -> None:
    """Trace this process, the supervisor, into the agent log of its job, where that is wanted."""
    if not wanted:
        return
    global _file  # noqa: PLW0603 - see above
    _file = segments.Writer(folder.agent_log, _BYTES)
    trace.start(trace.MESSAGES, lambda at, text: _write(at, "supervisor", text))


def relay(host: str, message: Trace) -> None:
    """Write a guard's line, where there is a log."""
    _write(message.at, f"guard of {host}", message.text)


def _write(at: str, who: str, text: str) -> None:
    if _file is not None:
        with contextlib.suppress(OSError):  # no job ends for its debug log
            _file.write(f"{at} {who}: {text}\n".encode("utf-8", "replace"))


class GuardTrace:
    """A guard's lines, on their way to its supervisor."""

    def __init__(self) -> None:
        """Trace nothing yet."""
        self._lines: Deque[Trace] = collections.deque(maxlen=_WAITING_LINES)
        self._supervisor: Optional[Line] = None

    def begin(self, supervisor: Line, *, wanted: bool) -> None:
        """Trace this process from here on, where that is wanted; a supervisor that connected again goes on with it."""
        self._supervisor = supervisor
        if wanted:
            trace.start(trace.MESSAGES, self._take)
            self._send(supervisor)

    def _take(self, at: str, text: str) -> None:
        self._lines.append(Trace(at=at, text=text))
        if self._supervisor is not None:
            self._send(self._supervisor)

    def _send(self, supervisor: Line) -> None:
        """Send what has been traced, as far as the supervisor takes it: each line before the message that it is about."""
        while self._lines and supervisor.fileno() >= 0 and supervisor.waiting < _WAITING_BYTES:
            supervisor.post(self._lines.popleft())
