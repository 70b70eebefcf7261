"""The operation `logs`: the log of a job, or a part of it, as it is and as it becomes."""

import math
import time
from typing import Callable, Dict, Iterator, Optional, Tuple, Type

from taco_launch.agent.api.view import current_view, final_view
from taco_launch.agent.logs.log_query import Excerpt
from taco_launch.agent.logs.merge import beginning
from taco_launch.agent.store import records
from taco_launch.agent.store.folders import JobFolder, Jobs
from taco_launch.agent.upkeep import recovery, scheduler_wakeup
from taco_launch.core.lifecycle import waits
from taco_launch.core.lifecycle.state import suspension
from taco_launch.core.model.jobs import JobRecord
from taco_launch.core.protocol.calls import Reply, Request
from taco_launch.core.protocol.calls.jobs import JobReply
from taco_launch.core.protocol.calls.logs import (
    JobPlaced,
    JobWaiting,
    LogChunk,
    LogPosition,
    Logs,
    Skipped,
    StateChange,
)

# While something comes or the job's state changes, and when nothing has come for a while; what is between grows slowly,
# so that what comes after a silence waits for a tenth of that time.
_POLL_SECONDS = (0.005, 0.1)
_POLL_GROWTH = 1.1
# How often a follower makes sure that somebody still supervises the job, or will.
_LOOK_SECONDS = 1.0


def logs(jobs: Jobs, agent: str, request: Logs, wait: Optional[Callable[[float], object]] = None) -> Iterator[Reply]:
    """Yield a log, what happens to its job, and the job at its end: see Logs.

    `wait` waits for so many seconds, or for less where something has come; by default it sleeps.
    """
    folder = jobs.get(request.name)
    if request.ago is not None:
        request = request.replace(since=time.time() - request.ago)
    excerpt = Excerpt(folder, request, request.log)
    yield LogPosition(offset=excerpt.offset, log=excerpt.attempt, since=request.since)
    until = time.monotonic() + (request.seconds or math.inf)
    told, reader = _Told(), records.RecordReader(folder)
    look_at, pause, state = 0.0, _POLL_SECONDS[0], None
    while True:
        if time.monotonic() >= look_at:
            record = recovery.current_record(folder)
            look_at = time.monotonic() + _LOOK_SECONDS
            if record.state.waits:
                scheduler_wakeup.ensure(jobs, agent)
        else:
            record = reader.record()
        # The record was read before the log: what it says has ended has written all that there will be.
        is_over = excerpt.attempt is not None and record.attempt > excerpt.attempt
        final = is_over or record.state.is_terminal or not request.follow
        before = excerpt.offset, state
        yield from _all(excerpt, final=final)
        state = record.state
        pause = min(_POLL_GROWTH * pause, _POLL_SECONDS[1]) if (excerpt.offset, state) == before else _POLL_SECONDS[0]
        if is_over and request.follow and request.attempt is None and not request.agent:
            excerpt = Excerpt(folder, request.replace(offset=0, tail=None), record.attempt)
            line = beginning(record.attempt, suspension(record, record.attempt))
            yield LogPosition(offset=excerpt.offset, log=excerpt.attempt, since=request.since, data=line)
            continue
        if final:
            yield JobReply(job=final_view(folder))
            return
        if time.monotonic() > until:
            return
        yield from told.news(folder, record)
        (wait or time.sleep)(pause)


def _all(excerpt: Excerpt, *, final: bool) -> Iterator[Reply]:
    """Yield all that there is by now."""
    data = excerpt.read(final=final)
    while data is not None:
        if excerpt.skipped:
            yield Skipped(count=excerpt.skipped)
            excerpt.skipped = 0
        yield LogChunk(offset=excerpt.offset, data=data)
        data = excerpt.read(final=final)


class _Told:
    """What a follower was told of the job itself."""

    def __init__(self) -> None:
        self._state = ""
        self._waiting: Optional[Tuple[Tuple[str, str], ...]] = None

    def news(self, folder: JobFolder, record: JobRecord) -> Iterator[Reply]:
        """Yield what is new since the last time."""
        waiting = waits.pending_reasons(record, folder.name)
        if record.state.waits and waiting != self._waiting:
            self._waiting = waiting
            yield JobWaiting(why=waiting)
        elif self._waiting is not None and not record.state.waits:
            self._waiting = None
            yield JobPlaced(job=current_view(folder))
        if record.state.value != self._state:
            self._state = record.state.value
            yield StateChange(state=self._state)


OPERATIONS: Dict[Type[Request], Callable[..., Iterator[Reply]]] = {Logs: logs}
