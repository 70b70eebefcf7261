"""How much of a host's hardware is used while a job runs there, over time and at this moment."""

from typing import Optional, Tuple

from taco_launch.core.frozen import dataclass
from taco_launch.core.model.jobs import LATEST

# Shares, from 0 to 1; all other numbers are counts, sizes and rates.
SHARES = ("cpu", "iowait", "link", "thread", "gpu", "gpu_memory", "throttled")
_MOST, _MOST_SECONDS = float(1 << 50), 3600.0


@dataclass(frozen=True)
class Usage:
    """How much was used on average in the `seconds` before `time` (since the epoch); None is not known.

    Of the host: `cpu` is the share of its `cpus` that was busy, `full_cpus` how many of them were busy nearly all the time,
    `iowait` the share that was idle while a process waited for a disk. `swap`, `received` and `sent` are bytes per second,
    `link` is how much of its speed the busiest network interface carried. Of the job: `job_cpus` is how many CPUs its
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


def check_usage(usage: Usage) -> None:
    """Check what another process measured.

    Raises:
        ValueError: no host has these numbers.
    """
    for name in usage.__dataclass_fields__:
        value = getattr(usage, name)
        most = 1.0 if name in SHARES else LATEST if name == "time" else _MOST
        if value is not None and not 0 <= value <= most:
            raise ValueError(f"{name} is {value!r:.40}")
    if not 0 < usage.seconds <= _MOST_SECONDS:
        raise ValueError(f"seconds is {usage.seconds!r:.40}")
