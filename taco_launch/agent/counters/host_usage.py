"""Use of this host's CPUs, disks and network: the rates between two readings of the kernel's counters."""

import os
import time
from pathlib import Path
from typing import Collection, Dict, List, Mapping, NamedTuple, Optional, Sequence, Tuple

from taco_launch.agent.counters import nics, process_trees
from taco_launch.agent.counters.process_trees import Key
from taco_launch.core.model.job_view import Usage

_MOST_BYTES = 1 << 20
# A CPU that is busy for this share of the time is at 100 %.
_FULL = 0.95


class Reading(NamedTuple):
    """The counters at a monotonic time: (busy, waiting for disks, all) ticks of each CPU, bytes swapped, (received, sent) bytes.

    `job` is (all threads, main thread) ticks of each process of the job.
    """

    time: float
    cpus: Mapping[str, Tuple[int, int, int]]
    swapped: Optional[int]
    links: Mapping[str, Tuple[Optional[int], Optional[int]]]
    job: Optional[Mapping[Key, Tuple[int, int]]]


def read(members: Optional[Collection[Key]] = None) -> Reading:
    """Read the counters of the host and, where they are given, of the processes of a job."""
    links = {one.name: (one.received, one.sent) for one in nics.carriers()}
    job = None if members is None else {key: ticks for key in members for ticks in [_ticks(key)] if ticks is not None}
    return Reading(time.monotonic(), cpu_ticks(_text("/proc/stat")), swapped_bytes(_text("/proc/vmstat")), links, job)


def cpu_ticks(text: str) -> Dict[str, Tuple[int, int, int]]:
    """Read /proc/stat, proc(5): time within guests counts as user time already."""
    cpus = {}
    for line in text.splitlines():
        name, *numbers = line.split()
        if not name.startswith("cpu"):
            break
        if name != "cpu" and len(numbers) >= 8 and all(map(str.isdecimal, numbers[:8])):
            ticks = [int(number) for number in numbers[:8]]
            cpus[name] = sum(ticks) - ticks[3] - ticks[4], ticks[4], sum(ticks)
    return cpus


def swapped_bytes(text: str) -> Optional[int]:
    """Read /proc/vmstat: bytes swapped in and out; None where the kernel counts none."""
    pages = [line.split()[1] for line in text.splitlines() if line.startswith(("pswpin ", "pswpout "))]
    return sum(map(int, pages)) * os.sysconf("SC_PAGE_SIZE") if len(pages) == 2 else None


def between(before: Reading, after: Reading) -> Usage:
    """Return what was used between two readings, the time as of now."""
    span = max(after.time - before.time, 1e-3)
    shares = _cpu_shares(before, after)
    ways = [_rates(before, after, way, span) for way in (0, 1)]
    rdma = [[rate for name, rate in way.items() if nics.is_port(name)] for way in ways]
    loads = [rate / speed for way in ways for name, rate in way.items() for speed in [nics.link_speed(name)] if speed]
    job = _job_ticks(before, after)
    per_second = span * os.sysconf("SC_CLK_TCK")
    swapped = None if before.swapped is None or after.swapped is None else after.swapped - before.swapped
    return Usage(
        time.time(),
        span,
        cpus=len(shares),
        cpu=_mean([busy for busy, _wait in shares]),
        full_cpus=float(sum(busy >= _FULL for busy, _wait in shares)) if shares else None,
        iowait=_mean([wait for _busy, wait in shares]),
        swap=None if swapped is None else max(0.0, swapped / span),
        received=sum(ways[0].values()) if ways[0] else None,
        sent=sum(ways[1].values()) if ways[1] else None,
        rdma_received=sum(rdma[0]) if rdma[0] else None,
        rdma_sent=sum(rdma[1]) if rdma[1] else None,
        link=min(1.0, max(loads)) if loads else None,
        job_cpus=None if job is None else sum(each for each, _main in job) / per_second,
        thread=None if not job else min(1.0, max(main for _all, main in job) / per_second),
    )


def _cpu_shares(before: Reading, after: Reading) -> List[Tuple[float, float]]:
    """Return the share of its time that each CPU was busy, and waited for disks; iowait can fall, by proc(5)."""
    shares = []
    for name, then in before.cpus.items():
        busy, wait, total = (now - past for now, past in zip(after.cpus.get(name, then), then))
        if total > 0:
            shares.append((min(1.0, max(0.0, busy / total)), min(1.0, max(0.0, wait / total))))
    return shares


def _rates(before: Reading, after: Reading, way: int, span: float) -> Dict[str, float]:
    """Return the bytes per second of each interface in one direction; a driver that was loaded again counts from 0."""
    rates = {}
    for name, counts in after.links.items():
        now, then = counts[way], before.links.get(name, (None, None))[way]
        if now is not None and then is not None:
            rates[name] = max(0.0, (now - then) / span)
    return rates


def _job_ticks(before: Reading, after: Reading) -> Optional[Sequence[Tuple[int, int]]]:
    """Return what each process used that is in both readings; None where no job was looked at."""
    if before.job is None or after.job is None:
        return None
    common = [(now, before.job[key]) for key, now in after.job.items() if key in before.job]
    return [(max(0, now[0] - then[0]), max(0, now[1] - then[1])) for now, then in common]


def _ticks(key: Key) -> Optional[Tuple[int, int]]:
    looks = process_trees.look_at([key])
    fields = process_trees.word(key[0], f"task/{key[0]}/stat").rpartition(")")[2].split()
    return (looks[0].ticks, int(fields[11]) + int(fields[12])) if looks and len(fields) >= 20 else None


def _mean(values: Sequence[float]) -> Optional[float]:
    return sum(values) / len(values) if values else None


def _text(path: str) -> str:
    try:
        with Path(path).open(encoding="ascii", errors="replace") as file:
            return file.read(_MOST_BYTES)
    except OSError:
        return ""
