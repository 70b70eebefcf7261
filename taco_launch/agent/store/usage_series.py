"""Keep in a job's folder what it uses: a bounded series, and the last minute of each host."""

import contextlib
from collections import deque
from dataclasses import replace
from typing import Deque, Dict, List, Optional

from taco_launch.agent.store import records
from taco_launch.agent.store.folders import JobFolder
from taco_launch.core.errors import TacoLaunchError
from taco_launch.core.model.codec import from_json, to_json
from taco_launch.core.model.job_view import JobUsage, Usage
from taco_launch.core.usage import averages

# As guard/usage_watch.py samples; a host that sends more often is not listened to meanwhile.
_SECONDS, _SOONEST = 10.0, 5.0
# Of each host: the last minute.
_MOST_SAMPLES = 6
_MOST_BYTES = 1 << 24


def read(folder: JobFolder) -> Optional[JobUsage]:
    """Read what a job used, None where nothing was measured.

    Raises:
        DamagedRecordError: the file is damaged.
        TacoLaunchError: it cannot be read.
    """
    with records.intact(folder, folder.usage):
        data = records.read_json(folder.usage, _MOST_BYTES)
        return None if data is None else from_json(JobUsage, data)


class UsageKeeper:
    """Collects what the guards of a job sample, and keeps it in the job's folder."""

    def __init__(self, folder: JobFolder) -> None:
        """Continue the series of the job's earlier attempts; nothing is read yet."""
        self._folder = folder
        self._kept: Optional[JobUsage] = None
        self._hosts: Dict[str, Deque[Usage]] = {}
        self._new: Dict[str, List[Usage]] = {}
        self._due = 0.0

    def note(self, host: str, sample: Usage, now: float) -> None:
        """Take a guard's sample; `now` is in seconds since the epoch, since the host's clock may be wrong."""
        samples = self._hosts.setdefault(host, deque(maxlen=_MOST_SAMPLES))
        if not samples or now - samples[-1].time > _SOONEST:
            usage = replace(sample, time=now)
            samples.append(usage)
            self._new.setdefault(host, []).append(usage)

    def step(self, now: float) -> None:
        """Write a point of the series, if that is due at this monotonic time and there is something new."""
        if now < self._due or not self._new:
            return
        self._due = now + _SECONDS
        if self._kept is None:
            self._kept = JobUsage(_SECONDS, (), ())
            with contextlib.suppress(TacoLaunchError):  # a damaged one is replaced
                self._kept = read(self._folder) or self._kept
        point = averages.over_hosts([averages.over_time(samples) for samples in self._new.values()])
        every, series = averages.with_point(self._kept.series, self._kept.every, point)
        hosts = tuple((host, averages.over_time(list(samples))) for host, samples in sorted(self._hosts.items()))
        self._new.clear()
        self._kept = JobUsage(every, series, hosts)
        with contextlib.suppress(OSError):  # the disk is full: the job continues without
            records.write_json(self._folder.usage, to_json(self._kept))
