"""When the bytes of a log came: an index beside each segment, of entries (place in the stream, time).

The clock is the real-time clock of the host where the rank runs, read when its wrapper takes the bytes; copies on other
hosts and the merged log carry that time on. A time is in microseconds since the epoch, 0 where nobody knows it.

The segment `rank-0.OFFSET.log` has its index in `rank-0.OFFSET.times`. An entry is written before the bytes that it
tells of: who reads these finds it. Of two entries for one place the later holds.
"""

import os
import struct
import time
from pathlib import Path
from typing import Iterator, List, Optional, Tuple

# A place, and the time of what starts there.
Stamp = Tuple[int, int]

# O_NONBLOCK: a rank may have put a FIFO in the way, which nobody reads.
APPEND_FLAGS = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_NONBLOCK

_ENTRY = struct.Struct("<QQ")
_PAGE = _ENTRY.size << 12
# What comes within so many microseconds of an entry has its time: merging a chatty job costs what its entries do.
_SAME = 10_000
# However short the pieces are that somebody writes, an index is larger than its segment by no more than this.
_FREE_BYTES = 1 << 20


def now() -> int:
    """Return the present time."""
    return int(time.time() * 1_000_000)


def beside(segment: Path) -> Path:
    """Name the index of a segment."""
    return segment.with_suffix(".times")


class TimestampWriter:
    """Writes the index of the segment that is being written. Its errors are ignored: the log itself is unaffected."""

    def __init__(self) -> None:
        """Touch nothing yet."""
        self._segment: Optional[Path] = None
        self._file: Optional[int] = None
        self._bytes = 0
        self._last = 0

    def mark(self, segment: Path, start: int, size: int, at: int) -> None:
        """Note that what comes behind the first `size` bytes of a segment, which starts at `start`, has the time `at`."""
        if segment != self._segment:
            self.close()
            self._segment = segment
        elif abs(at - self._last) < _SAME or self._bytes > size + _FREE_BYTES:
            return
        self._last = at
        try:
            if self._file is None:
                self._file, self._bytes = _opened(beside(segment))
            written = os.write(self._file, _ENTRY.pack(start + size, at))
        except OSError:
            written = 0
        self._bytes += written
        if written != _ENTRY.size:  # the disk is full: half an entry is cut off when the file is opened again
            self._close_file()

    def close(self) -> None:
        """Close the file."""
        self._close_file()
        self._segment = None

    def _close_file(self) -> None:
        if self._file is not None:
            os.close(self._file)
            self._file = None


def _opened(path: Path) -> Tuple[int, int]:
    """Open an index at the end of its last whole entry; give the file and how long it is."""
    file = os.open(path, APPEND_FLAGS, 0o600)
    try:
        size = os.fstat(file).st_size
        torn = size % _ENTRY.size
        if torn:
            os.ftruncate(file, size - torn)
    except OSError:
        os.close(file)
        raise
    return file, size - torn


class TimestampReader:
    """Reads the index of one segment from somewhere on, forward, while it is being written."""

    def __init__(self, segment: Path) -> None:
        """Touch nothing yet."""
        self._path = beside(segment)
        self._file: Optional[int] = None
        self._next = 0
        self._at = 0

    def stamps_between(self, begin: int, end: int) -> List[Stamp]:
        """Cut the bytes from `begin` to `end` where their time changes: where each piece starts, `begin` first.

        They are behind those of the call before.
        """
        try:
            return self._stamps_between(begin, end)
        except OSError:  # there is none, or it cannot be read
            return [(begin, 0)]

    def _stamps_between(self, begin: int, end: int) -> List[Stamp]:
        if self._file is None:
            self._file = os.open(self._path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
            self._seek(begin)
        found = [(begin, self._at)]
        while True:
            entries = self._page()
            for place, at in entries:
                if place >= end:
                    break
                self._next += 1
                if place <= found[-1][0]:
                    found[-1] = (found[-1][0], at)
                else:
                    found.append((place, at))
            else:
                if entries:
                    continue
            break
        self._at = found[-1][1]
        return found

    def close(self) -> None:
        """Close the file."""
        if self._file is not None:
            os.close(self._file)
            self._file = None

    def _page(self) -> List[Stamp]:
        assert self._file is not None
        return list(_whole(os.pread(self._file, _PAGE, self._next * _ENTRY.size)))

    def _seek(self, begin: int) -> None:
        """Find the first entry behind `begin`, and the time of the one before it."""
        assert self._file is not None
        low, high = 0, os.fstat(self._file).st_size // _ENTRY.size
        while low < high:
            middle = (low + high) // 2
            if self._entry(middle)[0] <= begin:
                low = middle + 1
            else:
                high = middle
        self._next = low
        self._at = self._entry(low - 1)[1] if low else 0

    def _entry(self, index: int) -> Stamp:
        assert self._file is not None
        place, at = _ENTRY.unpack(os.pread(self._file, _ENTRY.size, index * _ENTRY.size))
        return place, at


def first_since(segments: List[Tuple[int, Path]], since: int) -> Optional[int]:
    """Return the place of the first bytes that came at `since` or later, or nobody knows when; None where there are none."""
    from taco_launch.agent.store import untrusted  # noqa: PLC0415 - who writes stamps, as each rank's wrapper, needs none of it

    for start, path in segments:
        try:
            with open(beside(path), "rb", opener=untrusted.opener) as index:
                for page in iter(lambda: index.read(_PAGE), b""):
                    for place, at in _whole(page):
                        if at >= since or not at:
                            return place
        except OSError:
            return start
    return None


def _whole(page: bytes) -> Iterator[Stamp]:
    """Return the entries of a page; the last one may have been torn."""
    return _ENTRY.iter_unpack(page[: len(page) - len(page) % _ENTRY.size])
