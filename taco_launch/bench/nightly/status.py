"""nightly status: the nightly runs that are installed, how each last went, whether one was missed, and when it is next."""

from collections.abc import Sequence
from datetime import datetime, timedelta
from pathlib import Path

from taco_launch.bench.nightly import record, schedule
from taco_launch.bench.nightly.install_plan import InstalledRun, NightlyScheduler
from taco_launch.bench.nightly.record import Installation, LastRun
from taco_launch.bench.nightly.schedule import ScheduledRun
from taco_launch.core.errors import TacoLaunchError
from taco_launch.core.frozen import dataclass

# cron looks once a minute, a timer has its accuracy, and taco-launch itself has to start.
_LATE = timedelta(minutes=2)
DIFFERS = "differs from what was installed"
NEVER, RUNNING, BROKEN, MISSED, UNKNOWN = "never ran", "running", "broken off", "missed", "unknown"


@dataclass(frozen=True)
class NightlyStatus:
    """A nightly run that is installed, its record, and when it is next (None where that is not known, or it will not run).

    `scheduled` is None where the entry differs from what was installed.
    `state` is how it went, in a word: the outcome of the last one, or one of the words of this module. `why` says more,
    where there is more to say; `due` is when it should have started, where it was missed.
    """

    kept: InstalledRun
    scheduled: ScheduledRun | None
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
    """Return all nightly runs that are installed; `environ` names the state folder of their records.

    Raises:
        TacoLaunchError: a scheduler's nightly runs cannot be read.
    """
    found = [_status(kept, scheduler, uid, environ, now) for scheduler in schedulers for kept in scheduler.kept()]
    return tuple(sorted(found, key=lambda each: (each.kept.name, each.kept.scheduler)))


def _status(
    current: InstalledRun, scheduler: NightlyScheduler, uid: int, environ: dict[str, str], now: datetime
) -> NightlyStatus:
    folder = record.folder(environ, uid, current.name)
    try:
        installation = record.read(folder, Installation)
        last = record.read(folder, LastRun)
    except TacoLaunchError as error:
        return NightlyStatus(current, None, folder, None, UNKNOWN, error.message, None)
    entry = coming = due = None
    if installation is not None and installation.matches(current):
        entry = installation.scheduled
        due = _missed_since(installation, scheduler, last, now)
        if not current.problem:
            coming = schedule.following(entry.schedule, now, skipping=scheduler.skips)
    state, why = _state(folder, last, due)
    changed = "" if entry or state == RUNNING else f"its entry {DIFFERS}: its time is unknown"
    problem = "" if state == RUNNING else current.problem
    return NightlyStatus(
        current,
        entry,
        folder,
        last,
        state,
        "; ".join(filter(None, (why, problem, changed))),
        coming,
        due if state == MISSED else None,
    )


def _state(folder: Path, last: LastRun | None, due: datetime | None) -> tuple[str, str]:
    """Return how a nightly run went, in a word, and why; `due` is when it should have started, None where it did."""
    if last is not None and last.ended is None and record.runs(folder, last):
        return RUNNING, ""
    if due is not None:
        return MISSED, f"it should have started at {due:%Y-%m-%d %H:%M}, but it left no trace"
    if last is None:
        return NEVER, ""
    if last.ended is None:
        return BROKEN, "it started and left no record of its end: it was killed, or the machine went down"
    return last.outcome, last.line


def _missed_since(
    installation: Installation, scheduler: NightlyScheduler, last: LastRun | None, now: datetime
) -> datetime | None:
    """Return when a nightly run should have started since it was installed or last ran; None where it did."""
    since = max(0.0 if last is None else last.started, installation.installed)
    due = schedule.latest(installation.scheduled.schedule, now - _LATE, skipping=scheduler.skips)
    return due if due.timestamp() > since else None
