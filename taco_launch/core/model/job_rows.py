"""A job as one line of a table: what `list` and `top job` show of each, made of its spec and its record alone."""

from dataclasses import fields
from functools import lru_cache
from typing import Any, Iterable, List, Optional, Sequence, Tuple, Union, get_args, get_origin, get_type_hints

from taco_launch.core.errors import CANNOT_PLACE, HOST_FAILED
from taco_launch.core.frozen import dataclass
from taco_launch.core.model.job_view import LastRun, Progress
from taco_launch.core.model.jobs import LATEST, JobRecord, JobSpec, JobState
from taco_launch.core.model.launchers import LAUNCHERS
from taco_launch.core.model.slots import is_gpu


@dataclass(frozen=True)
class JobRow:
    """One job; times are seconds since the epoch, as in the record, and so is `reason`.

    `waited` is how many seconds it took from its submission to its first start, None where it never started. `requested`
    is how many slots it asks for, None where its hosts' own facts say that; `allocated` how many it has at this moment.
    `gpus` says whether the slots that it has or had are GPUs. `hosts` is where its ranks are or were. `suspended` is for how
    many seconds it waited after its first start, suspended or for another attempt, `suspended_since` since when it does.
    `last_line` is what its ranks wrote last, and `progress` how far its training has come: as words, and as `step` of
    `steps`, `rate` (in the program's unit) and `loss`, as far as it prints them. `verified` is whether its attempt runs as
    planned: True, False or Unknown, "" before that was looked at. `hung_since` is since when its ranks hang, None where they do
    not. `goodput` is the fraction of the time since its submission that it has trained, of a running job that prints its steps.
    """

    name: str
    id: str
    state: JobState
    reason: str
    launcher: str
    queue: str
    priority: int
    owner: str
    cluster: str
    np: int
    requested: Optional[int]
    allocated: int
    gpus: bool
    hosts: Tuple[str, ...]
    submitted: Optional[float]
    started: Optional[float]
    ended: Optional[float]
    exit_code: Optional[int]  # None before its end
    attempt: int  # counted from 1, 0 before the first
    waited: Optional[float]
    admitted: bool
    suspended: float
    suspended_since: Optional[float]
    command: str
    last_line: str
    progress: str
    verified: str
    step: Optional[float] = None
    steps: Optional[float] = None
    rate: Optional[float] = None
    loss: Optional[float] = None
    hung_since: Optional[float] = None
    goodput: Optional[float] = None

    @property
    def is_counted(self) -> bool:
        """Whether it is a job among others; not while its first try continues, nor when that was refused."""
        if self.admitted:
            return True
        refused = self.state is JobState.FAILED and self.exit_code in (CANNOT_PLACE, HOST_FAILED)
        return not refused and self.state is not JobState.QUEUED

    def training(self, now: float) -> Optional[float]:
        """Return how long it ran, as JobRecord.training has it; None where it has not started."""
        if self.submitted is None or self.waited is None:
            return None
        end = now if self.ended is None else self.ended
        until = end if self.suspended_since is None else self.suspended_since
        return until - self.submitted - self.waited - self.suspended

    @property
    def nodes(self) -> Tuple[str, ...]:
        """The hosts that it is on at this moment."""
        return () if self.state.is_terminal or self.state.waits else self.hosts


FIELDS = tuple(entry.name for entry in fields(JobRow))
_STATE, _LAUNCHER, _HOSTS = FIELDS.index("state"), FIELDS.index("launcher"), FIELDS.index("hosts")
_OVER = frozenset(state.value for state in JobState if state.is_terminal)


def row_of(
    spec: JobSpec,
    record: JobRecord,
    *,
    command: str = "",
    last_line: str = "",
    progress: Optional[Progress] = None,
    now: Optional[float] = None,
    goodput: Optional[float] = None,
) -> JobRow:
    """Return the line of a job; `command` is its command as it is typed, `now` in seconds since the epoch, as in `Progress.text`."""
    told = Progress("", 0, 0.0) if progress is None else progress
    suspended, suspended_since = record.pause
    on_hosts = not (record.state.is_terminal or record.state.waits)
    return JobRow(
        name=spec.name,
        id=record.id,
        state=record.state,
        reason=record.reason,
        launcher=spec.launcher,
        queue=spec.policy.queue,
        priority=spec.policy.priority,
        owner=spec.owner,
        cluster=spec.cluster,
        np=record.np,
        requested=_requested(spec, record),
        allocated=_slots(record) if on_hosts else 0,
        gpus=any(is_gpu(slot) for share in record.shares for slot in share.slots),
        hosts=record.hosts,
        submitted=record.submitted,
        started=record.started,
        ended=record.ended,
        exit_code=record.exit_code,
        attempt=record.attempt,
        waited=_waited(record),
        admitted=record.admitted,
        suspended=suspended,
        suspended_since=suspended_since,
        command=command,
        last_line=last_line,
        progress=told.text(now if record.state is JobState.RUNNING else None),
        verified="" if record.verified is None else record.verified.status,
        step=_known(told.step),
        steps=_known(told.total),
        rate=_known(told.rate),
        loss=_known(told.loss),
        hung_since=_hung_since(record),
        goodput=goodput,
    )


