"""What there is to know of a cluster's jobs and slots, as families of metrics in Prometheus' text format."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from itertools import accumulate

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

from taco_launch.core.model.job_counts import BOUNDS, JobCounts
from taco_launch.core.model.job_rows import JobRow
from taco_launch.core.model.job_view import LiveJob
from taco_launch.core.model.jobs import JobState
from taco_launch.core.model.run.verified import Truth
from taco_launch.core.model.slots import Occupancy

_PREFIX = "taco_launch_"
# The progress of running jobs, as far as their programs print it.
_PROGRESS = {
    "step": "The last step that a running job printed.",
    "steps": "The total number of steps of a running job, as far as it prints it.",
    "rate": "The last speed that a running job printed, in its program's own unit, such as images or tokens per second.",
    "loss": "The last loss that a running job printed.",
    "goodput": "The fraction of the time since its submission that a running job has trained in its attempt, if it prints its steps.",
}
_LINKS = "on all network interfaces and HCA ports, by all programs"
_PORTS = "on HCA ports (InfiniBand, RoCE), by all programs"
# What a running job uses on a host, in its last minute: the field of Usage, the name of the family and its words.
_USE = (
    (
        "gpu",
        "gpu_use_ratio",
        "The share of time in which a kernel ran on the GPUs of a running job on a host, the mean of these.",
    ),
    ("gpu_memory", "gpu_memory_ratio", "The share of the memory of a running job's GPUs on a host that is in use."),
    (
        "received",
        "network_receive_bytes_per_second",
        f"Bytes per second that a host of a running job receives {_LINKS}.",
    ),
    ("sent", "network_transmit_bytes_per_second", f"Bytes per second that a host of a running job sends {_LINKS}."),
    (
        "rdma_received",
        "rdma_receive_bytes_per_second",
        f"Bytes per second that a host of a running job receives {_PORTS}.",
    ),
    ("rdma_sent", "rdma_transmit_bytes_per_second", f"Bytes per second that a host of a running job sends {_PORTS}."),
)

# Families that the MPI Operator has as well, and its prefix for them.
_OF_MPI_OPERATOR = ("jobs_created", "jobs_successful", "jobs_failed", "job_info")
_MPI_OPERATOR = "mpi_operator_"


def text(
    rows: Sequence[JobRow],
    removed: JobCounts,
    hosts: Mapping[str, Occupancy | None],
    version: str,
    *,
    live: Sequence[LiveJob] = (),
    mpi_operator: bool = False,
) -> bytes:
    """Return all families as text: of the jobs that there are, of those that were removed, of hosts (None: no answer).

    `live` is what running jobs use.

    Characters that UTF-8 does not have become question marks. With `mpi_operator` the families that the MPI Operator has
    come under its names as well.
    """
    ours = families(rows, removed, hosts, version, live)
    return rendered((*ours, *_renamed(ours)) if mpi_operator else ours)


def _renamed(ours: Iterable[Metric]) -> Iterable[Metric]:
    for family in ours:
        if family.name.removeprefix(_PREFIX) in _OF_MPI_OPERATOR:
            theirs = Metric(family.name.replace(_PREFIX, _MPI_OPERATOR, 1), family.documentation, family.type)
            theirs.samples = [
                each._replace(name=each.name.replace(_PREFIX, _MPI_OPERATOR, 1)) for each in family.samples
            ]
            yield theirs


def silent_head_text(head: str, version: str) -> bytes:
    """Return what is known while the head does not answer: that it is not ready. Counters are left out: 0 would be a reset."""
    return rendered((_ready({head: None}), _build(version)))


def rendered(found: Sequence[Metric]) -> bytes:
    """Return families as text."""
    registry = CollectorRegistry()
    registry.register(_CollectedMetrics(found))
    return generate_latest(registry)


def families(
    rows: Sequence[JobRow],
    removed: JobCounts,
    hosts: Mapping[str, Occupancy | None],
    version: str,
    live: Sequence[LiveJob] = (),
) -> tuple[Metric, ...]:
    """Return all families: see `text`."""
    tally = removed
    for row in rows:
        tally = tally.with_job(row)
    return (*_counters(tally), *_jobs(rows, tally), *_use(rows, live), *_slots(hosts), _build(version))


class _CollectedMetrics(Collector):
    """Families that have been collected already."""

    def __init__(self, families: Sequence[Metric]) -> None:
        self._families = families

    def collect(self) -> Iterable[Metric]:
        """Return them."""
        return self._families


def gauge(name: str, words: str, samples: Iterable[tuple[Mapping[str, str], float]]) -> Metric:
    """Return a family of gauges: of each sample its labels and its value."""
    family = GaugeMetricFamily(_PREFIX + name, words)
    for labels, value in samples:
        family.add_sample(family.name, {key: _valid(each) for key, each in labels.items()}, value)
    return family


def _counters(tally: JobCounts) -> Iterable[Metric]:
    counts = (
        ("created", tally.created, "Jobs that were submitted, except those that were refused at once."),
        ("successful", tally.successful, "Jobs that ended with state SUCCEEDED."),
        ("failed", tally.failed, "Jobs that ended with state FAILED or LOST."),
        ("cancelled", tally.cancelled, "Jobs that ended with state CANCELLED."),
    )
    for name, count, words in counts:
        yield CounterMetricFamily(f"{_PREFIX}jobs_{name}", words, count)


def _jobs(rows: Sequence[JobRow], tally: JobCounts) -> Iterable[Metric]:
    words = "1 for every job whose record exists; the labels are its launcher and its cluster."
    yield gauge("job_info", words, ((_job(row), 1) for row in rows))
    by_state = Counter(row.state for row in rows)
    words = "1 for every running job; status is whether it runs as planned: True, False, or Unknown while that is not known."
    running = [row for row in rows if row.state is JobState.RUNNING]
    checked = ({**_job(row), "status": row.verified or Truth.UNKNOWN.value} for row in running)
    yield gauge("job_verified", words, ((labels, 1) for labels in checked))
    for name, words in _PROGRESS.items():
        values = ((_job(row), getattr(row, name)) for row in running)
        yield gauge(f"job_{name}", words, ((labels, value) for labels, value in values if value is not None))
    words = "1 for a running job whose ranks hang, else 0."
    yield gauge("job_hung", words, ((_job(row), float(row.hung_since is not None)) for row in running))
    words = "Attempts of an unfinished job after its first one: restarts, and starts after a suspension."
    unfinished = (row for row in rows if not row.state.is_terminal)
    yield gauge("job_restarts", words, ((_job(row), max((row.attempt or 1) - 1, 0)) for row in unfinished))
    words = "Jobs whose records exist, by state."
    yield gauge("jobs", words, (({"state": state.value}, by_state[state]) for state in JobState))
    waiting = Counter(row.queue for row in rows if row.state.waits and row.state is not JobState.SUSPENDED)
    words = "Jobs that wait for their slots or their next attempt."
    yield gauge("queue_length", words, (({"queue": entry.queue}, waiting[entry.queue]) for entry in tally.waits))
    words = "Seconds from a job's submission to its first start."
    waits = HistogramMetricFamily(f"{_PREFIX}queue_wait_seconds", words, labels=("queue",))
    bounds = [*map(str, BOUNDS), "+Inf"]
    for entry in tally.waits:
        buckets = list(zip(bounds, accumulate(entry.counts), strict=True))
        waits.add_metric([_valid(entry.queue)], buckets, entry.seconds)
    yield waits


def _use(rows: Sequence[JobRow], live: Sequence[LiveJob]) -> Iterable[Metric]:
    labels = {row.name: _job(row) for row in rows}
    measured = [
        ({**labels[job.name], "host": host}, usage) for job in live if job.name in labels for host, usage in job.hosts
    ]
    for field, name, words in _USE:
        values = ((of, getattr(usage, field)) for of, usage in measured)
        yield gauge(f"job_{name}", words, ((of, value) for of, value in values if value is not None))


def _job(row: JobRow) -> Mapping[str, str]:
    """Return the labels of a job, as the MPI Operator has them."""
    return {"launcher": f"{row.name}-launcher", "namespace": row.cluster}


def _ready(hosts: Mapping[str, Occupancy | None]) -> Metric:
    ready = (({"host": name}, float(found is not None)) for name, found in hosts.items())
    return gauge("host_ready", "1 for a host that answers, 0 for one that does not.", ready)


def _slots(hosts: Mapping[str, Occupancy | None]) -> Iterable[Metric]:
    yield _ready(hosts)
    drained = (({"host": name}, float(found.drain is not None)) for name, found in hosts.items() if found is not None)
    yield gauge("host_drained", "1 for a host that is drained and takes no new jobs, else 0.", drained)
    records = {name: each.drain for name, each in hosts.items() if each is not None and each.drain is not None}
    kinds = (
        ({"host": name, "kind": drain.kind, "by": "policy" if drain.policy else "person"}, 1)
        for name, drain in records.items()
    )
    yield gauge("host_drain_info", "1 for every drained host: the kind of its drain, and who decided it.", kinds)
    since = (({"host": name}, drain.since) for name, drain in records.items())
    yield gauge("host_drain_timestamp_seconds", "When a drained host was drained, in seconds since the epoch.", since)
    samples: list[tuple[Mapping[str, str], float]] = []
    for name, found in hosts.items():
        if found is None:
            continue
        allocated = sum(slot.holder is not None for slot in found.slots)
        others = (
            [] if found.drain is not None else [slot for slot in found.slots if slot.holder is None and slot.foreign]
        )
        unknown = sum(slot.is_unknown for slot in others)
        counts = {
            "total": len(found.slots),
            "allocated": allocated,
            "foreign": len(others) - unknown,
            "unknown": unknown,
        }
        samples += (({"host": name, "state": state}, count) for state, count in counts.items())
    words = (
        "Slots of a host (GPUs, if it has any): total, allocated to jobs, and foreign, which no job gets because "
        "processes outside taco-launch use them, and unknown, whose users the host cannot tell, as of a GPU that is lost. "
        "The total includes the other three."
    )
    yield gauge("slots", words, samples)


def _build(version: str) -> Metric:
    return gauge(
        "build_info",
        "Always 1; the label is the version of taco-launch that reports this.",
        [({"version": version}, 1)],
    )


def _valid(value: str) -> str:
    return value.encode("utf-8", "replace").decode("utf-8")
