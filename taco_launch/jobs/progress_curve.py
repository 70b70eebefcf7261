"""How the training of a job went: what its progress lines print, over time."""

import contextlib
import re
from collections.abc import Callable, Sequence
from datetime import datetime
from typing import NamedTuple

from taco_launch.core.progress import lines, pattern
from taco_launch.core.progress.reading import TrainingProgress
from taco_launch.jobs.backend import Backend, LogQuery

# Of a log, the last bytes that are read; and of its points, as many as a figure can show.
_MOST_BYTES, _MOST_POINTS = 64 << 20, 400
_STAMPED = re.compile(r"(\d{4}-\d{2}-\d{2}T[0-9:.]+)(?:Z|\+00:00) (.*)", re.DOTALL)


class Point(NamedTuple):
    """What a line prints, at a time in seconds since the epoch; None is not known."""

    time: float
    step: float | None
    loss: float | None
    rate: float | None
    unit: str


def curve(backend: Backend, name: str, rank: int, own: str) -> Sequence[Point]:
    """Return the points of a rank's log, thinned out; `own` is the user's pattern for progress, "" for known programs."""
    pieces: list[bytes] = []
    size = 0

    def take(piece: bytes) -> None:
        nonlocal size
        pieces.append(piece)
        size += len(piece)
        while size - len(pieces[0]) >= _MOST_BYTES:
            size -= len(pieces.pop(0))

    backend.follow(LogQuery(name, rank=rank, follow=False, timestamps=True), take)
    compiled = pattern.compiled(own) if own else None
    read = lines.read if compiled is None else lambda line: pattern.read(compiled, line)
    return thinned(points(b"".join(pieces).decode("utf-8", "replace"), read))


def points(text: str, read: Callable[[str], TrainingProgress | None]) -> list[Point]:
    """Return what the lines of a log with times print."""
    found = []
    for line in text.split("\n"):
        match = _STAMPED.fullmatch(line)
        reading = None if match is None else read(match[2].rpartition("\r")[2])
        if match is None or reading is None:
            continue
        with contextlib.suppress(ValueError):  # no time: a program may print what looks like one
            time = datetime.fromisoformat(f"{match[1]}+00:00").timestamp()
            found.append(Point(time, reading.step, reading.loss, reading.rate, reading.unit))
    return found


def thinned(points: Sequence[Point]) -> Sequence[Point]:
    """Return at most so many points as a figure can show, the last one among them."""
    every = -(-len(points) // _MOST_POINTS) or 1
    return points[::-1][::every][::-1]
