"""The agent log of a job, kept on its head where that was requested: what its supervisor and its guards decided and said.

The supervisor is the only one that writes it; when it is gone for good, its host's guard does. A guard sends it its lines,
and keeps the last ones while nobody listens. On another host it writes them into a file there besides.
"""

import collections
import contextlib
from typing import Deque, Optional

from taco_launch.agent.logs import segments
from taco_launch.agent.store.folders import JobFolder
from taco_launch.core import trace
from taco_launch.core.protocol.connection import JsonConnection
from taco_launch.core.protocol.guard_messages import Supervise, Trace

_BYTES = 16 << 20
# Of a guard that has no connection, and of what it has posted and not yet sent.
_WAITING_LINES, _WAITING_BYTES = 1000, 1 << 18

# A supervisor has one job.
_file: Optional[segments.Writer] = None


def start(folder: JobFolder, *, wanted: bool) -> None:
    """Trace this process, the supervisor, into the agent log of its job, where that is wanted."""
    if not wanted:
        return
    global _file  # noqa: PLW0603 - see above
    _file = _opened(folder)
    trace.start(trace.MESSAGES, lambda at, text: _write(at, "supervisor", text))


def relay(host: str, message: Trace) -> None:
    """Write a guard's line, where there is a log."""
    _write(message.at, guard_of(host), message.text)


def _write(at: str, who: str, text: str) -> None:
    if _file is not None:
        _append(_file, at, who, text)


class GuardTrace:
    """A guard's lines, on their way to its supervisor; on another host than the head in its own folder, too.

    There they tell what it did while nobody could be reached.
    """

    def __init__(self, folder: JobFolder, *, elsewhere: bool) -> None:
        """Trace nothing yet."""
        self._folder, self._elsewhere = folder, elsewhere
        self._lines: Deque[Trace] = collections.deque(maxlen=_WAITING_LINES)
        self._supervisor: Optional[JsonConnection] = None
        self._who: Optional[str] = None
        self._own: Optional[segments.Writer] = None

    def begin(self, supervisor: JsonConnection, message: Supervise) -> None:
        """Trace this process from here on, where that is wanted; a supervisor that connected again continues with it."""
        self._supervisor = supervisor
        if not message.agent_log:
            return
        first, self._who = self._who is None, guard_of(message.name)
        if first and self._elsewhere:
            self._own = _opened(self._folder)
        trace.start(trace.MESSAGES, self._take)
        self._send(supervisor)

    def take_over(self) -> None:
        """Go on with the head's file: the supervisor is gone, and nobody else writes there."""
        if self._who is None:
            return
        self._own = _opened(self._folder)
        for line in self._lines:
            if self._own is not None:
                _append(self._own, line.at, self._who, line.text)
        self.note("the supervisor is gone: its guard ends the job")

    def note(self, decided: str) -> None:
        """Trace what the guard decided."""
        trace.decision(decided)

    def _take(self, at: str, text: str) -> None:
        if self._own is not None and self._who is not None:
            _append(self._own, at, self._who, text)
        self._lines.append(Trace(at=at, text=text))
        if self._supervisor is not None:
            self._send(self._supervisor)

    def _send(self, supervisor: JsonConnection) -> None:
        """Send what has been traced, as far as the supervisor takes it: each line before the message that it is about."""
        while self._lines and supervisor.fileno() >= 0 and supervisor.waiting < _WAITING_BYTES:
            supervisor.post(self._lines.popleft())


def guard_of(host: str) -> str:
    """Name a guard in the log."""
    return f"guard of {host}"


def _opened(folder: JobFolder) -> Optional[segments.Writer]:
    with contextlib.suppress(OSError):  # no job ends for its debug log
        return segments.Writer(folder.agent_log, _BYTES)
    return None


def _append(file: segments.Writer, at: str, who: str, text: str) -> None:
    with contextlib.suppress(OSError):  # as above
        file.write(f"{at} {who}: {text}\n".encode("utf-8", "replace"))
