"""The call `logs`: a job's log as it is and as it becomes, and what happens to the job meanwhile."""

import math
from typing import Optional, Sequence, Tuple

from taco_launch.core.model.job_view import JobView, check_job
from taco_launch.core.model.jobs import JobState
from taco_launch.core.protocol.calls import Reply, Request, check_counts


class Logs(Request):
    """Return a job's log. Replies: LogPosition, then LogChunk, Skipped, JobWaiting, JobPlaced, StateChange; JobReply at its end.

    At most one of `rank`, `host`, `instance` and `agent` is given. Who was cut off continues with the `offset`, `log` and `since` that
    were replied last. After `seconds` the answer ends without the job: who follows calls again, and a follower that has
    gone leaves nothing behind for longer.
    """

    op = "logs"
    name: str
    rank: Optional[int] = None
    host: Optional[str] = None
    instance: Optional[str] = None
    # one attempt alone
    attempt: Optional[int] = None
    offset: int = 0
    # the last lines, instead of what comes behind `offset`
    tail: Optional[int] = None
    follow: bool = False
    # the attempt whose log `offset` is a place in
    log: Optional[int] = None
    # seconds since the epoch, or before now by the clock of the head
    since: Optional[float] = None
    ago: Optional[float] = None
    timestamps: bool = False
    # the agent log instead
    agent: bool = False
    # only lines that match this regular expression; `tail` counts these
    grep: Optional[str] = None
    seconds: Optional[float] = None


class LogPosition(Reply):
    """Where the log continues: at its beginning, and where another attempt starts, with a line that marks it."""

    op = "place"
    offset: int
    log: Optional[int]
    since: Optional[float]
    data: bytes = b""

    def check(self) -> None:
        """Check that it is a place, and a time."""
        check_counts(offset=self.offset, log=self.log)
        if self.since is not None and not math.isfinite(self.since):
            raise ValueError(f"since is {self.since}")


class LogChunk(Reply):
    """A piece of the log; it ends at `offset`."""

    op = "piece"
    offset: int
    data: bytes = b""

    def check(self) -> None:
        """Check that it ends at a place."""
        check_counts(offset=self.offset)


class Skipped(Reply):
    """How many bytes log rotation has dropped here."""

    op = "skipped"
    count: int

    def check(self) -> None:
        """Check that it is a count."""
        check_counts(count=self.count)


class JobWaiting(Reply):
    """Why the job waits: (host, why), what concerns no single host under "". See WaitReasons."""

    op = "waiting"
    why: Sequence[Sequence[str]]

    def check(self) -> None:
        """Check that each is a pair."""
        if any(len(pair) != 2 for pair in self.why):
            raise ValueError('the field "why" must be a list of pairs')

    @property
    def reasons(self) -> Tuple[Tuple[str, str], ...]:
        """The same as WaitReasons."""
        return tuple((host, why) for host, why in self.why)


class JobPlaced(Reply):
    """The job has its place."""

    op = "began"
    job: JobView

    def check(self) -> None:
        """Check the job."""
        check_job(self.job)


class StateChange(Reply):
    """The job's state has changed."""

    op = "state"
    state: str

    def check(self) -> None:
        """Check that it is a state."""
        JobState(self.state)
