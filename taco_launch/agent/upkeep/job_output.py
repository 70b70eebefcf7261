"""What the output of a job tells at this moment: its last line, its progress, and how much of its time it has trained."""

from typing import NamedTuple, Optional

from taco_launch.agent.logs import output_end
from taco_launch.agent.store import records
from taco_launch.agent.store.folders import JobFolder
from taco_launch.core.lifecycle.goodput import time_spent, trained_share
from taco_launch.core.model.job_view import Progress
from taco_launch.core.model.jobs import JobRecord, JobState


class JobOutput(NamedTuple):
    """The last line of a job's ranks, the progress of its attempt, and its goodput; None is "unknown"."""

    last_line: str = ""
    progress: Optional[Progress] = None
    goodput: Optional[float] = None


def read(folder: JobFolder, record: JobRecord, pattern: str, now: float) -> JobOutput:
    """Return what the output of a job tells; `pattern` is the user's own for its progress, `now` in seconds since the epoch."""
    attempt = folder.of_attempt(record.attempt)
    end = output_end.read(attempt.merged, pattern, attempt)
    goodput = None
    if record.state is JobState.RUNNING and end.progress is not None and end.progress.step is not None:
        first = output_end.first_step(attempt.rank(end.progress.rank), pattern)
        if first is not None:
            goodput = trained_share(time_spent(record, records.read_events(folder), now, first))
    return JobOutput(end.line, end.progress, goodput)
