"""Since when a job waits, until when it may, and what is due then: pure."""

from typing import NamedTuple, Optional, Tuple

from taco_launch.core.errors import JobEnd
from taco_launch.core.model.jobs import JobRecord, JobState, Policy

# A job that is ended holds its slots for as long as its grace time and this, in seconds: its start, and what its end takes.
_BESIDE_SECONDS = 30.0


class WaitLimit(NamedTuple):
    """When a job that waits is over, and how."""

    time: float
    exit_code: int
    reason: str

    @property
    def is_of_queue(self) -> bool:
        """Whether it limits how long the job may wait for its slots, and not its attempts."""
        return self.exit_code == JobEnd.NO_SLOTS_IN_TIME


def limit(policy: Policy, record: JobRecord) -> Optional[WaitLimit]:
    """Return the end of a waiting job's time: of that for waiting, or of that for all its attempts; None: there is none.

    The time for waiting starts with the submission, the last resumption, or when the next attempt may begin. Times are
    seconds since the epoch.
    """
    found = []
    since = waits_since(record)
    if record.state is JobState.SUSPENDED or since is None:
        return None
    if policy.queue_timeout is not None:
        given = f"got no slots within its --queue-timeout of {policy.queue_timeout:g} s"
        if not policy.queue_timeout:
            given = "got no slots at once (--no-wait)"
        found.append(WaitLimit(since + policy.queue_timeout, JobEnd.NO_SLOTS_IN_TIME, given))
    if policy.timeout is not None and record.started is not None:
        given = f"reached its --timeout of {policy.timeout:g} s for all attempts"
        found.append(WaitLimit(record.started + policy.timeout, JobEnd.OUT_OF_TIME, given))
    return min(found, default=None)


def waits_since(record: JobRecord) -> Optional[float]:
    """Return since when a job has waited for its slots; None where it does not, or waits for something else."""
    if record.state not in (JobState.QUEUED, JobState.RESTARTING):
        return None
    if record.state is JobState.RESTARTING:
        return record.not_before
    return record.transitions[-1].time if record.transitions else record.submitted


def queued_at(record: JobRecord) -> float:
    """Return when a job came into the queue: when it was submitted, or resumed for the last time; seconds since the epoch."""
    changes = record.transitions
    resumed = [
        after.time
        for before, after in zip(changes, changes[1:])
        if (before.state, after.state) == (JobState.SUSPENDED, JobState.QUEUED)
    ]
    return resumed[-1] if resumed else record.submitted or 0.0


def pending_reasons(record: JobRecord, name: str) -> Tuple[Tuple[str, str], ...]:
    """Return what a job waits for: (host, why), what concerns no single host under "".

    Nothing where it does not wait, or its hosts have not been looked at yet.
    """
    if record.state is JobState.SUSPENDED:
        starts = "starts it" if record.started is None else "starts its command again"
        return (("", f"{record.reason}; taco-launch resume {name} {starts}"),)
    if record.state is JobState.RESTARTING:
        delay, last = (record.not_before or 0.0) - record.transitions[-1].time, record.attempt
        why = "; ".join(map(str.strip, record.reason.split("\n")))
        return (("", f"attempt {last + 1} starts {delay:.0f} s after attempt {last} failed: {why}"),)
    return record.waiting if record.state.waits else ()


def removal(policy: Policy, record: JobRecord) -> Optional[float]:
    """Return when the record of a job that has ended is to be removed; None: it stays."""
    if policy.ttl is None or record.ended is None:
        return None
    return record.ended + policy.ttl


def hosts_of_retry(policy: Policy, record: JobRecord) -> Tuple[str, ...]:
    """Name the hosts that the next attempt must get; empty if any will do."""
    return record.hosts if policy.retry_on == "same-host" and record.attempt else ()


def lasts(policy: Policy) -> Optional[float]:
    """Return the most seconds that a job holds its slots, None where it has no time limit."""
    return None if policy.timeout is None else policy.timeout + policy.grace + _BESIDE_SECONDS


def must_end(policy: Policy, record: JobRecord) -> Optional[float]:
    """Return until when a job that runs holds its slots at the most, None where it does not run or has no time limit."""
    most = lasts(policy)
    if most is None or record.started is None or record.state.waits or record.state.is_terminal:
        return None
    return record.started + most
