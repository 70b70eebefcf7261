"""Stop, suspend, resume and delete existing jobs, several at once.

Every job gets its request before any job is waited for: otherwise a scheduler could start the second job while the first one
is being stopped.
"""

import contextlib
import os
import signal
import time
from typing import Callable, Dict, Iterator, List, Optional, Sequence, Tuple, Type, Union

from taco_launch.agent.api.view import current_view
from taco_launch.agent.store import records
from taco_launch.agent.store.folders import JobFolder, Jobs
from taco_launch.agent.store.records import StopRequest
from taco_launch.agent.upkeep import recovery, removal, scheduler_wakeup
from taco_launch.core.errors import DamagedRecordError, NoJobError, OwnerError, TacoLaunchError, UsageError
from taco_launch.core.lifecycle import state
from taco_launch.core.model.jobs import JobState
from taco_launch.core.protocol.calls import Failure, Notice, Reply, Request
from taco_launch.core.protocol.calls.jobs import Delete, Deleted, JobReply, NotDone, Resize, Resume, Stop, Suspend

# Who has a waiting job's lock for a moment lets it go in less.
_LOCK_SECONDS = 5.0


def stop(jobs: Jobs, _agent: str, request: Stop) -> Iterator[Reply]:
    """Ask the supervisors of jobs to end them, and end those that wait; a job that has ended stays as it is."""

    def ask(folder: JobFolder) -> None:
        if not records.record(folder).state.is_terminal:
            _require_owner(folder, request.owner)
            records.write_request(folder.stop, StopRequest(request.by, request.signal, request.grace))

    folders = _tell(jobs, request.names, ask)
    scheduler_wakeup.notify(jobs, *request.names)
    yield from _answers(folders, _view)


def suspend(jobs: Jobs, _agent: str, request: Suspend) -> Iterator[Reply]:
    """Ask the supervisors of jobs to end them until they are resumed, and have those that wait wait for that.

    A job that has ended is refused.
    """

    def ask(folder: JobFolder) -> None:
        found = records.record(folder).state
        if found.is_terminal:
            raise UsageError(f"job {folder.name}: it is {found.value}, and cannot be suspended")
        _require_owner(folder, request.owner)
        if found is not JobState.SUSPENDED:
            records.write_request(folder.suspend, StopRequest(request.by))

    folders = _tell(jobs, request.names, ask)
    scheduler_wakeup.notify(jobs, *request.names)
    yield from _answers(folders, _view)


def resume(jobs: Jobs, agent: str, request: Resume) -> Iterator[Reply]:
    """Put suspended jobs into the queue again; any other job is refused."""

    def put_back(folder: JobFolder) -> None:
        if records.record(folder).state is JobState.SUSPENDED:
            _require_owner(folder, request.owner)
        _resume(folder, request.by)

    folders = _tell(jobs, request.names, put_back)
    scheduler_wakeup.wake(jobs, agent, *request.names)
    yield from _answers(folders, _view)


def resize(jobs: Jobs, _agent: str, request: Resize) -> Iterator[Reply]:
    """Have an elastic job that runs use at most so many hosts."""

    def ask(folder: JobFolder) -> None:
        _require_owner(folder, request.owner)
        spec, found = records.read_spec(folder), records.record(folder).state
        if not spec.elastic:
            hint = "submit it with --elastic --hosts MIN:MAX"
            raise UsageError(f"job {folder.name}: only an elastic job can change its number of hosts", hint=hint)
        if found.waits or found.is_terminal:
            raise UsageError(f"job {folder.name}: it is {found.value}, not RUNNING")
        least, most = spec.least_hosts or 1, spec.host_count or 1
        if not least <= request.hosts <= most:
            raise UsageError(
                f"job {folder.name}: {request.hosts} is not between {least} and {most}, its --hosts MIN:MAX"
            )
        records.write_json(folder.resize, records.ResizeRequest(request.by, request.hosts)._asdict())

    yield from _answers(_tell(jobs, request.names, ask), _view)


def delete(jobs: Jobs, agent: str, request: Delete) -> Iterator[Reply]:
    """Remove what is kept of jobs that have ended, on their other hosts as well where they can be reached."""

    def ask(folder: JobFolder) -> None:
        with contextlib.suppress(DamagedRecordError):  # its owner is unknown: the name is enough
            _require_owner(folder, request.owner)
            if request.by is not None and not records.record(folder).state.is_terminal:
                records.write_request(folder.stop, StopRequest(request.by, signal.SIGTERM))

    def remove(folder: JobFolder) -> Iterator[Reply]:
        if request.by is not None:
            try:
                if not recovery.current_record(folder).state.is_terminal:
                    yield JobReply(job=current_view(folder))
                    return
            except DamagedRecordError:  # nobody can follow its end: it is awaited here
                with contextlib.ExitStack() as held:
                    removal.end_damaged(folder, held)
        for warning in removal.remove(jobs, agent, folder):
            yield Notice(text=warning)
        yield Deleted(name=folder.name)

    folders = _tell(jobs, request.names, ask)
    scheduler_wakeup.notify(jobs, *request.names)
    yield from _answers(folders, remove)


_Folders = Sequence[Tuple[str, Union[JobFolder, TacoLaunchError]]]


def _tell(jobs: Jobs, names: Sequence[str], ask: Callable[[JobFolder], None]) -> _Folders:
    """Tell jobs what is asked of them; return the folder of each, or why it was not told."""
    folders: List[Tuple[str, Union[JobFolder, TacoLaunchError]]] = []
    for name in names:
        folder: Union[JobFolder, TacoLaunchError]
        try:
            folder = jobs.get(name)
            ask(folder)
        except FileNotFoundError:
            folder = NoJobError(f"job {name}: another process removed it")
        except TacoLaunchError as error:
            folder = error
        folders.append((name, folder))
    return folders


def _answers(folders: _Folders, answer: Callable[[JobFolder], Iterator[Reply]]) -> Iterator[Reply]:
    for name, folder in folders:
        try:
            if isinstance(folder, TacoLaunchError):
                raise folder
            yield from answer(folder)
        except TacoLaunchError as error:
            yield NotDone(name=name, failure=Failure.of(error))


def _view(folder: JobFolder) -> Iterator[Reply]:
    yield JobReply(job=current_view(folder))


def _require_owner(folder: JobFolder, owner: Optional[str]) -> None:
    """Check that a job is this user's, if one is given; a job without an owner is everybody's.

    Raises:
        OwnerError: it is another user's.
    """
    actual = records.read_spec(folder).owner if owner is not None else ""
    if actual not in ("", owner):
        raise OwnerError(f"job {folder.name} is {actual}'s")


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
            recovery.tell_slurm(folder, "release")
            records.Events(folder).add(state.RESUMED, f"resumed by {by}")
    finally:
        os.close(lock)


OPERATIONS: Dict[Type[Request], Callable[..., Iterator[Reply]]] = {
    Stop: stop,
    Suspend: suspend,
    Resume: resume,
    Resize: resize,
    Delete: delete,
}
