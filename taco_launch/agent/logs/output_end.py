"""The end of a job's output: the last line of its ranks, and how far its training has come."""

import re
from collections import deque
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, Callable, Collection, Deque, Dict, Iterator, List, NamedTuple, Optional, Tuple

from taco_launch.agent.logs import segments
from taco_launch.agent.logs.lines import LineReader
from taco_launch.agent.processes.cpu_limit import bounded
from taco_launch.agent.store.folders import JobFolder
from taco_launch.core.errors import HostError
from taco_launch.core.model.codec import from_json, to_json
from taco_launch.core.model.job_view import Progress
from taco_launch.core.progress import lines
from taco_launch.core.progress.pattern import compiled
from taco_launch.core.progress.pattern import read as read_by
from taco_launch.core.progress.reading import TrainingProgress
from taco_launch.core.progress.tracker import Tracker

# Of a hundred ranks that print a line per step, some steps of each.
_BYTES = 1 << 18
_OF_A_RANK = re.compile(r"\S+/(\d{1,7}) *\| (.*)")
# A loss as people print it: loss: 0.5, train_loss=nan, "loss": inf, Loss 0.5.
_LOSS = re.compile(
    r"(?i)(?<![a-z])((?:[a-z]{1,20}[ _]){0,3})loss['\"]?[ \t]{0,3}[:=]?[ \t]{0,3}"
    r"([-+]?(?:nan|inf(?:inity)?)\b|[-+]?\d[\w.+-]{0,30})"
)
# What is remembered of losses starts as inf.
_REMEMBERED = frozenset(("best", "min", "minimum", "max", "lowest", "smallest", "prev", "previous", "initial", "last"))
_NO_NUMBER = re.compile(r"(?i)[-+]?(?:nan|inf(?:inity)?)\b")
_MOST_OF_LINE = 200
_PATTERN_SECONDS = 1


class OutputEnd(NamedTuple):
    """The last line of any rank, with its label and without; and the progress of the first rank that prints one."""

    labelled: str = ""
    line: str = ""
    progress: Optional[Progress] = None


def read(
    merged: Path, pattern: str = "", attempt: Optional[JobFolder] = None, ended: Collection[int] = ()
) -> OutputEnd:
    """Read the end of a merged log; nothing of one that does not exist or cannot be read.

    A user's `pattern` for the progress is tried in a process of its own, with a limit of time. The progress is that of
    `attempt`, a job's folder for one; by default of all. Ranks that have `ended` while others continue count for nothing.
    """
    if not pattern:
        return _read(merged, Tracker(), attempt, ended)

    def act() -> Any:
        found = _read(merged, Tracker(compiled(pattern)), attempt, ended)
        return found._replace(progress=None if found.progress is None else to_json(found.progress))

    told = bounded(act, _PATTERN_SECONDS)
    if told is None:
        return _read(merged, None, attempt, ended)
    labelled, line, progress = told
    return OutputEnd(labelled, line, None if progress is None else from_json(Progress, progress))


def first_step(log: Path, pattern: str = "") -> Optional[float]:
    """Return when a rank printed its first step, in seconds since the epoch, by the beginning of its log; None: not there."""
    if not pattern:
        return _first_step(log, lines.read)
    moment = bounded(lambda: _first_step(log, partial(read_by, compiled(pattern))), _PATTERN_SECONDS)
    return moment if isinstance(moment, float) else None


def _first_step(log: Path, read_line: "Callable[[str], Optional[TrainingProgress]]") -> Optional[float]:
    reader = LineReader(log)
    reader.finished = True
    try:
        while reader.offset < _BYTES:
            pieces = reader.read()
            for data, at in pieces:
                for text in re.split("[\r\n]+", data.decode("utf-8", "replace")):
                    reading = read_line(text)
                    if reading is not None and reading.step is not None:
                        return at / 1e6
            if not pieces:
                return None
    except (OSError, HostError):
        return None
    return None


def _started(log: Path) -> float:
    """Return when the first line of a log came, by the clock of its host; 0 where there is none."""
    reader = LineReader(log)
    reader.finished = True
    try:
        return next((at / 1e6 for _data, at in reader.read()), 0.0)
    except (OSError, HostError):
        return 0.0


def ranks_without_a_number(merged: Path, attempt: Optional[JobFolder] = None) -> List[int]:
    """Return the ranks that printed the last two values of a loss as nan or inf, in whatever form of line, in an attempt."""
    losses: Dict[Tuple[int, str], Deque[str]] = {}
    try:
        for _at, line, is_of_attempt in _lines_of_ranks(merged, attempt):
            for name, value in _LOSS.findall(line[2]) if is_of_attempt else ():
                if _REMEMBERED.isdisjoint(re.split("[ _]", name.lower())):
                    losses.setdefault((int(line[1]), name.lower()), deque(maxlen=2)).append(value)
    except (OSError, HostError):
        return []
    return sorted(
        {rank for (rank, _name), last in losses.items() if len(last) == 2 and all(map(_NO_NUMBER.match, last))}
    )


def _lines_of_ranks(merged: Path, attempt: Optional[JobFolder]) -> "Iterator[Tuple[float, re.Match[str], bool]]":
    """Yield the last lines of ranks in a merged log: the time in seconds since the epoch, the line, whether it is of an attempt.

    Without `attempt`, the folder of one, all of them are.

    Raises:
        OSError, HostError: it cannot be read.
    """
    starts: Dict[int, float] = {}
    end = segments.size(merged)
    start = max(end - _BYTES, 0)
    reader = LineReader(merged, start, headless=start > 0, merged=True)
    reader.finished = True
    while reader.offset < end:
        pieces = reader.read()
        if not pieces:
            return
        for data, at in pieces:
            for text in re.split("[\r\n]+", data.decode("utf-8", "replace")):
                match = _OF_A_RANK.match(text)
                if match is not None and match[2].strip():
                    rank = int(match[1])
                    if attempt is not None and rank not in starts:
                        starts[rank] = _started(attempt.rank(rank))
                    yield at / 1e6, match, at / 1e6 >= starts.get(rank, 0.0)


def _read(merged: Path, tracker: Optional[Tracker], attempt: Optional[JobFolder], ended: Collection[int]) -> OutputEnd:
    labelled, last, time, without_number = "", "", 0.0, False
    try:
        for at, line, is_of_attempt in _lines_of_ranks(merged, attempt):
            labelled, last = line[0], line[2]
            rank = int(line[1])
            if is_of_attempt:
                time, without_number = at, without_number or _NO_NUMBER.search(last) is not None
                if tracker is not None:
                    tracker.feed(at, rank, last)
    except (OSError, HostError):
        return OutputEnd()
    progress = None if tracker is None else tracker.best(ended)
    if without_number and (ranks := ranks_without_a_number(merged, attempt)):
        progress = progress or Progress("", ranks[0], time)
        progress = replace(progress, loss=None, diverged=True)
    return OutputEnd(labelled.strip()[:_MOST_OF_LINE], last.strip()[:_MOST_OF_LINE], progress)