def last_run(row: JobRow, others: Iterable[JobRow]) -> Optional[LastRun]:
    """Return the newest job that had ended before this one and is comparable; None where no other printed a rate."""

    def shape(job: JobRow) -> Tuple[Any, ...]:
        return job.command, job.cluster, job.np, set(job.hosts)

    comparable = [
        other
        for other in others
        if other.ended is not None
        and (row.ended is None or other.ended < row.ended)
        and other.rate
        and other.name != row.name
        and shape(other) == shape(row)
    ]
    found = max(comparable, key=lambda other: other.ended or 0.0, default=None)
    return LastRun(found.name, found.rate) if found is not None and found.rate else None


def encoded(row: JobRow) -> List[Any]:
    """Return a line as JSON values, in the order of `FIELDS`."""
    values = [getattr(row, name) for name in FIELDS]
    values[_STATE], values[_HOSTS] = row.state.value, list(row.hosts)
    return values


def is_over(values: Sequence[Any]) -> bool:
    """Return whether the job of an encoded line has ended."""
    return values[_STATE] in _OVER


def decoded(values: Sequence[Any]) -> JobRow:
    """Return the line that `encoded` returned these values for.

    Raises:
        ValueError: it did not.
    """
    if not isinstance(values, (list, tuple)) or len(values) != len(FIELDS):
        raise ValueError(f"a job's line has {len(FIELDS)} values: {values!r:.40}")
    for name, value, kinds in zip(FIELDS, values, _kinds()):
        if type(value) not in kinds or (type(value) in (int, float) and not abs(value) <= LATEST):
            raise ValueError(f"a job's line: {name}: {value!r:.40}")
    given = list(values)
    if given[_LAUNCHER] not in LAUNCHERS:
        raise ValueError(f"a job's line: launcher: {given[_LAUNCHER]!r:.40}")
    given[_STATE], given[_HOSTS] = JobState(given[_STATE]), tuple(map(str, given[_HOSTS]))
    return JobRow(*given)


@lru_cache(maxsize=None)
def _kinds() -> Tuple[Tuple[type, ...], ...]:
    """Return which types of JSON the values of a line may have, in the order of `FIELDS`."""
    of = {JobState: (str,), float: (float, int), Tuple[str, ...]: (list, tuple)}
    hints = get_type_hints(JobRow)
    found: List[Tuple[type, ...]] = []
    for name in FIELDS:
        hint, more = hints[name], ()  # type: Any, Tuple[type, ...]
        if get_origin(hint) is Union:  # Optional[...]
            hint, more = get_args(hint)[0], (type(None),)
        found.append((*of.get(hint, (hint,)), *more))
    return tuple(found)


def _known(value: Optional[float]) -> Optional[float]:
    """Return a number that a program printed, None where it is none that a line of a job may have."""
    return value if value is not None and abs(value) <= LATEST else None


def _hung_since(record: JobRecord) -> Optional[float]:
    stall = record.stalled
    return stall.since if stall is not None and stall.hung and record.state is JobState.RUNNING else None


def _slots(record: JobRecord) -> int:
    """Return how many slots a job has, which one process of a host may have all."""
    return sum(len(share.slots) or share.ranks for share in record.shares) or record.np


def _waited(record: JobRecord) -> Optional[float]:
    begun = record.first_start
    return None if begun is None or record.submitted is None else max(0.0, begun - record.submitted)


def _requested(spec: JobSpec, record: JobRecord) -> Optional[int]:
    if spec.np is not None:
        return spec.np
    if spec.slots_per_host is not None and spec.least_hosts is None:
        return spec.slots_per_host * (len(spec.hosts) if spec.host_count is None else spec.host_count)
    if record.np:  # it was told when it was placed
        return _slots(record)
    if spec.host_count is not None or any(host.slots is None for host in spec.hosts):
        return None
    return sum(host.slots or 0 for host in spec.hosts)
