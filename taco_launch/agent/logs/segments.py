"""Logs as streams of bytes cut into segment files, the oldest dropped first, with the times of what is in them.

A stream with the stem `rank-0` lies in files `rank-0.OFFSET.log`, OFFSET being the place in the stream of the file's
first byte: a reader finds its place again after any number of rotations.
"""

import contextlib
import os
import time
from pathlib import Path
from typing import Dict, List, Optional, Pattern, Tuple

from taco_launch.agent.logs.timestamps import (
    APPEND_FLAGS,
    Stamp,
    TimestampReader,
    TimestampWriter,
    beside,
    first_since,
    now,
)
from taco_launch.core.errors import HostError

CHUNK = 1 << 20
_RETRY_SECONDS = 1.0
# What a pattern for the start of a line may have to see of it: a host's name and the number of a rank.
_LABEL_BYTES = 1 << 10
# No stream is longer than what so many digits can tell, and a file's place 64 bits; a rank may give a file any name.
_MOST_DIGITS = 18


def segments(stem: Path) -> List[Tuple[int, Path]]:
    """Return (offset, file) of a stream's segments that are still there, oldest first."""
    found = []
    prefix = stem.name + "."
    try:
        names = os.listdir(stem.parent)
    except FileNotFoundError:
        return []
    for name in names:
        middle = name[len(prefix) : -len(".log")]
        is_offset = middle.isascii() and middle.isdecimal() and len(middle) <= _MOST_DIGITS
        if name.startswith(prefix) and name.endswith(".log") and is_offset:
            found.append((int(middle), stem.parent / name))
    return sorted(found)


def segment(stem: Path, offset: int) -> Path:
    """Name the segment that starts at `offset`."""
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
        self._stamper = TimestampWriter()
        # How much the notes in each segment say is not there, by where the segment starts.
        self._noted: Dict[int, int] = {}
        self._at = 0
        self._path = stem
        existing = segments(stem)
        self._start = existing[-1][0] if existing else 0
        self._size = existing[-1][1].lstat().st_size if existing else 0

    def write(self, data: bytes, at: Optional[int] = None) -> None:
        """Append `data`, which came at the time `at`, None for this moment.

        What a full disk takes is counted, and told in the log once there is room again.
        """
        self._at = now() if at is None else at
        if self._lost and not self._tell_lost():
            self._lose(len(data))
            return
        left = self._append(data)
        if left:
            self._lose(len(left))
            self._retry_at = time.monotonic() + _RETRY_SECONDS

    def note(self, text: bytes, dropped: int) -> None:
        """Append a line which says that `dropped` bytes are not there: they count as dropped here once rotation drops the line."""
        self.write(text)
        self._noted[self._start] = self._noted.get(self._start, 0) + dropped

    def _lose(self, count: int) -> None:
        self._lost += count
        self.lost_in_all += count

    def close(self) -> None:
        """Write how much was lost last, if there is room for that now, and close the file."""
        if self._lost:
            self._retry_at = 0.0
            self._tell_lost()
        if self._file is not None:
            os.close(self._file)
            self._file = None
        self._stamper.close()

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
                self._stamp()
                written = os.write(file, data[:room])
            except OSError as error:
                self._lost_why = error.strerror or str(error)
                return data
            self._size += written
            data = data[written:]
        return data

    def _open(self) -> int:
        self._path = segment(self._stem, self._start)
        self._file = os.open(self._path, APPEND_FLAGS, 0o600)
        return self._file

    def _stamp(self) -> None:
        self._stamper.mark(self._path, self._start, self._size, self._at)

    def _append_whole(self, note: bytes) -> bool:
        """Write all of a note into one segment or nothing, so that a reader can trust it."""
        try:
            if self._segment_bytes - self._size <= 0:
                self._rotate()
            file = self._file if self._file is not None else self._open()
            self._stamp()
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
        for offset, path in segments(self._stem)[:-1]:
            if dropped := self._noted.pop(offset, 0):
                self._count(dropped)
            # The index first: without its segment nobody would ever find it.
            beside(path).unlink(missing_ok=True)
            path.unlink()

    def _count(self, dropped: int) -> None:
        """Add to what the lines that were dropped said of others that were: an estimate, which stops no log."""
        with contextlib.suppress(OSError):
            total = f"{noted(self._stem) + dropped:{_MOST_DIGITS}d}"
            file = os.open(
                _noted(self._stem), os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, 0o600
            )
            try:
                os.pwrite(file, total.encode(), 0)
            finally:
                os.close(file)


def noted(stem: Path) -> int:
    """Return how many bytes the lines that rotation has dropped said had been dropped before them."""
    with contextlib.suppress(OSError, ValueError, HostError):
        file = _opened(_noted(stem))
        try:
            return max(0, int(os.read(file, _MOST_DIGITS)))
        finally:
            os.close(file)
    return 0


def _noted(stem: Path) -> Path:
    return stem.with_name(f"{stem.name}.dropped")


