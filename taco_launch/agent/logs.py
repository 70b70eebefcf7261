"""Logs as streams of bytes cut into segment files, the oldest dropped first; and the merged log made from the ranks'.

A stream with the stem `rank-0` lies in files `rank-0.OFFSET.log`, OFFSET being the place in the stream of the file's
first byte: a reader finds its place again after any number of rotations.
"""

import os
import time
from pathlib import Path
from typing import List, Optional, Tuple

CHUNK = 1 << 20
_RETRY_SECONDS = 1.0
# Lines up to here stay whole in the merged log.
_LINE_BOUND = 64 * CHUNK


def segments(stem: Path) -> List[Tuple[int, Path]]:
    """Give (offset, file) of a stream's segments that are still there, oldest first."""
    found = []
    prefix = stem.name + "."
    try:
        names = os.listdir(stem.parent)
    except FileNotFoundError:
        return []
    for name in names:
        middle = name[len(prefix) : -len(".log")]
        if name.startswith(prefix) and name.endswith(".log") and middle.isascii() and middle.isdecimal():
            found.append((int(middle), stem.parent / name))
    return sorted(found)


def segment(stem: Path, offset: int) -> Path:
    """Name the segment that begins at `offset`."""
    return stem.parent / f"{stem.name}.{offset}.log"


