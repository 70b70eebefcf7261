"""Record each nightly run by its name: how it last went, what was installed and when, and whether it runs now."""

import contextlib
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import TypeVar

from taco_launch.agent.host import file_locks
from taco_launch.agent.store.folders import make_private, state_folder, write_private
from taco_launch.bench.nightly.install_plan import InstalledRun
from taco_launch.bench.nightly.schedule import ScheduledRun
from taco_launch.core.errors import TacoLaunchError
from taco_launch.core.frozen import dataclass
from taco_launch.core.model.codec import from_json, to_json

# `nightly run` holds a flock on it for as long as it runs.
LOCK = "lock"
_T = TypeVar("_T", "LastRun", "Installation")


@dataclass(frozen=True)
class LastRun:
    """How a nightly run went; times are in seconds since 1970, `ended` and `exit_code` None as long as it runs.

    `pid` is the process that runs it, `before` the seconds that the one before took, None where that is not known; `outcome` is a word, `line` what cron mails of it, `summary` the path of the summary,
    empty where there is none.
    """

    started: float
    pid: int
    ended: float | None = None
    exit_code: int | None = None
    outcome: str = ""
    line: str = ""
    summary: str = ""
    before: float | None = None

    @property
    def seconds(self) -> float | None:
        """How long it took, None as long as it runs."""
        return None if self.ended is None else self.ended - self.started


@dataclass(frozen=True)
class Installation:
    """A nightly run as `nightly install` installed it: the text of its entry, its settings, and when, in seconds since 1970."""

    scheduler: str
    text: str
    scheduled: ScheduledRun
    installed: float

    def matches(self, current: InstalledRun) -> bool:
        """Return whether the entry that a scheduler has now is the one that was installed."""
        return (self.scheduler, self.text) == (current.scheduler, current.text)


_FILES: Mapping[type, str] = {LastRun: "last.json", Installation: "installed.json"}


def folder(environ: Mapping[str, str], uid: int, name: str) -> Path:
    """Return the folder of the nightly run `name` in the controller's state folder."""
    return state_folder(environ, uid) / "nights" / name


def write(run_folder: Path, value: LastRun | Installation) -> None:
    """Write a record of a nightly run, completely or not at all.

    Raises:
        TacoLaunchError: it cannot be written.
    """
    path = run_folder / _FILES[type(value)]
    try:
        make_private(run_folder)
        part = run_folder / f".{path.name}.{os.getpid()}"
        write_private(part, json.dumps(to_json(value), indent=2) + "\n")
        part.replace(path)
    except OSError as error:
        raise TacoLaunchError(f"{path}: cannot be written: {error.strerror}", hint=f"df {run_folder}") from None


def read(run_folder: Path, kind: type[_T]) -> _T | None:
    """Return the record of this kind, None where there is none: it never ran, or was not installed.

    Raises:
        TacoLaunchError: it cannot be read.
    """
    path = run_folder / _FILES[kind]
    try:
        return from_json(kind, json.loads(path.read_bytes()))
    except FileNotFoundError:
        return None
    except OSError as error:
        raise TacoLaunchError(f"{path}: cannot be read: {error.strerror}") from None
    except ValueError:
        raise TacoLaunchError(f"{path}: is not in the format of this version", hint=f"rm {path}") from None


def usual_seconds(run_folder: Path) -> float | None:
    """Return how long the last nightly run took, or the one before; None where that is not known."""
    with contextlib.suppress(TacoLaunchError):
        last = read(run_folder, LastRun)
        return None if last is None else last.seconds or last.before
    return None


def last_outcome(run_folder: Path) -> str:
    """Return how the last nightly run that ended came out, "" where that is not known."""
    with contextlib.suppress(TacoLaunchError):
        last = read(run_folder, LastRun)
        return "" if last is None else last.outcome
    return ""


def forget_installed(run_folder: Path) -> None:
    """Remove the record of what was installed; what the runs measured stays."""
    with contextlib.suppress(OSError):
        (run_folder / _FILES[Installation]).unlink()


def runs(run_folder: Path, last: LastRun) -> bool:
    """Return whether the nightly run that started last runs still."""
    try:
        return bool(file_locks.read().takers((run_folder / LOCK).stat(), (last.pid,)))
    except OSError:
        return False
