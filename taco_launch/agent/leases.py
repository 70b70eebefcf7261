"""Leases: which job has the slots of this host, by the kernel's locks on one file a slot.

The kernel frees a lock whatever dies, but processes may outlive it: the file names its last holder, and who takes the
lock ends first what is left of that one. A holder that ended in order leaves the file empty.
"""

import contextlib
import fcntl
import os
import time
from pathlib import Path
from typing import Any, Dict, List, Mapping, Optional, Tuple

from taco_launch.agent import roots
from taco_launch.agent.folders import JobFolder, make_private
from taco_launch.agent.protocol import dump, parsed
from taco_launch.errors import HostError

# One place for all jobs of a host, whatever their cluster; setup makes it.
FOLDER = "/run/taco-launch/leases"
VARIABLE = "TACO_LAUNCH_LEASES"

Holder = Dict[str, Any]  # job, id, since (seconds since the epoch), agent, folder


def place(environ: Mapping[str, str]) -> Path:
    """Give the folder of the leases."""
    return Path(environ.get(VARIABLE) or FOLDER)


class Leases:
    """The leases that one guard holds."""

    def __init__(self, folder: Path) -> None:
        """Hold none yet."""
        self._folder = folder
        self._held: List[int] = []

    def take(self, slots: int, job_id: str, agent: str, where: JobFolder) -> Tuple[str, ...]:
        """Take the first `slots` slots, all or none; give why that cannot be, nothing where they are taken.

        Raises:
            HostError: there can be no leases in that folder.
        """
        if self._held:
            return ()
        try:
            make_private(self._folder)
            files = [os.open(self._folder / f"slot-{slot}", os.O_RDWR | os.O_CREAT, 0o600) for slot in range(slots)]
        except OSError as error:
            hint = f"name a folder of your own with {VARIABLE}, or run as root"
            raise HostError(f"no leases in {self._folder}: {error.strerror}", hint) from None
        locked = [file for file in files if _lock(file)]
        why = _busy([_holder(file) for file in files if file not in locked], slots)
        if not why:
            why = _leftovers([holder for holder in map(_holder, files) if holder is not None], job_id)
        if why:
            for file in files:
                os.close(file)
            return why
        holder = {"job": where.name, "id": job_id, "since": time.time(), "agent": agent, "folder": str(where.path)}
        for file in files:
            _write(file, dump(holder))
        self._held = files
        return ()

    def release(self, *, gone: bool) -> None:
        """Let all go; `gone` says that nothing is left of the holder."""
        for file in self._held:
            if gone:
                _write(file, b"")
            os.close(file)
        self._held = []


def _lock(file: int) -> bool:
    with contextlib.suppress(OSError):
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return True
    return False


def _busy(holders: List[Optional[Holder]], slots: int) -> Tuple[str, ...]:
    """Say who has how many of the slots."""
    if not holders:
        return ()
    count: Dict[str, int] = {}
    for holder in holders:
        told = "another job" if holder is None else f"job {holder['job']} (since {_clock(float(holder['since']))})"
        count[told] = count.get(told, 0) + 1
    return tuple(f"{number} of {slots} slots held by {told}" for told, number in count.items())


def _leftovers(holders: List[Holder], job_id: str) -> Tuple[str, ...]:
    """End what is left of the last holders; say what cannot be ended."""
    found = {holder["id"]: holder for holder in holders if holder["id"] != job_id}
    why = []
    for holder in found.values():
        left = roots.end(JobFolder(Path(holder["folder"])), holder["id"])
        pids = ", ".join(str(entry.pid) for entry in left.found)
        if left.found or left.unknown:
            told = "; ".join(filter(None, (pids and f"processes {pids} cannot be ended", left.unknown)))
            why.append(f"job {holder['job']}, which had it last, is not proven gone: {told}")
    return tuple(why)


def _holder(file: int) -> Optional[Holder]:
    told = parsed(os.pread(file, 1 << 16, 0))
    return told if told is not None and {"job", "id", "since", "folder"} <= set(told) else None


def _write(file: int, data: bytes) -> None:
    os.ftruncate(file, 0)
    os.pwrite(file, data, 0)


def _clock(since: float) -> str:
    then = time.localtime(since)
    same_day = then[:3] == time.localtime()[:3]
    return time.strftime("%H:%M" if same_day else "%Y-%m-%d %H:%M", then)
