"""A job as callers see it: its spec, its record, its events, its progress, what it uses of its hosts."""

import re
from typing import Any, Optional, Tuple

from taco_launch.core.errors import code_of_ended
from taco_launch.core.frozen import dataclass
from taco_launch.core.model.codec import to_json
from taco_launch.core.model.jobs import LATEST, MOST_PRIORITY, MOST_RANKS, Event, JobRecord, JobSpec, JobState
from taco_launch.core.model.launchers import LAUNCHERS

# Why a job waits: (host, why), what concerns no single host under "".
WaitReasons = Tuple[Tuple[str, str], ...]

# As store/folders.py has it. A name stands in the lines that are to be typed next.
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}")
_MOST = 1 << 63
_MOST_PORT = 65535


@dataclass(frozen=True)
class BoardView:
    """A job's TensorBoard: the port of the head's loopback where it answers, or why it does not."""

    port: Optional[int] = None
    problem: str = ""


# After so long without a line, and so many steps at the job's speed, its time to the end is not known any more.
_LATE_SECONDS, _LATE_STEPS = 20.0, 30.0


@dataclass(frozen=True)
class Progress:
    """The last values that a program printed; None is "not told".

    `program` names the format. `rate` is what the program says of its own speed, in `unit` (`img/s`, `samples/s`,
    `it/s`); `steps_per_second` is measured by the times of the lines, and `eta` is seconds to `total` by that.
    `time` is when the last line came, in seconds since the epoch. `diverged`: the loss is printed as nan or inf.
    """

    program: str
    rank: int  # that printed it
    time: float
    step: Optional[float] = None
    total: Optional[float] = None
    epoch: Optional[float] = None
    loss: Optional[float] = None
    diverged: bool = False
    rate: Optional[float] = None
    unit: str = ""
    steps_per_second: Optional[float] = None
    eta: Optional[float] = None

    def text(self, now: Optional[float]) -> str:
        """Return it as words, such as `step 120/500, loss 0.31, 34.2 img/s, 2m left`.

        `now` is in seconds since the epoch, None where no time to its end is to be told. Where the last line came too long ago
        for the job's speed, that is told instead of the speed and the time to its end.
        """
        speed = self.steps_per_second
        silent = 0.0 if now is None else now - self.time
        late = bool(speed) and silent > max(_LATE_SECONDS, _LATE_STEPS / (speed or 1.0))
        found = []
        if self.step is not None:
            found.append(f"step {self.step:.10g}" + ("" if self.total is None else f"/{self.total:.10g}"))
        if self.epoch is not None:
            found.append(f"epoch {self.epoch:.4g}")
        if self.loss is not None or self.diverged:
            found.append("loss is not a number" if self.loss is None else f"loss {self.loss:.4g}")
        if self.rate is not None:
            found.append(f"{self.rate:.4g} {self.unit}")
        elif speed is not None and not late:
            found.append(f"{speed:.3g} steps/s")
        if late:
            found.append(f"no line for {age(silent)}")
        elif now is not None and self.eta is not None and self.total is not None:
            found.append(f"{age(self.eta)} left")
        return ", ".join(found)


@dataclass(frozen=True)
class LastRun:
    """The job that ran the same command before, with as many ranks on the same hosts; the last rate that it printed."""

    name: str
    rate: float


# Shares, from 0 to 1; all other numbers are counts, sizes and rates.
SHARES = ("cpu", "iowait", "link", "thread", "gpu", "gpu_memory", "throttled")
_MOST_USED, _MOST_SECONDS = float(1 << 50), 3600.0


@dataclass(frozen=True)
class Usage:
    """How much was used on average in the `seconds` before `time` (since the epoch); None is not known.

    Of the host: `cpu` is the share of its `cpus` that was busy, `full_cpus` how many of them were busy nearly all the time,
    `iowait` the share that was idle while a process waited for a disk. `swap`, `received` and `sent` are bytes per second,
    `rdma_received` and `rdma_sent` are the part of the HCAs' ports, None where it has none; `link` is how much of its speed the busiest network interface carried. Of the job: `job_cpus` is how many CPUs its
    processes used, `thread` the share of one CPU that the busiest main thread of a process used. `gpus` is how many GPUs
    the job has there: `gpu` is the share of time in which a kernel ran, `gpu_memory` the share of memory in use, `power` is in
    watts for each GPU, `temperature` that of the hottest in °C, and `throttled` is the share that a fault slowed down.
    """

    time: float
    seconds: float
    cpus: int = 0
    cpu: Optional[float] = None
    full_cpus: Optional[float] = None
    iowait: Optional[float] = None
    swap: Optional[float] = None
    received: Optional[float] = None
    sent: Optional[float] = None
    rdma_received: Optional[float] = None
    rdma_sent: Optional[float] = None
    link: Optional[float] = None
    job_cpus: Optional[float] = None
    thread: Optional[float] = None
    gpus: int = 0
    gpu: Optional[float] = None
    gpu_memory: Optional[float] = None
    power: Optional[float] = None
    temperature: Optional[float] = None
    throttled: Optional[float] = None


