"""What the controller keeps of a nightly run by its name: how it last went, when it was installed, and whether it runs now."""

import contextlib
import json
import os
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path

from taco_launch.agent.host import file_locks
from taco_launch.agent.store.folders import make_private, state_folder, write_private
from taco_launch.core.errors import TacoLaunchError
from taco_launch.core.frozen import dataclass

# `nightly run` holds a flock on it for as long as it runs.
LOCK = "lock"
_LAST, _INSTALLED = "last.json", "installed"


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


def folder(environ: Mapping[str, str], uid: int, name: str) -> Path:
    """Return the folder of the nightly run `name` in the controller's state folder."""
    return state_folder(environ, uid) / "nights" / name


def write(run_folder: Path, last: LastRun) -> None:
    """Keep how a nightly run goes, whole or not at all.

    Raises:
        TacoLaunchError: it cannot be written.
    """
    try:
        make_private(run_folder)
        part = run_folder / f".{_LAST}.{os.getpid()}"
        write_private(part, json.dumps(asdict(last), indent=2) + "\n")
        part.replace(run_folder / _LAST)
    except OSError as error:
        raise TacoLaunchError(
            f"{run_folder / _LAST}: cannot be written: {error.strerror}", hint=f"df {run_folder}"
        ) from None


def read(run_folder: Path) -> LastRun | None:
    """Return how a nightly run last went, None where it never ran.

    Raises:
        TacoLaunchError: it cannot be read.
    """
    path = run_folder / _LAST
    try:
        return LastRun(**json.loads(path.read_bytes()))
    except FileNotFoundError:
        return None
    except OSError as error:
        raise TacoLaunchError(f"{path}: cannot be read: {error.strerror}") from None
    except (ValueError, TypeError):
        raise TacoLaunchError(f"{path}: is not in the format of this version", hint=f"rm {path}") from None


def usual_seconds(run_folder: Path) -> float | None:
    """Return how long the last nightly run took, or the one before; None where that is not known."""
    with contextlib.suppress(TacoLaunchError):
        last = read(run_folder)
        return None if last is None else last.seconds or last.before
    return None


def mark_installed(run_folder: Path) -> None:
    """Keep that a nightly run was installed just now.

    Raises:
        TacoLaunchError: it cannot be written.
    """
    try:
        make_private(run_folder)
        write_private(run_folder / _INSTALLED, "")
    except OSError as error:
        raise TacoLaunchError(f"{run_folder}: cannot be written: {error.strerror}") from None


def forget_installed(run_folder: Path) -> None:
    """Keep no longer that it is installed; what it has measured stays."""
    with contextlib.suppress(OSError):
        (run_folder / _INSTALLED).unlink()


def installed(run_folder: Path) -> float | None:
    """Return when it was installed, None where that is not known."""
    try:
        return (run_folder / _INSTALLED).stat().st_mtime
    except OSError:
        return None


def runs(run_folder: Path, last: LastRun) -> bool:
    """Return whether the nightly run that started last runs still."""
    try:
        return bool(file_locks.read().takers((run_folder / LOCK).stat(), (last.pid,)))
    except OSError:
        return False
