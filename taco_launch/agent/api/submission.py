"""`agent submit`: a job is made known to the queue, and its caller told what came of it."""

import os
import select
import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Callable, Dict, Iterator, Optional, Type

from taco_launch.agent.api import log_stream
from taco_launch.agent.gang import descriptors
from taco_launch.agent.host import containers
from taco_launch.agent.host.launcher_process import wake_on_child
from taco_launch.agent.scheduler import scheduler
from taco_launch.agent.store import records
from taco_launch.agent.store.folders import JobFolder, Jobs
from taco_launch.agent.upkeep import job_counters, recovery, removal, scheduler_wakeup
from taco_launch.core.errors import TacoLaunchError, UsageError
from taco_launch.core.lifecycle import state
from taco_launch.core.model.job_rows import row_of
from taco_launch.core.model.job_view import JobView
from taco_launch.core.model.jobs import JobState
from taco_launch.core.protocol.calls import Reply, Request
from taco_launch.core.protocol.calls.jobs import Accepted, JobReply, Submit
from taco_launch.core.protocol.calls.logs import Logs

if TYPE_CHECKING:
    from taco_launch.agent.rank.caller_stream import CallerStream

_POLL_SECONDS = 0.005
_PLACE_SECONDS = 60.0
# How often the caller sees to it that somebody looks after the job.
_ENSURE_SECONDS = 0.5


def submit(jobs: Jobs, agent: str, request: Submit, caller: "Optional[CallerStream]" = None) -> Iterator[Reply]:
    """Create the job, trigger scheduling and yield Accepted; then yield the job once it is placed, waits or has ended.

    Code of the job is received from the caller first. With `follow` its log is followed afterwards. A job that is refused at
    once leaves no record: its end gives the reason.

    Raises:
        UsageError: its name is taken, or what is sent is not its code.
    """
    if request.spec.code is not None and caller is not None:
        from taco_launch.agent.api import snapshot_upload  # noqa: PLC0415 - few jobs have code of their own

        yield from snapshot_upload.receive(jobs, request.spec.code.id, caller)
    folder = _make(jobs, agent, request)
    scheduler.admit(jobs, agent, folder.name)
    yield Accepted(name=folder.name)
    _await_word(jobs, agent, folder)
    spec, record = records.read_spec(folder), recovery.current_record(folder)
    row = row_of(spec, record)
    refused = row.state.is_terminal and not row.is_counted
    if refused:
        job_counters.removed(jobs, folder)  # it was never let in, and the answer says why
    yield JobReply(job=JobView(spec, record, str(folder.path)))
    if request.follow and not refused:
        logs = Logs(name=folder.name, follow=True, seconds=request.seconds)
        yield from log_stream.logs(jobs, agent, logs, _until_a_child_ends())


def _make(jobs: Jobs, agent: str, request: Submit) -> JobFolder:
    spec, caller = request.spec, request.caller
    descriptors.require(hosts=1, ranks=spec.np or 1)
    # the caller is elsewhere: the job has what this process was started with; in another container its supervisor adds that
    if caller.inherit and containers.of(spec) == containers.here():
        caller = caller.replace(environment={**os.environ, **caller.environment}, inherit=False)
        spec = replace(spec, cwd=spec.cwd or str(Path.cwd()))
    if spec.tensorboard is not None and not caller.inherit:  # in another container its keeper looks for it
        from taco_launch.agent.tensorboard import board  # noqa: PLC0415 - few jobs have one

        board.require(caller.environment, in_container=spec.container is not None)
    if spec.container is not None and not spec.container.variant:
        _check_image(spec.container.image)
    with jobs.create(spec.name, anywhere=spec.slurm is not None) as draft:
        draft.agent.symlink_to(agent)
        records.write_spec(draft, spec)
        records.write_caller(draft, caller)
        suspend: Dict[str, Any] = {"suspend": True} if spec.policy.suspend else {}
        why = "submitted with --suspend; it waits until it is resumed" if suspend else state.FOR_SLOTS
        records.Events(draft).add(state.SUBMITTED, why, id=os.urandom(16).hex(), **suspend)
        jobs.mark(spec.name)
        try:
            return jobs.publish(draft, spec.name)
        except UsageError as error:
            old = jobs.folder(spec.name)
            if not (spec.policy.replace and _is_ended_own(old, spec.owner)):
                raise _with_whose(error, old, spec.owner) from None
        list(removal.remove(jobs, agent, old))  # a host that keeps the old one refuses the new one, and names it
        jobs.mark(spec.name)
        return jobs.publish(draft, spec.name)


