"""Calls about all jobs: list, prune, metrics."""

import math
from typing import Any, Optional, Sequence, Tuple

from taco_launch.core.model.job_counts import BOUNDS, JobCounts
from taco_launch.core.model.job_rows import JobRow, decoded
from taco_launch.core.model.job_view import LiveJob, check_usage
from taco_launch.core.protocol.calls import Reply, Request

_MOST = 1 << 63


class List(Request):
    """Return a row of every job. Replies: Rows, Notice for each record that could not be read."""

    op = "list"


class Live(Request):
    """Return a row of every job, and what those that run use. Replies: Rows, Notice for each record that could not be read, LiveJobs."""

    op = "live"


class Prune(Request):
    """Remove the jobs that ended more than `since` seconds ago, of all owners or one. Replies: Notice, Rows."""

    op = "prune"
    since: float
    owner: Optional[str]
    # only say which
    dry_run: bool


class Metrics(Request):
    """Return what metrics count. Replies: Notice, Counted."""

    op = "metrics"


class Rows(Reply):
    """Jobs, each as core/model/job_rows.py encodes it."""

    op = "rows"
    rows: Sequence[Sequence[Any]]

    def jobs(self) -> Tuple[JobRow, ...]:
        """Return the rows.

        Raises:
            ValueError: one is none.
        """
        return tuple(map(decoded, self.rows))


def _check_live(jobs: Sequence[LiveJob]) -> None:
    for job in jobs:
        if job.goodput is not None and not 0 <= job.goodput <= 1:
            raise ValueError(f"goodput is {job.goodput!r:.40}")
        for _host, usage in job.hosts:
            check_usage(usage)


class LiveJobs(Reply):
    """What the running jobs use."""

    op = "live-jobs"
    jobs: Sequence[LiveJob]

    def check(self) -> None:
        """Check that hosts can have these numbers."""
        _check_live(self.jobs)


class Counted(Reply):
    """The jobs that are kept, the sum of those that were removed, the id of the last one that is in that sum, and what running jobs use."""

    op = "counted"
    rows: Sequence[Sequence[Any]]
    removed: JobCounts
    last: str
    live: Sequence[LiveJob] = ()

    def check(self) -> None:
        """Check that jobs can have these counts, and hosts these numbers."""
        _check_live(self.live)
        found = self.removed
        counts = [found.created, found.successful, found.failed, found.cancelled]
        counts += [count for wait in found.waits for count in wait.counts]
        if not all(0 <= count < _MOST for count in counts) or any(
            len(w.counts) != len(BOUNDS) + 1 for w in found.waits
        ):
            raise ValueError("counts that no jobs have")
        if not all(math.isfinite(wait.seconds) and wait.seconds >= 0 for wait in found.waits):
            raise ValueError("a wait that no job has had")

    def jobs(self) -> Tuple[JobRow, ...]:
        """Return the jobs that are kept, each counted once: a removal that was cut off has counted its job, and left it there.

        Raises:
            ValueError: a row is none.
        """
        return tuple(row for row in map(decoded, self.rows) if row.id != self.last)
