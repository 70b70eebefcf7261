"""Jobs on the head: taken off their slots, and let on to them again."""

import time

from taco_launch.flows.jobs import get
from taco_launch.model.jobs import JobState
from taco_launch.remote.answers import Job
from taco_launch.remote.head import Head

_POLL_SECONDS = (0.05, 1.0)


def suspend(head: Head, name: str, by: str) -> Job:
    """Have a job's ranks ended as by a stop, and give it once it waits for `resume`, or has ended after all.

    Raises:
        UsageError: it has ended already.
    """
    job: Job = head.one("suspend", name=name, by=by)["job"]
    pause = _POLL_SECONDS[0]
    while job.record.state is not JobState.SUSPENDED and not job.record.state.is_terminal:
        time.sleep(pause)
        pause = min(2 * pause, _POLL_SECONDS[1])
        job = get(head, name)
    return job


def resume(head: Head, name: str, by: str) -> Job:
    """Have a suspended job wait for its slots again.

    Raises:
        UsageError: it is not suspended.
    """
    job: Job = head.one("resume", name=name, by=by)["job"]
    return job
