"""A job's log as it is followed: over lost connections, from the offset on that was reached."""

import time
from collections.abc import Iterator

from taco_launch.core.errors import HostError
from taco_launch.core.model.job_view import JobView, WaitReasons
from taco_launch.core.protocol.calls import Reply
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
from taco_launch.jobs.backend import FollowListener, LogQuery, Output
from taco_launch.jobs.backend.agent_client import AgentClient

_FIRST_PAUSE_SECONDS = 1.0
_LONGEST_PAUSE_SECONDS = 30.0


class LogFollower:
    """Follows one job."""

    def __init__(
        self, head: AgentClient, query: LogQuery, output: Output, watch: FollowListener, *, patience: float
    ) -> None:
        """Write the log to `output`. A connection that was lost is given up after `patience` seconds."""
        self._head = head
        self._what = query
        self._output = output
        self._watch = watch
        self._patience = patience
        self._offset: int | None = None if query.tail is not None else query.offset
        # Of which attempt the log is that the offset is a place in; and since when, told by the head's clock.
        self._log: int | None = None
        self._since = query.since
        self._answered = False
        self._lost_at: float | None = None
        self._pause = _FIRST_PAUSE_SECONDS
        # Why it waits, as far as that was passed on since it got its state.
        self._told: set[tuple[str, str]] = set()

    def take(self, replies: Iterator[Reply]) -> JobView | None:
        """Pass on what an answer holds; give the job where that was all, None where there is more to be requested."""
        try:
            for reply in replies:
                self._is_back()
                if isinstance(reply, LogPosition):
                    self._log, self._since = reply.log, reply.since
                if isinstance(reply, (LogPosition, LogChunk)):
                    self._offset = reply.offset
                    if reply.data:
                        self._output(reply.data)
                elif isinstance(reply, Skipped):
                    self._output(b"[taco-launch: %d bytes dropped by log rotation]\n" % reply.count)
                elif isinstance(reply, StateChange):
                    self._told.clear()
                    self._watch.state(reply.state)
                elif isinstance(reply, JobWaiting):
                    self._say_new(reply.reasons)
                elif isinstance(reply, JobPlaced):
                    self._watch.job(reply.job)
                elif isinstance(reply, JobReply):
                    return reply.job
        except HostError as error:
            self._is_lost(error)
        return None

    def to_end(self) -> JobView:
        """Ask until the job has ended, or until now, and give the job.

        Raises:
            HostError: nothing was ever answered, or the connection could not be made again.
        """
        while True:
            job, begun = None, time.monotonic()
            try:
                with self._head.stream(self._request()) as replies:
                    job = self.take(replies)
            except HostError as error:
                self._is_lost(error)
            if job is not None:
                return job
            turn = self._head.location.turn
            if turn is None or not self._what.follow:
                raise HostError(f"{self._head.name}: logs: the answer ended before the state of the job arrived")
            if time.monotonic() - begun < turn / 2:  # nobody's answer has us ask without a pause
                time.sleep(self._pause)

    def _request(self) -> Logs:
        what, resumed = self._what, self._offset is not None
        return Logs(
            name=what.name,
            rank=what.rank,
            host=what.host,
            instance=what.instance,
            attempt=what.attempt,
            offset=what.offset if self._offset is None else self._offset,
            tail=None if resumed else what.tail,
            follow=what.follow,
            log=self._log,
            since=self._since,
            ago=what.ago if self._since is None else None,
            timestamps=what.timestamps,
            agent=what.agent,
            grep=what.grep,
            seconds=self._head.location.turn,
        )

    def _say_new(self, reasons: WaitReasons) -> None:
        """Pass on the reasons that are new: two that take turns are not repeated."""
        new = tuple(reason for reason in reasons if reason not in self._told)
        self._told.update(new)
        if new:
            self._watch.waits(new)

    def _is_back(self) -> None:
        self._answered = True
        if self._lost_at is not None:
            self._watch.say(
                f"{self._head.name}: connected again, following job {self._what.name} from where it broke off"
            )
        self._lost_at, self._pause = None, _FIRST_PAUSE_SECONDS

    def _is_lost(self, error: HostError) -> None:
        """Wait before the next try; give up where there is nothing to come back to, or after long enough.

        Raises:
            HostError: the head was not reached again in time.
        """
        if not (self._what.follow and self._answered and self._head.location.inherit):
            raise error
        now = time.monotonic()
        if self._lost_at is None:
            self._lost_at = now
            self._watch.say(f"{error.message}\nthe job continues; trying to connect again")
        elif now - self._lost_at > self._patience:
            name = self._what.name
            raise HostError(
                f"{error.message}\njob {name} continues, unless the head itself is down",
                hint=f"{self._head.typed} logs -f {name}",
            )
        time.sleep(self._pause)
        self._pause = min(2 * self._pause, _LONGEST_PAUSE_SECONDS)
