"""A job whose supervisor is gone is ended and recorded as lost, by whoever notices it first."""

import os
from typing import Iterable, Tuple

from taco_launch import state
from taco_launch.agent import facts, processes, records
from taco_launch.agent.folders import JobFolder
from taco_launch.errors import FAILED, NO_JOB, NoJobError
from taco_launch.model.jobs import JobRecord, JobState


def look(folder: JobFolder) -> JobRecord:
    """Give a job's record, true at this moment: a job that nobody supervises any more is ended first.

    Raises:
        NoJobError: somebody removed it meanwhile.
    """
    found = records.record(folder)
    if found.state.is_terminal:
        return found
    try:
        lock = records.try_lock(folder)
    except FileNotFoundError:
        raise NoJobError(f"job {folder.name}: somebody removed it") from None
    if lock is None:
        return found
    close(folder, lock)
    return records.record(folder)


def close(folder: JobFolder, lock: int, roots: Iterable[Tuple[int, int]] = ()) -> None:
    """End all that belongs to the job, record it as lost, let go of `lock`."""
    try:
        found = records.record(folder)
        if found.state.is_terminal:
            return
        recorded = [event.data for event in records.read_events(folder) if "boot" in event.data]
        here = [data for data in recorded if data["boot"] == facts.boot_id()]
        known = [(int(pid), int(start)) for data in here for pid, start in data["roots"]]
        left = processes.end(found.id, (*roots, *known))
        events = records.Events(folder)
        reason = "the host restarted" if len(here) < len(recorded) else "its supervisor was killed"
        debug = folder.debug.read_text(encoding="utf-8", errors="replace").splitlines() if folder.debug.exists() else []
        if debug:
            reason += f" (its last words: {debug[-1]}; see {folder.debug})"
        if left.found:
            reason += f"; still alive: {', '.join(str(entry.pid) for entry in left.found)}"
        if left.unknown:
            reason += f"; not proven gone: {left.unknown}"
        code = FAILED if found.started else NO_JOB
        events.add(state.ENDED, reason, state=JobState.LOST.value, exit_code=code)
        folder.caller.unlink(missing_ok=True)
    finally:
        os.close(lock)
