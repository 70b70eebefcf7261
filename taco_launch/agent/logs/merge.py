"""The merged log: whole lines of several streams as they come, each behind its stream's label, with its own time."""

import re
from pathlib import Path
from typing import Dict, List, Optional

from taco_launch.agent.logs.bars import StateWriter
from taco_launch.agent.logs.lines import LineReader, behind
from taco_launch.agent.logs.segments import Writer

# It never stands in the output of a rank: whatever that writes is behind its label.
BEGINNING = re.compile(rb"\n\[taco-launch: attempt (\d+)\]\n")


def beginning(attempt: int, suspended: str) -> bytes:
    """Return the line behind which a merged log holds what came of an attempt, the second or a later one.

    Before that is, in a line of its own, why the job was suspended in between, "" where it was not.
    """
    pause = b"[taco-launch: %s]\n" % suspended.encode("utf-8", "surrogateescape") if suspended else b""
    return pause + b"[taco-launch: attempt %d]\n" % attempt


class LogMerge:
    """Brings the logs of several streams into one; without the labels every stream's bytes are what was written.

    Of a line that is overwritten, as a progress bar is, not all states are there: see bars.py.
    """

    def __init__(self, target: Path, max_bytes: int) -> None:
        """Write to the stream `target`, behind what exists."""
        self._out = Writer(target, max_bytes)
        self._sources: List[_Source] = []
        self._by_stem: Dict[Path, List[_Source]] = {}
        # The stream whose line is open: one of more than 64 MiB, which another stream's line would cut.
        self._open: Optional[_Source] = None

    def begin(self, attempt: int, suspended: str = "") -> None:
        """Write the line that starts this attempt, counted from 1, with why the job was suspended before."""
        if attempt > 1:
            self._out.write(beginning(attempt, suspended))

    def add(self, stem: Path, label: str, *, polled: bool = True) -> None:
        """Merge the stream `stem` from its start on. One that is not polled is only looked at after `wake`."""
        source = _Source(stem, label, polled=polled)
        self._sources.append(source)
        self._by_stem.setdefault(stem, []).append(source)

    def wake(self, stem: Path) -> None:
        """Note that the stream `stem` has grown."""
        for source in self._by_stem.get(stem, ()):
            source.is_awake = True

    def close(self) -> int:
        """Close the merged log and give how many bytes of it were lost in all."""
        self._out.close()
        return self._out.lost_in_all

    def finish(self, stem: Path) -> None:
        """Mark the stream `stem` as complete, so that a last line without an end counts as one."""
        self.wake(stem)
        for source in self._by_stem.get(stem, ()):
            source.lines.finished = True

    def step(self) -> bool:
        """Bring over what has come since, from each stream a bounded piece. False when there was nothing."""
        moved = False
        for source in self._sources:
            if source.is_awake:
                brought = self._bring(source)
                source.is_awake = brought or source.polled
                moved = moved or brought
        return moved

    def _bring(self, source: "_Source") -> bool:
        pieces = source.lines.read()
        for piece, at in pieces:
            if text := source.states.feed(piece, at):
                self._end_line(unless=source)
                self._out.write(behind(source.label, text, in_line=self._open is source), at)
                self._open = None if text.endswith((b"\n", b"\r")) else source
        skipped, source.lines.skipped = source.lines.skipped, 0
        broken_off = skipped or (source.lines.finished and not pieces)
        if broken_off and (last := source.states.end()):
            self._end_line()
            self._out.write(source.label + last)
        if skipped:
            self._end_line()
            note = b"[taco-launch: %d bytes dropped by log rotation before they were merged]\n" % skipped
            self._out.note(source.label + note, skipped)
        elif source.lines.finished and self._open is source:
            self._end_line()
        return bool(pieces or skipped)

    def _end_line(self, unless: "Optional[_Source]" = None) -> None:
        """End the line that is open, unless it is this stream's."""
        if self._open is not None and self._open is not unless:
            self._out.write(b"\n")
            self._open = None


class _Source:
    def __init__(self, stem: Path, label: str, *, polled: bool) -> None:
        self.polled = self.is_awake = polled
        self.label = f"{label} | ".encode("utf-8", "surrogateescape")
        self.lines = LineReader(stem)
        self.states = StateWriter()
