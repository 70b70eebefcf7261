"""The lines of a stream as they become whole, each with the time at which it started.

A line ends with a newline or with a carriage return that no newline follows: so the states of a progress bar are lines,
and with something put before each of them it stays in place on a terminal.
"""

import re
from pathlib import Path
from typing import List, Optional, Tuple

from taco_launch.agent.logs import segments
from taco_launch.agent.logs.timestamps import Stamp

# Some lines, and the time at which they started.
Piece = Tuple[bytes, int]

# Lines up to here are given whole.
_LINE_BOUND = 64 * segments.CHUNK
_END = re.compile(rb"\n|\r(?!\n)")


def behind(label: bytes, text: bytes, *, in_line: bool = False) -> bytes:
    """Put a label before every line of a text; `in_line`: its start is the rest of a line that has one."""
    labelled = text.replace(b"\n", b"\n" + label)
    if b"\r" in text:
        labelled = labelled.replace(b"\r", b"\r" + label).replace(b"\r" + label + b"\n", b"\r\n")
    if text.endswith((b"\n", b"\r")):
        labelled = labelled[: -len(label)]
    return labelled if in_line or not text else label + labelled


class LineReader:
    """Reads a stream line by line."""

    def __init__(
        self, stem: Path, offset: int = 0, *, beheaded: bool = True, headless: bool = False, merged: bool = False
    ) -> None:
        """Start at `offset`; there are only lines with their start where `beheaded` is not wanted.

        `headless`: what is at `offset` is the rest of a line. `merged`: the ends of lines are written whole, so that a
        carriage return at the end is one.
        """
        # The place of the first byte that was not given yet.
        self.offset = offset
        # How many bytes log rotation has dropped just before what is read next.
        self.skipped = 0
        # Nothing more comes: a last line without an end is one.
        self.finished = False
        self._reader = segments.SegmentReader(stem, offset)
        self._beheaded = beheaded
        self._headless = headless
        # The last byte of what has come that a carriage return is looked for in.
        self._last = None if merged else -1
        self._ahead: Optional[Tuple[bytes, List[Stamp]]] = None
        self._rest: List[bytes] = []
        self._stamps: List[Stamp] = []
        self._at = 0
        self._in_line = False

    def read(self) -> List[Piece]:
        """Return the next whole lines; none when there are none yet, or `skipped` tells something first."""
        while True:
            data, stamps = self._next()
            if self._reader.skipped:
                pieces = self._cut()
                self.skipped += self._reader.skipped
                self._reader.skipped = 0
                self._ahead = data, stamps
                self.offset = self._reader.offset - len(data)
                self._in_line, self._headless = False, not self._beheaded
                return pieces
            if not data:
                return self._cut() if self.finished else []
            self._stamps += stamps
            if self._rest and self._rest[-1].endswith(b"\r"):  # only now can it be told whether a newline follows
                data = b"".join((*self._rest, data))
                self._rest = []
            end = max(data.rfind(b"\n"), data.rfind(b"\r", 0, self._last)) + 1
            # A long line is kept in pieces and joined once; beyond the bound its pieces go out as they come.
            self._rest.append(data[:end] if end else data)
            if end or sum(map(len, self._rest)) > _LINE_BOUND:
                pieces = self._cut()
                self._rest = [data[end:]] if end and data[end:] else []
                if pieces:
                    return pieces

    def _next(self) -> Tuple[bytes, List[Stamp]]:
        if self._ahead is not None:
            ahead, self._ahead = self._ahead, None
            return ahead
        data = self._reader.read()
        return data, self._reader.times() if data else []

    def _cut(self) -> List[Piece]:
        """Return what exists, cut at the start of the first line behind each change of the time."""
        data = b"".join(self._rest)
        begin, position = self.offset, 0
        self._rest, self.offset = [], begin + len(data)
        if self._headless:
            end = _END.search(data)
            self._headless = end is None
            position = len(data) if end is None else end.end()
        pieces: List[Piece] = []
        applied = 0
        for place, at in self._stamps:
            line = self._line(data, place - begin)
            if line is None:
                break
            if line > position:
                pieces.append((data[position:line], self._at))
                position = line
            self._at = at
            applied += 1
        self._stamps = self._stamps[applied:]
        if position < len(data):
            pieces.append((data[position:], self._at))
        if data:
            self._in_line = not data.endswith((b"\n", b"\r"))
        return pieces

    def _line(self, data: bytes, index: int) -> Optional[int]:
        """Find the first line that starts at `index` or behind, None where none does in this piece of the stream."""
        if index <= 0 and not self._in_line:
            return 0
        end = _END.search(data, max(index - 1, 0))
        return None if end is None else end.end()
