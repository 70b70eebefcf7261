"""What has become of jobs, counted: numbers that only grow, whatever is removed."""

from bisect import bisect_left
from dataclasses import replace
from typing import Optional, Tuple

from taco_launch.core.frozen import dataclass
from taco_launch.core.model.job_rows import JobRow
from taco_launch.core.model.jobs import JobState

# Seconds that a job may wait in its queue, the upper bounds of the histogram: from at once to a day.
BOUNDS = (1.0, 5.0, 15.0, 60.0, 300.0, 900.0, 3600.0, 14400.0, 86400.0)


@dataclass(frozen=True)
class WaitTimes:
    """How long the jobs of a queue have waited for their first start, if it came: seconds in all, and jobs by `BOUNDS`.

    `counts` has one number for each bound, of the jobs above the bound before and up to this one, and one for those
    above the last.
    """

    queue: str
    seconds: float = 0.0
    counts: Tuple[int, ...] = (0,) * (len(BOUNDS) + 1)


@dataclass(frozen=True)
class JobCounts:
    """How many jobs were submitted and let in, and how many of them ended how; a lost job counts as failed."""

    created: int = 0
    successful: int = 0
    failed: int = 0
    cancelled: int = 0
    waits: Tuple[WaitTimes, ...] = ()

    def with_job(self, row: JobRow) -> "JobCounts":
        """Count one more job, as it stands now, if it is to be counted."""
        if not row.is_counted:
            return self
        state = row.state
        return replace(
            self,
            created=self.created + 1,
            successful=self.successful + (state is JobState.SUCCEEDED),
            failed=self.failed + (state in (JobState.FAILED, JobState.LOST)),
            cancelled=self.cancelled + (state is JobState.CANCELLED),
            waits=self._waits(row.queue, row.waited),
        )

    def _waits(self, queue: str, seconds: Optional[float]) -> Tuple[WaitTimes, ...]:
        by_queue = {waits.queue: waits for waits in self.waits}
        before = by_queue.setdefault(queue, WaitTimes(queue))
        if seconds is not None:
            counts = list(before.counts)
            counts[bisect_left(BOUNDS, seconds)] += 1
            by_queue[queue] = WaitTimes(queue, before.seconds + max(seconds, 0.0), tuple(counts))
        return tuple(by_queue[name] for name in sorted(by_queue))
