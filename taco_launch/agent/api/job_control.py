"""What is asked of jobs that are there: stop, suspend, resume, delete."""

import os
import time
from typing import Callable, Dict, Iterator, Type

from taco_launch.agent.api.view import current_view
from taco_launch.agent.store import records
from taco_launch.agent.store.folders import JobFolder, Jobs
from taco_launch.agent.upkeep import recovery, removal, scheduler_wakeup
from taco_launch.core.errors import TacoLaunchError, UsageError
from taco_launch.core.lifecycle import state
from taco_launch.core.model.jobs import JobState
from taco_launch.core.protocol.calls import Notice, Reply, Request
from taco_launch.core.protocol.calls.jobs import Delete, JobReply, Resume, Stop, Suspend

# Who has a waiting job's lock for a moment lets it go in less.
_LOCK_SECONDS = 5.0


def stop(jobs: Jobs, _agent: str, request: Stop) -> Iterator[Reply]:
    """Ask a job's supervisor to end it, or end one that waits; a job that has ended stays as it is."""
    folder = jobs.get(request.name)
    if not recovery.current_record(folder).state.is_terminal:
        records.write_json(folder.stop, {"by": request.by, "signal": request.signal, "grace": request.grace})
        scheduler_wakeup.notify(jobs)
    yield JobReply(job=current_view(folder))


def suspend(jobs: Jobs, _agent: str, request: Suspend) -> Iterator[Reply]:
    """Ask a job's supervisor to end it until it is resumed, or have one that waits wait for that.

    Raises:
        UsageError: it has ended.
    """
    folder = jobs.get(request.name)
    found = recovery.current_record(folder).state
    if found.is_terminal:
        raise UsageError(f"job {folder.name}: it is {found.value}, and cannot be suspended")
    if found is not JobState.SUSPENDED:
        records.write_json(folder.suspend, {"by": request.by})
        scheduler_wakeup.notify(jobs)
    yield JobReply(job=current_view(folder))


def resume(jobs: Jobs, agent: str, request: Resume) -> Iterator[Reply]:
    """Put a suspended job into the queue again.

    Raises:
        UsageError: it is not suspended.
    """
    folder = jobs.get(request.name)
    _resume(folder, request.by)
    scheduler_wakeup.wake(jobs, agent)
    yield JobReply(job=current_view(folder))


def _resume(folder: JobFolder, by: str) -> None:
    deadline = time.monotonic() + _LOCK_SECONDS
    while True:
        found = recovery.current_record(folder).state
        if found is not JobState.SUSPENDED:
            being = " (it is being suspended)" if folder.suspend.exists() and not found.is_terminal else ""
            raise UsageError(f"job {folder.name}: it is {found.value}, not SUSPENDED{being}")
        lock = records.try_lock(folder)
        if lock is not None:
            break
        if time.monotonic() > deadline:
            raise TacoLaunchError(
                f"job {folder.name}: another user has been changing it for {_LOCK_SECONDS:g} s: try again"
            )
        time.sleep(0.01)
    try:
        if records.record(folder).state is JobState.SUSPENDED:  # else somebody was faster
            records.Events(folder).add(state.RESUMED, f"resumed by {by}")
    finally:
        os.close(lock)


def delete(jobs: Jobs, agent: str, request: Delete) -> Iterator[Reply]:
    """Remove what is kept of a job that has ended, on its other hosts as well where they can be reached."""
    for warning in removal.remove(jobs, agent, jobs.get(request.name)):
        yield Notice(text=warning)


OPERATIONS: Dict[Type[Request], Callable[..., Iterator[Reply]]] = {
    Stop: stop,
    Suspend: suspend,
    Resume: resume,
    Delete: delete,
}
