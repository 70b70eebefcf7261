"""The progress of ranks, line by line: a value is there after three lines that agree with each other, not before."""

import math
from collections import deque
from functools import partial
from typing import Collection, Deque, Dict, List, NamedTuple, Optional, Pattern, Tuple

from taco_launch.core.model.job_view import Progress
from taco_launch.core.model.jobs import LATEST
from taco_launch.core.progress import bars, lines
from taco_launch.core.progress.pattern import read as read_by
from taco_launch.core.progress.reading import TrainingProgress

_AGREEING = 3
_KEPT = 20  # readings that the measured speed is of
_MOST_SERIES = 32
_TRAINER = "Hugging Face Trainer"


class _Timed(NamedTuple):
    time: float
    reading: TrainingProgress


class _Series:
    """Readings of one kind of one rank that follow each other."""

    def __init__(self) -> None:
        self.kept: Deque[_Timed] = deque(maxlen=_KEPT)
        self.agreeing = 0

    def take(self, time: float, reading: TrainingProgress) -> None:
        last = self.kept[-1].reading if self.kept else None
        if last is not None and _same(last, reading):
            return  # a bar that was drawn again
        if last is None or not _follows(last, reading):
            self.agreeing = 0
            self.kept.clear()
        elif _is_next_epoch(last, reading):
            self.kept.clear()  # the speed is measured anew, and what was known of the series stays so
        self.kept.append(_Timed(time, reading))
        self.agreeing += 1

    def speed(self) -> Optional[float]:
        """Return steps per second by the times of the lines; None where they came at once."""
        first, last = self.kept[0], self.kept[-1]
        if first.reading.step is None or last.reading.step is None or last.time <= first.time:
            return None
        return (last.reading.step - first.reading.step) / (last.time - first.time)


class Tracker:
    """What the ranks of a host, or of a job, say of their progress."""

    def __init__(self, pattern: "Optional[Pattern[str]]" = None) -> None:
        """Know nothing yet; lines are read by a user's pattern, if there is one, instead of as those of known programs."""
        self._series: Dict[Tuple[int, str, str], _Series] = {}
        self._read = lines.read if pattern is None else partial(read_by, pattern)

    def feed(self, time: float, rank: int, text: str) -> None:
        """Take what a rank has written, at this time in seconds since the epoch."""
        for line in text.replace("\r", "\n").split("\n"):
            reading = self._read(line)
            if reading is not None:
                self.take(time, rank, reading)

    def take(self, time: float, rank: int, reading: TrainingProgress) -> None:
        """Take what a line of a rank says."""
        key = (rank, reading.program, reading.series)
        if key not in self._series and len(self._series) >= _MOST_SERIES * 64:
            return
        self._series.setdefault(key, _Series()).take(time, reading)

    def of_rank(self, rank: int) -> Optional[Progress]:
        """Return the progress of a rank: that of the program whose line came last."""
        confirmed = [
            (program, series)
            for (of, program, _name), series in self._series.items()
            if of == rank and series.agreeing >= _AGREEING
        ]
        trains = [pair for pair in confirmed if pair[0] != bars.BARE]
        if not trains:
            return None
        latest, _series = max(trains, key=lambda pair: pair[1].kept[-1].time)
        mine = [series for program, series in trains if program == latest]
        if latest == _TRAINER:
            mine += [series for program, series in confirmed if program == bars.BARE]
        return _progress(latest, rank, mine)

    def best(self, ended: Collection[int] = ()) -> Optional[Progress]:
        """Return the progress of the first rank that says something; where some have `ended`, of the others that of the slowest."""
        ranks = sorted({key[0] for key in self._series}.difference(ended))
        found = (progress for progress in map(self.of_rank, ranks) if progress is not None)
        return min(found, key=lambda progress: progress.step or 0, default=None) if ended else next(found, None)


def _progress(program: str, rank: int, mine: List[_Series]) -> Progress:
    """Put the series of a program together: the last value of each kind, steps before epochs."""
    mine = sorted(mine, key=lambda series: (series.kept[-1].reading.series == "epochs", -series.kept[-1].time))
    last = [series.kept[-1].reading for series in mine]
    stepping = next((series for series in mine if series.kept[-1].reading.total is not None), None)
    stepping = stepping or next((series for series in mine if series.kept[-1].reading.step is not None), None)
    shown = stepping.kept[-1].reading if stepping is not None else last[0]
    rated = next((reading for reading in last if reading.rate is not None), None)
    speed = stepping.speed() if stepping is not None else None
    eta = None
    if shown.total is not None and shown.step is not None and speed:
        eta = max(0.0, shown.total - shown.step) / speed
    loss = next((reading.loss for reading in last if reading.loss is not None), None)
    return Progress(
        program=program,
        rank=rank,
        time=max(series.kept[-1].time for series in mine),
        step=_shown(shown.step),
        total=_shown(shown.total),
        epoch=_shown(next((reading.epoch for reading in last if reading.epoch is not None), None)),
        loss=_shown(loss),
        diverged=loss is not None and not math.isfinite(loss),
        rate=_shown(rated.rate) if rated is not None else None,
        unit=rated.unit if rated is not None else "",
        steps_per_second=_shown(speed),
        eta=_shown(eta),
    )


def _shown(value: Optional[float]) -> Optional[float]:
    """Return a number that a record can have, None for another: a rank may print any."""
    return value if value is not None and abs(value) <= LATEST else None


def _same(last: TrainingProgress, now: TrainingProgress) -> bool:
    return last.step is not None and (last.step, last.epoch, last.total) == (now.step, now.epoch, now.total)


def _follows(last: TrainingProgress, now: TrainingProgress) -> bool:
    """Return whether a reading can come after another: the step and the epoch do not go back, and the total is the same."""
    if now.total != last.total:
        return False
    if _is_next_epoch(last, now):
        return True
    if (last.epoch is None) != (now.epoch is None) or (last.step is None) != (now.step is None):
        return False
    if last.epoch is not None and now.epoch is not None and now.epoch < last.epoch:
        return False
    return last.step is None or now.step is None or now.step > last.step


def _is_next_epoch(last: TrainingProgress, now: TrainingProgress) -> bool:
    """Return whether the steps begin anew, in a later epoch: at a step that the last epoch had begun with, too."""
    if last.epoch is None or now.epoch is None or last.step is None or now.step is None:
        return False
    return now.epoch > last.epoch and now.step <= last.step