class SegmentReader:
    """Reads a stream from an offset on, while it is being written."""

    def __init__(self, stem: Path, offset: int = 0) -> None:
        """Start at `offset`, or at the oldest byte that is still there after it."""
        self._stem = stem
        self.offset = offset
        self.skipped = 0
        self._file: Optional[int] = None
        self._times: Optional[TimestampReader] = None
        self._start = 0
        self._given = 0

    def read(self, size: int = CHUNK) -> bytes:
        """Return the next bytes, none when there are no more yet. What was dropped is added to `skipped`."""
        while True:
            if self._file is not None:
                data = os.pread(self._file, size, self.offset - self._start)
                if data:
                    self._given = len(data)
                    self.offset += len(data)
                    return data
            if not self._open_next():
                return b""

    def times(self) -> "List[Stamp]":
        """Return when what was read last came: (place, time) of each of its pieces, the first where it starts."""
        if self._times is None:
            self._times = TimestampReader(segment(self._stem, self._start))
        return self._times.stamps_between(self.offset - self._given, self.offset)

    def close(self) -> None:
        """Close the segment that is open."""
        if self._file is not None:
            os.close(self._file)
            self._file = None
        if self._times is not None:
            self._times.close()
            self._times = None

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
                file = _opened(path)
            except FileNotFoundError:  # dropped this moment: look again
                continue
            self.close()
            self._file, self._start = file, start
            self.skipped += max(start - self.offset, 0)
            self.offset = max(self.offset, start)
            return True


def _opened(path: Path) -> int:
    """Open a segment to read; the job's ranks may have put anything in its place.

    Raises:
        FileNotFoundError: there is none.
        HostError: it is not a regular file, or cannot be read.
    """
    from taco_launch.agent.store import untrusted  # noqa: PLC0415 - the ranks' wrappers write alone

    try:
        return untrusted.open_regular(path)
    except FileNotFoundError:
        raise
    except OSError as error:
        raise HostError(
            f"{path}: it cannot be read: {error.strerror}", "look at its owner and permissions: ls -l"
        ) from None


def size(stem: Path) -> int:
    """Return the offset of a stream's end."""
    present = segments(stem)
    return present[-1][0] + present[-1][1].lstat().st_size if present else 0


def since(stem: Path, when: int) -> int:
    """Return the offset of the first bytes that came at `when` (microseconds since the epoch) or later, or nobody knows."""
    found = first_since(segments(stem), when)
    return size(stem) if found is None else found


def tail(stem: Path, lines: int, end: Optional[int] = None, chosen: "Optional[Pattern[bytes]]" = None) -> int:
    """Return the offset at which the last `lines` lines of a stream begin, of those before `end` that start as `chosen`.

    A last line without an end counts.
    """
    last = size(stem) if end is None else end
    if not lines:
        return last
    present = segments(stem)
    first = last
    for start, path in reversed(present):
        if end is not None and start >= end:
            continue
        try:
            descriptor = _opened(path)
        except FileNotFoundError:  # the oldest was dropped a moment ago
            break
        first = start
        with open(descriptor, "rb") as file:
            position = file.seek(0, os.SEEK_END)
            if end is not None:
                position = min(position, end - start)
            elif (start, path) == present[-1]:
                last = start + position  # it may have grown since
            while position:
                begin = max(position - CHUNK, 0)
                file.seek(begin)
                data = file.read(position - begin + (0 if chosen is None else _LABEL_BYTES))
                # The newline at the very end is the last line's own.
                index = position - begin
                index -= start + position == last and data.endswith(b"\n", 0, index)
                while lines and index >= 0:
                    stop, index = index, data.rfind(b"\n", 0, index)
                    # Of a line that was overwritten the last state counts.
                    start_of = max(index, -1 if chosen is None else data.rfind(b"\r", index + 1, max(stop - 1, 0))) + 1
                    lines -= index >= 0 and (chosen is None or chosen.match(data, start_of) is not None)
                if not lines:
                    return start + begin + index + 1
                position = begin
    return first


def last_words(stem: Path, most: int = 1 << 14) -> str:
    """Return the end of a stream as text, at most `most` bytes of it."""
    reader = SegmentReader(stem, max(size(stem) - most, 0))
    data = reader.read(most)
    reader.close()
    return data.decode("utf-8", "replace")


def first_words(stem: Path, most: int) -> str:
    """Return the beginning of a stream as text, of at most `most` bytes."""
    reader = SegmentReader(stem)
    try:
        return _take(reader, most).decode("utf-8", "replace")
    finally:
        reader.close()


def head_and_tail(stem: Path, most: int = CHUNK) -> Tuple[str, int, str]:
    """Return the start and the end of a stream as text, of at most `most` bytes each, and the line ends between."""
    reader = SegmentReader(stem)
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


def _take(reader: SegmentReader, most: int) -> bytes:
    """Read up to `most` bytes, across segments."""
    pieces = []
    while most > 0:
        data = reader.read(most)
        if not data:
            break
        pieces.append(data)
        most -= len(data)
    return b"".join(pieces)