# By host.
HostUsages = Tuple[Tuple[str, Usage], ...]


@dataclass(frozen=True)
class JobUsage:
    """What a job used: a bounded series from its start to now, and each host's last minute.

    Each point of `series` is the mean of all hosts over `every` seconds or less; the oldest point is the first.
    """

    every: float
    series: Tuple[Usage, ...]
    hosts: HostUsages


@dataclass(frozen=True)
class LiveJob:
    """What a running job uses, and the share of its time in which it trained (None: not known)."""

    name: str
    goodput: Optional[float]
    hosts: HostUsages


@dataclass(frozen=True)
class JobView:
    """A job at one moment."""

    spec: JobSpec
    record: JobRecord
    # where the head keeps it
    folder: str
    # only where they were requested
    events: Tuple[Event, ...] = ()
    # None where it has none, or that has ended
    tensorboard: Optional[BoardView] = None
    # what its ranks wrote last, with its label, and how far its training has come; only with the events
    last_line: str = ""
    progress: Optional[Progress] = None
    last_run: Optional[LastRun] = None
    # when the last attempt printed its first step, in seconds since the epoch; None where it has not
    first_step: Optional[float] = None
    # what it used in its last minute, by host; only with the events, while it runs
    usage: HostUsages = ()
    # its number in Slurm, None before it is there and of other jobs
    slurm_job: Optional[int] = None

    @property
    def launcher_code(self) -> Optional[int]:
        """The exit code of `run` and `wait`: 125 if it ended before a rank ran; None until the end."""
        record = self.record
        if record.exit_code is None:
            return None
        ran = record.first_failure is not None or any(each.state is JobState.RUNNING for each in record.transitions)
        return code_of_ended(record.exit_code, started=record.started is not None, ran=ran)


def check_job(job: JobView) -> None:
    """Check a job that came from another machine.

    Raises:
        ValueError: nobody could submit it, or it has numbers that nobody can show.
    """
    record = job.record
    ranks = [share.ranks for share in record.shares]
    check_spec(job.spec)
    if min(record.np, *ranks, 0) < 0 or max(record.np, sum(ranks)) > MOST_RANKS:
        raise ValueError(f"fewer than 0 or more than {MOST_RANKS} ranks")
    board = job.tensorboard
    if board is not None and not (board.port is None or 0 < board.port <= _MOST_PORT):
        raise ValueError(f"port {board.port}")
    _check_numbers(to_json(job))


def check_usage(usage: Usage) -> None:
    """Check what another process measured.

    Raises:
        ValueError: no host has these numbers.
    """
    for name in usage.__dataclass_fields__:
        value = getattr(usage, name)
        most = 1.0 if name in SHARES else LATEST if name == "time" else _MOST_USED
        if value is not None and not 0 <= value <= most:
            raise ValueError(f"{name} is {value!r:.40}")
    if not 0 < usage.seconds <= _MOST_SECONDS:
        raise ValueError(f"seconds is {usage.seconds!r:.40}")


def check_spec(spec: JobSpec) -> None:
    """Check a job that another process describes: one that cannot be shown would break every list that contains it.

    Raises:
        ValueError: no user could submit it.
    """
    if not _NAME.fullmatch(spec.name):
        raise ValueError(f"no job has the name {spec.name[:80]!r}")
    if not spec.hosts or spec.launcher not in LAUNCHERS or spec.procs_per_gpu < 1 or (spec.slots_per_worker or 1) < 1:
        raise ValueError("it is not a job that could have been submitted")
    if abs(spec.policy.priority) > MOST_PRIORITY:
        raise ValueError(f"priority {spec.policy.priority!r:.40} is out of range")


def _check_numbers(value: Any) -> None:
    """Refuse a time beyond the year 9999 and a count beyond 64 bits.

    Raises:
        ValueError: the value is out of range.
    """
    level = [value]
    while level:
        for number in level:
            most = LATEST if isinstance(number, float) else _MOST
            if isinstance(number, (int, float)) and not abs(number) <= most:  # no NaN either
                raise ValueError(f"{number!r:.40} is out of range")
        inner = [part for part in level if isinstance(part, (dict, list))]
        level = [part for each in inner for part in (each.values() if isinstance(each, dict) else each)]


# A span of fewer units than these is short: half a unit of it is much.
_SHORT = 10


def age(seconds: float) -> str:
    """Return a time span in the largest whole unit, a short one with the next unit: 29s, 1m55s, 46m, 2h5m, 14h, 3d."""
    span = max(int(seconds), 0)
    for unit, size, next_unit, next_size in (("d", 86400, "h", 3600), ("h", 3600, "m", 60), ("m", 60, "s", 1)):
        if span >= size:
            rest = span % size // next_size if span < _SHORT * size else 0
            return f"{span // size}{unit}" + (f"{rest}{next_unit}" if rest else "")
    return f"{span}s"