def _check_image(wanted: str) -> None:
    """Refuse a job whose inventory names another image than the head's container was created from.

    Raises:
        UsageError: with both images.
    """
    from taco_launch.core.model.host.image_reference import parse_reference  # noqa: PLC0415 - jobs of this machine have none

    there, name = containers.image_name(), parse_reference(wanted).name
    if there and there != name:
        raise UsageError(
            f"the inventory's image is {name}, but the containers were created from {there}",
            "recreate the containers with taco-launch setup, or give this job its own image with --image",
        )


def _is_ended_own(folder: JobFolder, person: str) -> bool:
    """Return whether a job of this head has ended and is of `person`."""
    if folder.is_guest:
        return False
    try:
        return recovery.current_record(folder).state.is_terminal and records.read_spec(folder).owner == person
    except TacoLaunchError:
        return False


def _with_whose(error: UsageError, folder: JobFolder, person: str) -> UsageError:
    """Add which job has the name: its state, its owner and its age; one of `person` may be removed where none of it runs."""
    if folder.is_guest:
        return error
    try:
        record, spec = records.record(folder), records.read_spec(folder)
    except TacoLaunchError:
        return error
    hint = error.hint
    if spec.owner == person and record.state.is_terminal:
        hint = f"{hint}, or add --replace: it deletes the old one"
    elif spec.owner == person and record.state.waits:
        hint = f"{hint}, or remove the old one: taco-launch delete {folder.name}"
    elif spec.owner == person:
        hint = f"{hint}, or end the old one first: taco-launch stop {folder.name}"
    owner = f", of {spec.owner}" if spec.owner else ""
    told = f"{record.state.value}{owner}, submitted {_ago(time.time() - (record.submitted or 0.0))} ago"
    return UsageError(f"{error.message}: {told}", hint)


def _ago(seconds: float) -> str:
    for unit, size in (("d", 86400), ("h", 3600), ("min", 60)):
        if seconds >= size:
            return f"{int(seconds // size)} {unit}"
    return f"{max(int(seconds), 0)} s"


def _await_word(jobs: Jobs, agent: str, folder: JobFolder) -> None:
    """Wait until a job has a place, has ended, or is known to wait."""
    deadline = time.monotonic() + _PLACE_SECONDS
    ensure_at = time.monotonic() + _ENSURE_SECONDS
    reader = records.RecordReader(folder)
    while True:
        record = reader.record()
        if record.admitted or record.state is not JobState.QUEUED or time.monotonic() > deadline:
            return
        if time.monotonic() > ensure_at:
            ensure_at = time.monotonic() + _ENSURE_SECONDS
            scheduler_wakeup.ensure(jobs, agent)
        time.sleep(_POLL_SECONDS)


def _until_a_child_ends() -> Callable[[float], object]:
    """Return what waits for the end of a child, for so many seconds: the job's supervisor is one where it ran at once."""
    wakeup = wake_on_child()

    def wait(seconds: float) -> None:
        if select.select([wakeup], [], [], seconds)[0]:
            os.read(wakeup, 4096)

    return wait


OPERATIONS: Dict[Type[Request], Callable[..., Iterator[Reply]]] = {Submit: submit}
