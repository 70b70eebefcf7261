"""Progress bars: a program overwrites a line by a carriage return, and of its states few are worth a line of a merged log.

A merged log has the last state of a line, and before it at most one in five seconds, which ends with a carriage return
instead of a newline: these are lines for those who follow the job, not for later readers. The rank's own log has all.
"""

import re
from typing import Dict, List, Tuple

from taco_launch.agent.logs.timestamps import now

# Lines, and the states of one that is overwritten.
LINE = re.compile(rb"[^\r\n]*(?:\r\n|\n|\r)|[^\r\n]+")
# Microseconds between two states of a line that are told while it is overwritten.
_PAUSE = 5_000_000
# Of a state; a longer one is no bar.
_MOST_BYTES = 1 << 12
# A reader of a log that breaks off within lines keeps the last state of so many ranks.
_MOST_LABELS = 1 << 12


def last_state(line: str) -> str:
    """Return what a terminal shows last of a line that was overwritten."""
    return line.rstrip("\r").rpartition("\r")[2]


class StateWriter:
    """Thins out the states of one stream's lines; all else is passed on as it is."""

    def __init__(self) -> None:
        """Start at the beginning of a line."""
        self._newest = b""
        self._told_at = 0
        self._in_line = False

    def feed(self, text: bytes, at: int) -> bytes:
        """Return what of a text, which came at the time `at`, goes into the merged log."""
        if b"\r" not in text and not self._newest and not self._in_line:
            self._in_line = not text.endswith(b"\n")
            return text
        return b"".join(self._line(line, at or now()) for line in LINE.findall(text))

    def end(self) -> bytes:
        """Return the last state as a line, where the stream ends, or breaks off, behind one."""
        newest, self._newest = self._newest, b""
        self._in_line = False
        return newest + b"\n" if newest else b""

    def _line(self, line: bytes, at: int) -> bytes:
        if self._in_line:  # the rest of one that was too long to wait for its end
            self._in_line = not line.endswith((b"\n", b"\r"))
            return line[:-1] + b"\n" if line.endswith(b"\r") else line
        if line.endswith(b"\r"):
            return self._state(line[:-1], at)
        if self._newest and not line.strip():  # nothing is overwritten by that
            return self.end() if line.endswith(b"\n") else b""
        self._newest, self._in_line = b"", not line.endswith(b"\n")
        return line

    def _state(self, state: bytes, at: int) -> bytes:
        if not state.strip():
            return b""
        self._newest = state[:_MOST_BYTES]
        if abs(at - self._told_at) < _PAUSE:
            return b""
        self._told_at = at
        return self._newest + b"\r"


class StateReader:
    """Shows the states in a merged log: as lines to a follower who has caught up, else the last where its line has no end yet."""

    def __init__(self, *, follow: bool) -> None:
        """Start with no state."""
        self._follow = follow
        self._live = False
        self._newest: Dict[bytes, Tuple[bytes, int]] = {}

    def feed(self, text: bytes, at: int) -> bytes:
        """Return what is shown of a text with the time `at`."""
        if b"\r" not in text and not self._newest:
            return text
        return b"".join(self._line(line, at) for line in LINE.findall(text))

    def caught_up(self, *, final: bool) -> List[Tuple[bytes, int]]:
        """Return the last states of lines that have no end yet, with their times: there is no more by now, or `final` ever."""
        if not final and not self._follow:
            return []
        self._live = self._follow
        newest, self._newest = list(self._newest.values()), {}
        return newest

    def _line(self, line: bytes, at: int) -> bytes:
        label = line.partition(b" | ")[0][:_MOST_BYTES]
        if not line.endswith(b"\r"):
            self._newest.pop(label, None)
            return line
        if self._live:
            return line[:-1] + b"\n"
        if label in self._newest or len(self._newest) < _MOST_LABELS:
            self._newest[label] = line[:-1][: 2 * _MOST_BYTES] + b"\n", at
        return b""
