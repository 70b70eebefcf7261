"""Logs of ranks that run on another host than the supervisor: read by the guard there, kept by the supervisor here.

So is the log of the host's own launcher, where it has one.

Every piece tells its place in the rank's log, and when what is in it came. After a connection was made again, the guard continues where the supervisor
says it is; so nothing is lost or doubled.
"""

from pathlib import Path
from typing import Callable, Dict, Mapping, Optional, Tuple

from taco_launch.agent.logs import segments
from taco_launch.agent.store.folders import JobFolder
from taco_launch.core.protocol.connection import JsonConnection
from taco_launch.core.protocol.guard_messages import LogData

# Stands for the number of a rank where the log is the launcher's.
LAUNCHER = -1
_PIECE = 1 << 18
# How far a guard reads ahead of what the supervisor says it has: all that can pile up on the way.
_AHEAD = 1 << 21


class LogSender:
    """The guard's side."""

    def __init__(self, folder: JobFolder) -> None:
        """Send nothing yet."""
        self._folder = folder
        self._readers: Dict[int, segments.SegmentReader] = {}
        self._had: Dict[int, int] = {}

    def add(self, rank: int) -> None:
        """Send this rank's log from its start on."""
        if rank not in self._readers:
            self._start(rank, 0)

    def go_on(self, offsets: Mapping[str, int]) -> None:
        """Go on behind what the supervisor has (by rank, as JSON writes it), over a new connection."""
        for rank in self._readers:
            self._start(rank, offsets.get(str(rank), 0))

    def acknowledge(self, rank: int, offset: int) -> None:
        """Note how far the supervisor has it."""
        self._had[rank] = offset

    def step(self, line: JsonConnection) -> bool:
        """Post what there is, a bounded piece of each log; False when there was nothing."""
        moved = False
        for rank, reader in self._readers.items():
            if reader.offset - self._had[rank] >= _AHEAD:
                continue
            data = reader.read(_PIECE)
            if data:
                begin = reader.offset - len(data)
                times = [(place - begin, at) for place, at in reader.times()]
                line.post(LogData(rank=rank, offset=begin, times=times, data=data))
                moved = True
        return moved

    def sizes(self) -> Dict[int, int]:
        """Return how long each log is by now."""
        return {rank: segments.size(self._stem(rank)) for rank in self._readers}

    def _stem(self, rank: int) -> Path:
        return self._folder.launcher if rank == LAUNCHER else self._folder.rank(rank)

    def _start(self, rank: int, offset: int) -> None:
        if rank in self._readers:
            self._readers[rank].close()
        self._readers[rank] = segments.SegmentReader(self._stem(rank), offset)
        self._had[rank] = offset


class LogReceiver:
    """The supervisor's side, for the ranks of one host."""

    def __init__(self, folder: JobFolder, max_bytes: int, finished: Callable[[Path], None], host: str = "") -> None:
        """Keep copies below `folder`; `finished(stem)` is called when a rank has ended and its log is all here."""
        self._folder, self._host = folder, host
        self._max_bytes = max_bytes
        self._finished = finished
        self._writers: Dict[int, segments.Writer] = {}
        self._sizes: Dict[int, Optional[int]] = {}
        self.offsets: Dict[int, int] = {}

    def take(self, message: LogData) -> Tuple[int, int]:
        """Keep a piece of a log; return (rank, offset) of how far that rank's log is here now."""
        rank, offset, data = message.rank, message.offset, message.data
        writer = self._writers.get(rank)
        if writer is None:
            writer = self._writers[rank] = segments.Writer(self._stem(rank), self._max_bytes)
        have = self.offsets.get(rank, 0)
        if offset > have:
            writer.write(b"[taco-launch: %d bytes dropped by log rotation before they were read]\n" % (offset - have))
            have = offset
        ends = [*(begin for begin, _at in message.times[1:]), len(data)]
        for (begin, at), end in zip(message.times, ends):
            if end > have - offset:
                writer.write(data[max(begin, have - offset) : end], at)
        self.offsets[rank] = max(have, offset + len(data))
        self._close_if_whole(rank)
        return rank, self.offsets[rank]

    def ends_at(self, rank: int, size: int) -> None:
        """Note that a rank has ended, and how long its log is."""
        if rank not in self._sizes:
            self._sizes[rank] = size
            self._close_if_whole(rank)

    def whole(self) -> bool:
        """Return whether the logs of all ranks that have ended are all here."""
        return all(self.offsets.get(rank, 0) >= size for rank, size in self._sizes.items() if size is not None)

    def close(self) -> int:
        """Close what is open and give how many bytes were lost on a full disk here."""
        for writer in self._writers.values():
            writer.close()
        return sum(writer.lost_in_all for writer in self._writers.values())

    def _close_if_whole(self, rank: int) -> None:
        size = self._sizes.get(rank)
        if size is not None and self.offsets.get(rank, 0) >= size:
            self._finished(self._stem(rank))

    def _stem(self, rank: int) -> Path:
        return self._folder.launcher_on(self._host) if rank == LAUNCHER else self._folder.rank(rank)
