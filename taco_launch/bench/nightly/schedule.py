"""Describe a nightly run that is installed: its name and command, the time of the day and days of the week, their moments."""

import re
from collections.abc import Iterator
from datetime import date, datetime, time, timedelta, timezone, tzinfo

from taco_launch.core.frozen import dataclass

DAYS = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")
_TIME = re.compile(r"([01]?\d|2[0-3]):([0-5]\d)")
_WEEK = 7
_YEAR = 366
_MINUTE = timedelta(minutes=1)
# By its path: systemd looks for no other way, and cron's PATH has it too.
_ENV = ("/usr/bin/env", "-C")


@dataclass(frozen=True)
class Schedule:
    """An hour (0 to 23), a minute, and days of the week (0 is Monday), in order and each once."""

    hour: int
    minute: int
    days: tuple[int, ...] = tuple(range(_WEEK))

    def __str__(self) -> str:
        """Return it as it is typed: `02:30`, `02:30 mon-fri`."""
        at = f"{self.hour:02}:{self.minute:02}"
        if len(self.days) == _WEEK:
            return at
        spans = (DAYS[first] + (f"-{DAYS[last]}" if last > first else "") for first, last in runs(self.days))
        return f"{at} {','.join(spans)}"


@dataclass(frozen=True)
class ClockChange:
    """The days in a year ahead on which a clock that is put forward leaves the time out, or put back has it twice."""

    skipped: date | None
    twice: date | None


def parse_time(text: str) -> tuple[int, int]:
    """Read `02:30` into hour and minute.

    Raises:
        ValueError: it is no time of the day; says what is.
    """
    found = _TIME.fullmatch(text.strip())
    if found is None:
        raise ValueError("must be a time of day from 00:00 to 23:59, such as 02:30")
    return int(found[1]), int(found[2])


def parse_days(text: str) -> tuple[int, ...]:
    """Read `mon-fri`, `sat,sun`, or a span over the week's end such as `fri-mon`.

    Raises:
        ValueError: it names no days; says what does.
    """
    found: set[int] = set()
    for item in text.lower().split(","):
        first, _, last = item.strip().partition("-")
        if first not in DAYS or (last or first) not in DAYS or item.strip().endswith("-"):
            raise ValueError(f"must be days, such as mon-fri or sat,sun: {', '.join(DAYS)}")
        begin, end = DAYS.index(first), DAYS.index(last or first)
        found.update(day % _WEEK for day in range(begin, end + 1 if end >= begin else end + 1 + _WEEK))
    return tuple(sorted(found))


def runs(days: tuple[int, ...]) -> tuple[tuple[int, int], ...]:
    """Return spans of days that follow each other, as (first, last)."""
    found: list[tuple[int, int]] = []
    for day in days:
        if found and found[-1][1] == day - 1:
            found[-1] = (found[-1][0], day)
        else:
            found.append((day, day))
    return tuple(found)


def following(schedule: Schedule, now: datetime, *, skipping: bool) -> datetime:
    """Return the next moment after `now`, which has a time zone; see `_moment` for `skipping`."""
    # Timestamps: times of one zone are compared by what the clock on the wall shows, which may show it twice.
    days = (now.date() + timedelta(days=ahead) for ahead in range(-1, 3 * _WEEK))
    return next(
        moment for moment in _moments(schedule, days, now, skipping=skipping) if moment.timestamp() > now.timestamp()
    )


def latest(schedule: Schedule, now: datetime, *, skipping: bool) -> datetime:
    """Return the last moment that is not after `now`; see `_moment` for `skipping`."""
    days = (now.date() - timedelta(days=back) for back in range(-1, 3 * _WEEK))
    return next(
        moment for moment in _moments(schedule, days, now, skipping=skipping) if moment.timestamp() <= now.timestamp()
    )


def change(schedule: Schedule, now: datetime) -> ClockChange:
    """Return what becomes of the schedule when the clocks change, in the year that follows `now`."""
    skipped = twice = None
    for day in (now.date() + timedelta(days=ahead) for ahead in range(_YEAR)):
        if day.weekday() in schedule.days:
            first, second = (_wall(schedule, day, now.tzinfo, fold) for fold in (0, 1))
            if _left_out(first):
                skipped = skipped or day
            elif first.utcoffset() != second.utcoffset():
                twice = twice or day
    return ClockChange(skipped, twice)


def _moments(schedule: Schedule, days: Iterator[date], now: datetime, *, skipping: bool) -> Iterator[datetime]:
    for day in days:
        if day.weekday() in schedule.days:
            moment = _moment(_wall(schedule, day, now.tzinfo), skipping=skipping)
            if moment is not None:
                yield moment


def _moment(wall: datetime, *, skipping: bool) -> datetime | None:
    """Return the moment of a wall clock's time; one that comes twice counts once, the first.

    A time that is left out when the clocks go forward: systemd's timers skip it (systemd-analyze calendar); cron makes up
    for it soon after the change (cron(8) of Debian and of cronie).
    """
    if not _left_out(wall):
        return wall
    if skipping:
        return None
    moment = wall.replace(fold=1).astimezone(timezone.utc)  # by the new offset: before the change
    old = moment.astimezone(wall.tzinfo).utcoffset()
    while moment.astimezone(wall.tzinfo).utcoffset() == old:
        moment += _MINUTE
    return moment.astimezone(wall.tzinfo)


def _wall(schedule: Schedule, day: date, zone: tzinfo | None, fold: int = 0) -> datetime:
    return datetime.combine(day, time(schedule.hour, schedule.minute, fold=fold), zone)


def _left_out(wall: datetime) -> bool:
    back = wall.astimezone(timezone.utc).astimezone(wall.tzinfo)
    return back.replace(tzinfo=None, fold=0) != wall.replace(tzinfo=None, fold=0)


@dataclass(frozen=True)
class ScheduledRun:
    """What cron or systemd is to start, and when.

    `argv` has only absolute paths and is started in `folder`, which is absolute too, with `env`: (name, value) besides
    what cron or systemd have. `mail` is whom cron mails what the nightly run prints; None leaves that to cron's own rule.
    """

    name: str
    schedule: Schedule
    folder: str
    argv: tuple[str, ...]
    env: tuple[tuple[str, str], ...] = ()
    mail: str | None = None

    @property
    def argv_with_env(self) -> tuple[str, ...]:
        """The argv that brings folder and environment along."""
        return (*_ENV, self.folder, *(f"{name}={value}" for name, value in self.env), *self.argv)
