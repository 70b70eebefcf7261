"""What there is to know of a cluster's jobs and slots, as families of metrics."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from taco_launch.metrics.exposition import Family, Sample, histogram
from taco_launch.model.jobs import JobState
from taco_launch.model.rows import JobRow
from taco_launch.model.slots import Occupancy
from taco_launch.model.tallies import BOUNDS, Tally

_PREFIX = "taco_launch_"


def families(
    rows: Sequence[JobRow],
    removed: Tally,
    hosts: Mapping[str, Occupancy | None],
    version: str,
) -> tuple[Family, ...]:
    """Return all families: of the jobs that there are, of those that were removed, and of hosts (None: no answer)."""
    tally = removed
    for row in rows:
        tally = tally.with_job(row)
    return (*_counters(tally), *_jobs(rows, tally), *_slots(hosts), _build(version))


def _counters(tally: Tally) -> Iterable[Family]:
    counts = (
        ("created", tally.created, "Jobs that were submitted, without those that were refused at once."),
        ("successful", tally.successful, "Jobs that ended with state SUCCEEDED."),
        ("failed", tally.failed, "Jobs that ended with state FAILED or LOST."),
        ("cancelled", tally.cancelled, "Jobs that ended with state CANCELLED."),
    )
    for name, count, words in counts:
        yield Family(f"{_PREFIX}jobs_{name}_total", "counter", words, (Sample(count),))


def _jobs(rows: Sequence[JobRow], tally: Tally) -> Iterable[Family]:
    info = tuple(Sample(1, (("launcher", f"{row.name}-launcher"), ("namespace", row.cluster))) for row in rows)
    yield Family(
        f"{_PREFIX}job_info", "gauge", "1 for every job whose record is there; its launcher, and its cluster.", info
    )
    by_state = Counter(row.state for row in rows)
    states = tuple(Sample(by_state[state], (("state", state.value),)) for state in JobState)
    yield Family(f"{_PREFIX}jobs", "gauge", "Jobs whose records are there, by state.", states)
    waiting = Counter(row.queue for row in rows if row.state.waits and row.state is not JobState.SUSPENDED)
    lengths = tuple(Sample(waiting[entry.queue], (("queue", entry.queue),)) for entry in tally.waits)
    yield Family(f"{_PREFIX}queue_length", "gauge", "Jobs that wait for their slots or their next attempt.", lengths)
    samples = tuple(
        sample
        for entry in tally.waits
        for sample in histogram((("queue", entry.queue),), BOUNDS, entry.counts, entry.seconds)
    )
    words = "Seconds from a job's submission to its first start."
    yield Family(f"{_PREFIX}queue_wait_seconds", "histogram", words, samples)


def _slots(hosts: Mapping[str, Occupancy | None]) -> Iterable[Family]:
    ready = tuple(Sample(found is not None, (("host", name),)) for name, found in hosts.items())
    yield Family(f"{_PREFIX}host_ready", "gauge", "1 for a host that answers, 0 for one that does not.", ready)
    samples: list[Sample] = []
    for name, found in hosts.items():
        if found is None:
            continue
        allocated = sum(slot.holder is not None for slot in found.slots)
        counts = {
            "total": len(found.slots),
            "allocated": allocated,
            "foreign": len(found.slots) - allocated - found.free,
        }
        samples += (Sample(count, (("host", name), ("state", state))) for state, count in counts.items())
    words = (
        "Slots of a host (GPUs, where it has some): all, those that jobs have, and those that are given to nobody since "
        "processes that are not ours use them. The last two are part of the first."
    )
    yield Family(f"{_PREFIX}slots", "gauge", words, tuple(samples))


def _build(version: str) -> Family:
    words = "1; the version of taco-launch that tells this."
    return Family(f"{_PREFIX}build_info", "gauge", words, (Sample(1, (("version", version),)),))
