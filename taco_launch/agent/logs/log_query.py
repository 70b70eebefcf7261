"""The part of a job's logs that somebody asks for: of all ranks, a host, an instance or a rank; since a time; an attempt.

What concerns one host is taken from the merged log, by the labels of its lines.
"""

import functools
import re
import time
from pathlib import Path
from typing import TYPE_CHECKING, List, NamedTuple, Optional, Pattern, Tuple

from taco_launch.agent.logs import segments
from taco_launch.agent.logs.bars import LINE, StateReader
from taco_launch.agent.logs.lines import LineReader, Piece, behind
from taco_launch.agent.logs.merge import BEGINNING
from taco_launch.agent.store import records
from taco_launch.agent.store.folders import JobFolder
from taco_launch.core.errors import UsageError
from taco_launch.core.lifecycle import state
from taco_launch.core.model.instances import Instance, instances
from taco_launch.core.model.jobs import Event
from taco_launch.core.protocol.calls.logs import Logs

if TYPE_CHECKING:
    from taco_launch.agent.logs.grep import Grep

# Bytes that a line may have with which an attempt starts.
_LONGEST = 64
# Of the last lines of ranks that are asked for, so many of launchers besides: these have the most to say when all is over.
_MOST_OF_LAUNCHERS = 100
_OF_A_RANK = re.compile(rb"\S+/\d+ *\| ")
# Of the last lines that match.
_MOST_KEPT = 1 << 24
# As wide as a time.
_UNKNOWN = b"-                        "


class _Stream(NamedTuple):
    """A log on disk, or the part of it that lies between two places, the second None where it continues.

    It is of one attempt, None of all; of the merged log perhaps only the lines that are labelled so.
    """

    stem: Path
    attempt: Optional[int] = None
    label: Optional[Pattern[bytes]] = None
    begin: int = 0
    end: Optional[int] = None


