"""The record of a job that has ended is removed, on its other hosts as well where they can be reached."""

import contextlib
import os
import signal
import time
from typing import Dict, Iterator, List

from taco_launch.agent.host import facts, processes
from taco_launch.agent.ssh import commands as ssh
from taco_launch.agent.store import records
from taco_launch.agent.store.folders import JobFolder, Jobs
from taco_launch.agent.store.records import StopRequest
from taco_launch.agent.upkeep import job_counters, recovery
from taco_launch.core.errors import DamagedRecordError, UsageError
from taco_launch.core.model.jobs import CleanUp, JobRecord
from taco_launch.core.protocol.relay_messages import FolderRemoved

_REMOVE_SECONDS = 25.0
# A job that runs has a grace time of its own.
_END_SECONDS = 60.0


def remove(jobs: Jobs, agent: str, folder: JobFolder) -> Iterator[str]:
    """Remove what is kept of a job, and give warnings about hosts where that failed.

    Raises:
        UsageError: it has not ended.
    """
    try:
        record, spec = recovery.current_record(folder), records.read_spec(folder)
    except DamagedRecordError:
        yield from _remove_damaged(jobs, folder)
        return
    if not record.state.is_terminal:
        raise UsageError(f"job {folder.name}: it is {record.state.value}", hint=f"taco-launch stop {folder.name}")
    if spec.policy.clean_up is CleanUp.NONE:
        _end_here(folder, record)
    of_mark: Dict[str, List[str]] = {}
    guests = {} if spec.slurm is not None else recovery.guests(folder, spec)  # nodes keep nothing of a job of Slurm
    for host, mark in guests.items():
        of_mark.setdefault(mark, []).append(host)
    for mark, hosts in of_mark.items():
        for host, answer in ssh.ask(
            hosts, agent, FolderRemoved, "remove", str(folder.path), mark, seconds=_REMOVE_SECONDS
        ):
            if isinstance(answer, str):
                yield f"host {host}: the files of job {folder.name} could not be removed there: {answer}"
    if spec.code is not None:
        _remove_links(folder)
    job_counters.removed(jobs, folder)


def end_damaged(folder: JobFolder, held: contextlib.ExitStack) -> None:
    """Stop a job that cannot be read or shown, and wait until no supervisor has it; its lock is `held` then.

    Raises:
        UsageError: one has it all the same.
    """
    records.write_request(folder.stop, StopRequest("taco-launch delete", signal.SIGTERM))
    until = time.monotonic() + _END_SECONDS
    while not _is_unsupervised(folder, held):
        if time.monotonic() > until:
            raise UsageError(
                f"job {folder.name}: its record is damaged, and its supervisor has not ended within {_END_SECONDS:g} s",
                hint=f"try again: taco-launch delete {folder.name}",
            )
        time.sleep(0.05)


def _remove_damaged(jobs: Jobs, folder: JobFolder) -> Iterator[str]:
    with contextlib.ExitStack() as held:
        end_damaged(folder, held)
        _remove_links(folder)
        jobs.remove(folder)
    yield f"job {folder.name}: its record was damaged; files that it left on other hosts were not removed"


def _is_unsupervised(folder: JobFolder, held: contextlib.ExitStack) -> bool:
    """Return whether no supervisor has a damaged job; its lock is `held` then.

    Where the lock is not a file, the last event that a supervisor recorded decides.
    """
    try:
        lock = records.try_lock(folder)
    except DamagedRecordError:
        with contextlib.suppress(DamagedRecordError):
            state = records.record(folder).state
            return state.is_terminal or state.waits
        return True
    if lock is not None:
        held.callback(os.close, lock)
    return lock is not None


def _remove_links(folder: JobFolder) -> None:
    from taco_launch.agent.snapshots.placed_links import PlacedLinks  # noqa: PLC0415 - few jobs have code of their own

    PlacedLinks(folder).remove()


def _end_here(folder: JobFolder, record: JobRecord) -> None:
    """End what the job has left running on this host, as was its policy; elsewhere that belongs to the removal."""
    told = [event.data for event in records.read_events(folder) if facts.is_this_boot(event.data.get("boot"))]
    processes.end(record.mark, recovery.roots_of(folder, told))
