"""nightly status: the nightly runs that are installed, how each last went, whether one was missed, and when it is next."""

from collections.abc import Sequence
from datetime import datetime, timedelta
from pathlib import Path

from taco_launch.bench.nightly import record, schedule
from taco_launch.bench.nightly.install_plan import InstalledRun, NightlyScheduler
from taco_launch.bench.nightly.record import LastRun
from taco_launch.core.errors import TacoLaunchError
from taco_launch.core.frozen import dataclass

# cron looks once a minute, a timer has its accuracy, and taco-launch itself has to start.
_LATE = timedelta(minutes=2)
NEVER, RUNNING, BROKEN, MISSED, UNKNOWN = "never ran", "running", "broken off", "missed", "unknown"


@dataclass(frozen=True)
class NightlyStatus:
    """A nightly run that is installed, its record, and when it is next (None where that is not known, or it will not run).

    `state` is how it went, in a word: the outcome of the last one, or one of the words of this module. `why` says more,
    where there is more to say; `due` is when it should have started, where it was missed.
    """

    kept: InstalledRun
    folder: Path
    last: LastRun | None
    state: str
    why: str
    next: datetime | None
    due: datetime | None = None

    @property
    def is_running(self) -> bool:
        """Whether it runs now."""
        return self.state == RUNNING


def status(
    schedulers: Sequence[NightlyScheduler], uid: int, environ: dict[str, str], now: datetime
) -> tuple[NightlyStatus, ...]:
    """Return all nightly runs that are installed; `environ` tells the state folder of one whose entry does not.

    Raises:
        TacoLaunchError: a scheduler's nightly runs cannot be read.
    """
    found = [_status(kept, scheduler, uid, environ, now) for scheduler in schedulers for kept in scheduler.kept()]
    return tuple(sorted(found, key=lambda each: (each.kept.name, each.kept.scheduler)))


def _status(
    kept: InstalledRun, scheduler: NightlyScheduler, uid: int, environ: dict[str, str], now: datetime
) -> NightlyStatus:
    folder = record.folder(dict(kept.scheduled.env) if kept.scheduled else environ, uid, kept.name)
    coming = (
        kept.scheduled
        and not kept.problem
        and schedule.following(kept.scheduled.schedule, now, skipping=scheduler.skips)
    )
    try:
        last = record.read(folder)
    except TacoLaunchError as error:
        return NightlyStatus(kept, folder, None, UNKNOWN, error.message, coming or None)
    due = _missed(kept, scheduler, folder, last, now)
    if last is not None and last.ended is None and record.runs(folder, last):
        return NightlyStatus(kept, folder, last, RUNNING, "", coming or None)
    if due is not None:
        why = _joined(f"it should have started at {due:%Y-%m-%d %H:%M}, but it left no trace", kept.problem)
        return NightlyStatus(kept, folder, last, MISSED, why, coming or None, due)
    if last is None:
        return NightlyStatus(kept, folder, None, NEVER, kept.problem, coming or None)
    if last.ended is None:
        why = _joined("it started and left no record of its end: it was killed, or the machine went down", kept.problem)
        return NightlyStatus(kept, folder, last, BROKEN, why, coming or None)
    return NightlyStatus(kept, folder, last, last.outcome, _joined(last.line, kept.problem), coming or None)


def _joined(*words: str) -> str:
    return "; ".join(filter(None, words))


def _missed(
    kept: InstalledRun, scheduler: NightlyScheduler, folder: Path, last: LastRun | None, now: datetime
) -> datetime | None:
    """Return when a nightly run should have started that did not; None where none is missing."""
    since = max(0.0 if last is None else last.started, record.installed(folder) or 0.0)
    if kept.scheduled is None or not since:
        return None
    due = schedule.latest(kept.scheduled.schedule, now - _LATE, skipping=scheduler.skips)
    return due if due.timestamp() > since else None
