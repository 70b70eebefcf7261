"""What is asked of jobs that are there: stop, suspend, resume, delete."""

import os
import time
from typing import Any, Callable, Dict, Iterable, Mapping

from taco_launch import state
from taco_launch.agent import scheduler_wakeup
from taco_launch.agent.api import queries
from taco_launch.agent.store import records, recovery, removal
from taco_launch.agent.store.folders import JobFolder, Jobs
from taco_launch.errors import TacoLaunchError, UsageError
from taco_launch.model.jobs import JobState

# Who has a waiting job's lock for a moment lets it go in less.
_LOCK_SECONDS = 5.0

Frames = Iterable[Any]


def stop(jobs: Jobs, _agent: str, request: Mapping[str, Any]) -> Frames:
    """Ask a job's supervisor to end it, or end one that waits; a job that has ended stays as it is."""
    folder = jobs.get(request["name"])
    if not recovery.look(folder).state.is_terminal:
        records.write_json(folder.stop, {key: request[key] for key in ("by", "signal", "grace")})
        scheduler_wakeup.poke(jobs)
    yield {"job": queries.shown(folder)}


def suspend(jobs: Jobs, _agent: str, request: Mapping[str, Any]) -> Frames:
    """Ask a job's supervisor to end it until it is resumed, or have one that waits wait for that.

    Raises:
        UsageError: it has ended.
    """
    folder = jobs.get(request["name"])
    found = recovery.look(folder).state
    if found.is_terminal:
        raise UsageError(f"job {folder.name}: it is {found.value}, and cannot be suspended")
    if found is not JobState.SUSPENDED:
        records.write_json(folder.suspend, {"by": request["by"]})
        scheduler_wakeup.poke(jobs)
    yield {"job": queries.shown(folder)}


def resume(jobs: Jobs, agent: str, request: Mapping[str, Any]) -> Frames:
    """Put a suspended job into the queue again.

    Raises:
        UsageError: it is not suspended.
    """
    folder = jobs.get(request["name"])
    _resume(folder, request["by"])
    scheduler_wakeup.wake(jobs, agent)
    yield {"job": queries.shown(folder)}


def _resume(folder: JobFolder, by: str) -> None:
    deadline = time.monotonic() + _LOCK_SECONDS
    while True:
        found = recovery.look(folder).state
        if found is not JobState.SUSPENDED:
            being = " (it is being suspended)" if folder.suspend.exists() and not found.is_terminal else ""
            raise UsageError(f"job {folder.name}: it is {found.value}, not SUSPENDED{being}")
        lock = records.try_lock(folder)
        if lock is not None:
            break
        if time.monotonic() > deadline:
            raise TacoLaunchError(f"job {folder.name}: somebody else is at it for {_LOCK_SECONDS:g} s: try again")
        time.sleep(0.01)
    try:
        if records.record(folder).state is JobState.SUSPENDED:  # else somebody was faster
            records.Events(folder).add(state.RESUMED, f"resumed by {by}")
    finally:
        os.close(lock)


def delete(jobs: Jobs, agent: str, request: Mapping[str, Any]) -> Frames:
    """Remove what is kept of a job that has ended, on its other hosts as well where they can be reached."""
    folder = jobs.get(request["name"])
    shown = queries.shown(folder)
    for warning in removal.remove(jobs, agent, folder):
        yield {"warning": warning}
    yield {"job": shown}


OPERATIONS: Dict[str, Callable[[Jobs, str, Mapping[str, Any]], Frames]] = {
    "stop": stop,
    "suspend": suspend,
    "resume": resume,
    "delete": delete,
}