class Writer:
    """Appends to a stream, keeping at most `max_bytes` of it. A full disk stops the log, never the writer."""

    def __init__(self, stem: Path, max_bytes: int) -> None:
        """Open the stream at its end."""
        self._stem = stem
        # Two segments: the older one is dropped when the newer is full, so at least half the limit is always there.
        self._segment_bytes = max(max_bytes // 2, 1)
        self.lost_in_all = 0
        self._lost = 0
        self._lost_why = ""
        self._retry_at = 0.0
        self._file: Optional[int] = None
        existing = segments(stem)
        self._start = existing[-1][0] if existing else 0
        self._size = existing[-1][1].stat().st_size if existing else 0

    def write(self, data: bytes) -> None:
        """Append `data`. What a full disk takes is counted, and told in the log once there is room again."""
        if self._lost and not self._tell_lost():
            self._lose(len(data))
            return
        left = self._append(data)
        if left:
            self._lose(len(left))
            self._retry_at = time.monotonic() + _RETRY_SECONDS

    def _lose(self, count: int) -> None:
        self._lost += count
        self.lost_in_all += count

    def close(self) -> None:
        """Tell what was lost last, if there is room for that now, and close the file."""
        if self._lost:
            self._retry_at = 0.0
            self._tell_lost()
        if self._file is not None:
            os.close(self._file)
            self._file = None

    def _tell_lost(self) -> bool:
        """Write how much was lost, if there is room again; not asked too often."""
        if time.monotonic() < self._retry_at:
            return False
        if not self._append_whole(
            f"\n[taco-launch: {self._lost} bytes of output lost here: {self._lost_why}]\n".encode()
        ):
            self._retry_at = time.monotonic() + _RETRY_SECONDS
            return False
        self._lost = 0
        return True

    def _append(self, data: bytes) -> bytes:
        """Write what can be written and give the rest."""
        while data:
            room = self._segment_bytes - self._size
            try:
                if room <= 0:
                    self._rotate()
                    continue
                file = self._file if self._file is not None else self._open()
                written = os.write(file, data[:room])
            except OSError as error:
                self._lost_why = error.strerror or str(error)
                return data
            self._size += written
            data = data[written:]
        return data

    def _open(self) -> int:
        self._file = os.open(segment(self._stem, self._start), os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        return self._file

    def _append_whole(self, note: bytes) -> bool:
        """Write all of a note into one segment or nothing, so that a reader can trust it."""
        try:
            if self._segment_bytes - self._size <= 0:
                self._rotate()
            file = self._file if self._file is not None else self._open()
            written = os.write(file, note)
            if written < len(note):
                os.ftruncate(file, self._size)
                return False
        except OSError as error:
            self._lost_why = error.strerror or str(error)
            return False
        self._size += written
        return True

    def _rotate(self) -> None:
        if self._file is not None:
            os.close(self._file)
            self._file = None
        self._start += self._size
        self._size = 0
        for _offset, path in segments(self._stem)[:-1]:
            path.unlink()


class Reader:
    """Reads a stream from an offset on, while it is being written."""

    def __init__(self, stem: Path, offset: int = 0) -> None:
        """Start at `offset`, or at the oldest byte that is still there after it."""
        self._stem = stem
        self.offset = offset
        self.skipped = 0
        self._file: Optional[int] = None
        self._start = 0

    def read(self, size: int = CHUNK) -> bytes:
        """Give the next bytes, none when there are no more yet. What was dropped is added to `skipped`."""
        while True:
            if self._file is not None:
                data = os.pread(self._file, size, self.offset - self._start)
                if data:
                    self.offset += len(data)
                    return data
            if not self._open_next():
                return b""

    def close(self) -> None:
        """Close the segment that is open."""
        if self._file is not None:
            os.close(self._file)
            self._file = None

    def _open_next(self) -> bool:
        """Open the segment that holds the offset, or the oldest after it; False when there is none but the open one."""
        while True:
            start, path = self.offset, segment(self._stem, self.offset)
            if self._file is not None and self._start == start:
                return False
            if not path.exists():
                if self._file is not None and os.fstat(self._file).st_nlink:
                    return False
                present = segments(self._stem)
                if not present:
                    return False
                start, path = next((entry for entry in reversed(present) if entry[0] <= self.offset), present[0])
            try:
                file = os.open(path, os.O_RDONLY)
            except FileNotFoundError:  # dropped this moment: look again
                continue
            self.close()
            self._file, self._start = file, start
            self.skipped += max(start - self.offset, 0)
            self.offset = max(self.offset, start)
            return True


def size(stem: Path) -> int:
    """Give the offset of a stream's end."""
    present = segments(stem)
    return present[-1][0] + present[-1][1].stat().st_size if present else 0


def tail(stem: Path, lines: int) -> int:
    """Give the offset at which the last `lines` lines of a stream begin; a last line without an end counts."""
    if not lines:
        return size(stem)
    present = segments(stem)
    first = end = size(stem)
    for start, path in reversed(present):
        try:
            descriptor = os.open(path, os.O_RDONLY)
        except FileNotFoundError:  # the oldest was dropped a moment ago
            break
        first = start
        with open(descriptor, "rb") as file:
            position = file.seek(0, os.SEEK_END)
            if (start, path) == present[-1]:
                end = start + position  # it may have grown since
            while position:
                begin = max(position - CHUNK, 0)
                file.seek(begin)
                data = file.read(position - begin)
                # The newline at the very end is the last line's own.
                index = len(data) - (start + position == end and data.endswith(b"\n"))
                while lines and index >= 0:
                    index = data.rfind(b"\n", 0, index)
                    lines -= index >= 0
                if not lines:
                    return start + begin + index + 1
                position = begin
    return first


def last_words(stem: Path, most: int = 1 << 14) -> str:
    """Give the end of a stream as text, at most `most` bytes of it."""
    reader = Reader(stem, max(size(stem) - most, 0))
    data = reader.read(most)
    reader.close()
    return data.decode("utf-8", "replace")


def ends(stem: Path, most: int = CHUNK) -> Tuple[str, int, str]:
    """Give the beginning and the end of a stream as text, of at most `most` bytes each, and the line ends between."""
    reader = Reader(stem)
    head = _take(reader, most)
    last = size(stem) - most
    between = 0
    while reader.offset < last:
        data = reader.read(min(CHUNK, last - reader.offset))
        if not data:
            break
        between += data.count(b"\n")
    tail = _take(reader, most)
    reader.close()
    return head.decode("utf-8", "replace"), between, tail.decode("utf-8", "replace")


def _take(reader: Reader, most: int) -> bytes:
    """Read up to `most` bytes, across segments."""
    pieces = []
    while most > 0:
        data = reader.read(most)
        if not data:
            break
        pieces.append(data)
        most -= len(data)
    return b"".join(pieces)


class Merge:
    """Brings the logs of several streams into one, whole lines at a time, each line behind its stream's label.

    A line ends with a newline or with a carriage return that no newline follows: a progress bar stays in place on a
    terminal, and without the labels every stream's bytes are what was written.
    """

    def __init__(self, target: Path, max_bytes: int) -> None:
        """Write to the stream `target`."""
        self._out = Writer(target, max_bytes)
        self._sources: List[_Source] = []
        # The stream whose line is open: one of more than _LINE_BOUND bytes, which another stream's line would cut.
        self._in_line: Optional[_Source] = None

    def add(self, stem: Path, label: str) -> None:
        """Merge the stream `stem` from its start on."""
        self._sources.append(_Source(stem, f"{label} | ".encode("utf-8", "surrogateescape")))

    def close(self) -> int:
        """Close the merged log and give how many bytes of it were lost in all."""
        self._out.close()
        return self._out.lost_in_all

    def finish(self, stem: Path) -> None:
        """Say that nothing more comes from the stream `stem`, so that a last line without an end is one."""
        for source in self._sources:
            if source.stem == stem:
                source.finished = True

    def step(self) -> bool:
        """Bring over what has come since, from each stream a bounded piece. False when there was nothing."""
        moved = False
        for source in self._sources:
            lines = source.lines()
            if not lines:
                continue
            if self._in_line is not None and self._in_line is not source:
                self._in_line.in_line = False
                self._out.write(b"\n")
            self._out.write(lines)
            self._in_line = source if source.in_line else None
            moved = True
        return moved


class _Source:
    def __init__(self, stem: Path, label: bytes) -> None:
        self.stem = stem
        self.finished = False
        self._reader = Reader(stem)
        self._label = label
        self._rest: List[bytes] = []
        self.in_line = False

    def lines(self) -> bytes:
        """Give the next whole lines behind their labels, none when there are none yet."""
        while True:
            data = self._reader.read()
            if self._reader.skipped:
                note = f"[taco-launch: {self._reader.skipped} bytes dropped by log rotation before they were merged]\n"
                data = (b"\n" if self._rest or self.in_line else b"") + note.encode() + data
                self._reader.skipped = 0
            if not data:
                return self._labelled(close=True) if self.finished and (self._rest or self.in_line) else b""
            if self._rest and self._rest[-1].endswith(b"\r"):  # only now can it be told whether a newline follows
                data = b"".join((*self._rest, data))
                self._rest = []
            end = max(data.rfind(b"\n"), data.rfind(b"\r", 0, -1)) + 1
            # A long line is kept in pieces and joined once; beyond the bound its pieces go out as they come.
            self._rest.append(data[:end] if end else data)
            if end or sum(map(len, self._rest)) > _LINE_BOUND:
                labelled = self._labelled(close=False)
                self._rest = [data[end:]] if end and data[end:] else []
                return labelled

    def _labelled(self, *, close: bool) -> bytes:
        data = b"".join(self._rest)
        self._rest = []
        label = self._label
        text = data.replace(b"\n", b"\n" + label)
        if b"\r" in data:
            text = text.replace(b"\r", b"\r" + label).replace(b"\r" + label + b"\n", b"\r\n")
        if not self.in_line and data:
            text = label + text
        self.in_line = not data.endswith((b"\n", b"\r"))
        if not self.in_line:
            text = text[: -len(label)]
        elif close:
            self.in_line = False
            text += b"\n"
        return text