class Excerpt:
    """Reads what is requested, while it is being written."""

    def __init__(self, folder: JobFolder, request: Logs, attempt: Optional[int] = None) -> None:
        """Start where the request says; `attempt` goes before the last one, where the request names none.

        Raises:
            UsageError: the job has no such rank, host, instance or attempt; the hint names those that it has.
        """
        stream = _stream(folder, request, attempt)
        self.attempt = stream.attempt
        # How many bytes log rotation has dropped just before what is read next.
        self.skipped = 0
        self._merged = stream.stem == folder.merged
        self._parted = self._merged and stream.attempt is not None
        self._label = stream.label
        self._since = None if request.since is None else int(request.since * 1_000_000)
        self._stamped = request.timestamps
        self._over = False
        self._in_line = False
        offset, headless = self._begin(stream, request)
        # What was dropped before it was merged, as lines said that are not there any more.
        self._before = segments.noted(stream.stem) if self._merged and offset == 0 else 0
        self._reader = segments.SegmentReader(stream.stem, offset)
        self._lines: Optional[LineReader] = None
        self._grep: Optional[Grep] = None
        self._last: Optional[List[bytes]] = None
        if request.grep is not None:
            from taco_launch.agent.logs import grep  # noqa: PLC0415 - few who read a log look for something

            self._grep = grep.Grep(request.grep, labelled=self._merged)
            self._last, self._most = ([], request.tail) if request.tail else (None, 0)
        self._states = StateReader(follow=request.follow) if self._merged else None
        if self._merged or self._stamped or self._since is not None or self._grep:
            self._lines = LineReader(stream.stem, offset, beheaded=False, headless=headless, merged=self._merged)

    @property
    def offset(self) -> int:
        """The place in the log up to which it was read."""
        return self._reader.offset if self._lines is None else self._lines.offset

    def read(self, *, final: bool) -> Optional[bytes]:
        """Return what there is more to see, b"" where it is not for the eyes of who asks; None when there is no more yet.

        `final`: a last line without an end is one; otherwise it may be held back until that comes.
        """
        if self._lines is None:
            return self._raw()
        data = self._next(final=final)
        while self._last is not None:  # the last lines that match are wanted, of all that there are by now
            if data is None:
                data, self._last = b"".join(self._last[len(self._last) - self._most :]), None
                return data or None
            self._keep(data)
            data = self._next(final=final)
        return data

    def _keep(self, data: bytes) -> None:
        assert self._last is not None
        self._last += LINE.findall(data)
        del self._last[: max(0, len(self._last) - self._most)]
        while sum(map(len, self._last)) > _MOST_KEPT and len(self._last) > 1:
            del self._last[: len(self._last) // 2]
        self.skipped = 0

    def _next(self, *, final: bool) -> Optional[bytes]:
        assert self._lines is not None
        self._lines.finished = final
        skipped = self._lines.skipped
        if not skipped:
            pieces = [] if self._over else self._lines.read()
            skipped = self._lines.skipped
            wanted = [(self._wanted(text, at), at) for text, at in pieces]
            if self._states is not None:
                wanted = [(self._states.feed(text, at), at) for text, at in wanted]
                if not (pieces or skipped):
                    wanted = self._states.caught_up(final=final)
            if wanted:
                shown = b"".join(self._shown(text, at) for text, at in self._found(wanted))
                if skipped and shown and not shown.endswith((b"\n", b"\r")):
                    self._in_line = False
                    shown += b"\n"  # the rest of this line was dropped
                return shown
            if not skipped:
                return None
        self.skipped, self._lines.skipped = skipped + self._before, 0
        self._before = 0
        return b""

    def _raw(self) -> Optional[bytes]:
        data = self._reader.read()
        if self._reader.skipped:
            self.skipped, self._reader.skipped = self.skipped + self._reader.skipped, 0
            return data[data.find(b"\n") + 1 :]  # what was dropped ended in the middle of a line
        return data or None

    def _wanted(self, text: bytes, at: int) -> bytes:
        """Return the lines of a piece that are asked for, whatever they say."""
        if self._over:
            return b""
        if self._parted:
            text = self._up_to_next_attempt(text)
        if self._since is not None and 0 < at < self._since:
            return b""
        if self._label is not None:
            text = b"".join(line for line in LINE.findall(text) if self._label.match(line))
        return text

    def _found(self, pieces: List[Piece]) -> List[Piece]:
        """Return of each piece the lines that match the pattern; all where there is none."""
        if self._grep is None:
            return pieces
        may_match = self._grep.may_match
        hopeful = ((text, at) for text, at in pieces if may_match(text))
        lines = [(line, at) for text, at in hopeful for line in LINE.findall(text) if may_match(line)]
        matching = self._grep.matching([line for line, _at in lines])
        return [piece for piece, matches in zip(lines, matching) if matches]

    def _shown(self, text: bytes, at: int) -> bytes:
        if self._stamped and text:
            in_line, self._in_line = self._in_line, not text.endswith((b"\n", b"\r"))
            text = behind(_time(at), text, in_line=in_line)
        return text

    def _up_to_next_attempt(self, text: bytes) -> bytes:
        text = b"\n" + text
        begin = 0
        while found := BEGINNING.search(text, begin):
            if int(found[1]) != self.attempt:
                self._over = True
                return text[begin + 1 : found.start() + 1]
            begin = found.end() - 1  # it was placed, and its line not yet written, when we started
        return text[begin + 1 :]

    def _begin(self, stream: _Stream, request: Logs) -> Tuple[int, bool]:
        """Return the place to start at, and whether the rest of a line stands there."""
        offset = max(request.offset, stream.begin)
        if request.tail is not None and not (request.grep is not None and request.tail):
            offset = max(offset, _tail(stream, request.tail, merged=self._merged))
        if self._since is None:
            return offset, False
        place = segments.since(stream.stem, self._since)
        if place <= offset:
            return offset, False
        oldest = segments.segments(stream.stem)[0][0]
        # What the line before ends with tells whether one starts there.
        return (place - 1, True) if place > oldest else (place, True)


def _tail(stream: _Stream, lines: int, *, merged: bool) -> int:
    """Return where the last lines of a stream begin; of a merged log those of ranks are counted."""
    of_ranks = _OF_A_RANK if merged else None
    begin = segments.tail(stream.stem, lines, stream.end, stream.label or of_ranks)
    if not merged or stream.label is not None or not lines:
        return begin
    return max(begin, segments.tail(stream.stem, lines + _MOST_OF_LAUNCHERS, stream.end))


def _stream(folder: JobFolder, request: Logs, attempt: Optional[int]) -> _Stream:
    rank, host, instance, fixed = request.rank, request.host, request.instance, request.attempt
    if request.agent:
        if not segments.segments(folder.agent_log):
            raise UsageError(
                f"job {folder.name}: it has no agent log",
                hint="only jobs that are started with --agent-log keep an agent log",
            )
        return _Stream(folder.agent_log)
    if rank is None and host is None and instance is None and fixed is None:
        return _Stream(folder.merged)
    events = records.read_events(folder)
    last = records.record(folder).attempt
    if fixed is not None and not 1 <= fixed <= max(last, 1):
        raise UsageError(f"job {folder.name}: it has no attempt {fixed}", hint=_attempts(last))
    number = fixed or attempt or last or 1
    own = folder.of_attempt(number)
    if rank is not None:
        _check_rank(folder, rank, events, number)
        return _Stream(own.rank(rank), number)
    if host is not None:
        _check_host(folder, host, events)
        whole = _Stream(folder.merged) if fixed is None else _part(folder, fixed, last)
        return whole._replace(label=_label(host))
    if instance is None:
        return _part(folder, number, last)
    parts = _instances(folder, events, number)
    found = next((part for part in parts if part.name == instance), None)
    if found is None:
        names = ", ".join(part.name for part in parts)
        hint = f"its instances are {names}" if names else "it has not been given slots yet"
        raise UsageError(f"job {folder.name}: it has no instance {instance}", hint=hint)
    if found is parts[0] and not found.ranks:
        return _Stream(own.launcher, number)
    if len(found.ranks) == 1:
        return _Stream(own.rank(found.ranks[0]), number)
    return _part(folder, number, last)._replace(label=_label(found.host, found.ranks))


def _attempts(last: int) -> str:
    return f"its attempts are 1 to {last}" if last > 1 else "it was never restarted: its only attempt is 1"


def _label(host: str, ranks: Tuple[int, ...] = ()) -> Pattern[bytes]:
    """Return what lines of these ranks of a host start with in the merged log, without any those of all its ranks."""
    numbers = "|".join(map(str, ranks)).encode() or rb"\d+"
    return re.compile(re.escape(host.encode("utf-8", "surrogateescape")) + b"/(?:" + numbers + rb") *\| ")


def _placed(events: List[Event]) -> List[Event]:
    return [event for event in events if event.kind == state.PLACED]


def _check_rank(folder: JobFolder, rank: int, events: List[Event], attempt: int) -> None:
    for event in _placed(events):
        if int(event.data.get("attempt", 1)) == attempt and rank >= int(event.data["np"]):
            last = int(event.data["np"]) - 1
            hint = f"its ranks are 0 to {last}" if last else "its only rank is 0"
            raise UsageError(f"job {folder.name}: it has no rank {rank}", hint=hint)


def _check_host(folder: JobFolder, host: str, events: List[Event]) -> None:
    hosts = [name for event in _placed(events) for name in event.data["hosts"]]
    known = hosts or [entry.name for entry in records.read_spec(folder).hosts]
    if host not in known:
        hint = f"its hosts are {', '.join(dict.fromkeys(known))}"
        raise UsageError(f"job {folder.name}: none of its ranks is on a host {host}", hint=hint)


def _instances(folder: JobFolder, events: List[Event], attempt: int) -> List[Instance]:
    """Return the instances as they were in an attempt."""
    ends = [index for index, event in enumerate(events) if event.kind == state.PLACED]
    of_it = [index for index in ends if int(events[index].data.get("attempt", 1)) == attempt]
    if not of_it:
        return []
    return list(instances(records.read_spec(folder), state.reduce(events[: of_it[-1] + 1])))


def _part(folder: JobFolder, attempt: int, last: int) -> _Stream:
    """Return the part of the merged log that holds an attempt; an empty one where log rotation has dropped it.

    The line with which the last one starts may still be to come: it is placed before that is written.
    """
    stream = _Stream(folder.merged, attempt)
    if last <= 1:
        return stream
    lines = _beginnings(folder.merged)
    dropped = any(offset for offset, _file in segments.segments(folder.merged)[:1])
    first = lines[0][0] - 1 if lines else last if dropped else 1
    begins = [(first, 0), *((number, end) for number, _begin, end in lines)]
    ends = [*(begin for _number, begin, _end in lines), None]
    for (number, begin), end in zip(begins, ends):
        if number == attempt:
            return stream._replace(begin=begin, end=end)
    now = segments.size(folder.merged)
    to_come = attempt == last > begins[-1][0]
    return stream._replace(begin=now, end=None if to_come else now)


def _beginnings(merged: Path) -> List[Tuple[int, int, int]]:
    """Find the lines with which attempts begin: (number, where the line starts, where it ends)."""
    found: List[Tuple[int, int, int]] = []
    before = b"\n"
    reader = segments.SegmentReader(merged)
    for data in iter(reader.read, b""):
        searched = before + data
        place, seen = reader.offset - len(searched), 0
        for line in BEGINNING.finditer(searched):
            found.append((int(line[1]), place + line.start() + 1, place + line.end()))
            seen = line.end() - 1
        before = searched[max(seen, len(searched) - _LONGEST) :]
    reader.close()
    return found


def _time(at: int) -> bytes:
    """Return a time as RFC 3339 has it, in UTC, and a blank."""
    if not at:
        return _UNKNOWN
    seconds, rest = divmod(at, 1_000_000)
    return b"%s.%03dZ " % (_seconds(seconds), rest // 1000)


@functools.lru_cache(maxsize=64)
def _seconds(since_epoch: int) -> bytes:
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(since_epoch)).encode("ascii")
