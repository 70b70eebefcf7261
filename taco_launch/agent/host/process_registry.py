"""What a guard keeps in its job's folder: whose the folder is, and which processes have registered there."""

import os
from typing import Iterable, NamedTuple, Optional, Tuple

from taco_launch.agent.host import facts, processes
from taco_launch.agent.store import records, untrusted
from taco_launch.agent.store.folders import JobFolder
from taco_launch.core.model import codec

_MOST_BYTES = 1 << 24  # a host with a thousand ranks needs a hundredth of it


class RegisteredJob(NamedTuple):
    """A job's id, and of this boot of the host the registered processes (pid, start) and the guard itself."""

    job_id: str
    roots: Tuple[Tuple[int, int], ...]
    guard: Optional[Tuple[int, int]] = None


def keep(
    folder: JobFolder, job_id: str, roots: Iterable[Tuple[int, int]] = (), guard: Optional[Tuple[int, int]] = None
) -> None:
    """Write it, in the place of what was there."""
    told = {"id": job_id, "boot": facts.boot_id(), "roots": sorted(roots), "guard": guard}
    records.write_json(folder.roots, told)


def read_registry(folder: JobFolder) -> Optional[RegisteredJob]:
    """Read it, None where no guard of this user has written or nothing can be read.

    Another user may have named the folder, so as to have us end what is not the job's.
    """
    try:
        with untrusted.opened(folder.roots) as file:
            if os.fstat(file).st_uid != os.geteuid():
                return None
            told = codec.load(untrusted.content(file, _MOST_BYTES))
        if not facts.is_this_boot(told["boot"]):
            return RegisteredJob(told["id"], ())
        guard = told["guard"]
        found = tuple((int(pid), int(start)) for pid, start in told["roots"])
        return RegisteredJob(told["id"], found, None if guard is None else (int(guard[0]), int(guard[1])))
    except (OSError, ValueError, KeyError, TypeError, OverflowError):
        return None


def end(folder: JobFolder, job_id: str) -> processes.ProcessScan:
    """End all that belongs to a job on this host and give what is left."""
    return processes.end(job_id, _of(folder, job_id))


def find(folder: JobFolder, job_id: str) -> processes.ProcessScan:
    """Find all that belongs to a job on this host."""
    return processes.scan(job_id, _of(folder, job_id))


def _of(folder: JobFolder, job_id: str) -> Tuple[Tuple[int, int], ...]:
    found = read_registry(folder)
    return found.roots if found is not None and found.job_id == job_id else ()
