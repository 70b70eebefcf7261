"""What the last holders of a slot have left on this host: ended where it is this user's, reported where it is another's.

Which of this user's jobs had a slot lies with these jobs, where no other user writes and no container of another cluster.
The folder of the leases is everybody's, so what stands there ends nothing (slot_holders.py).
"""

import contextlib
import os
import time
import zlib
from pathlib import Path
from typing import List, NamedTuple, Optional

from taco_launch.agent.host import process_registry, processes
from taco_launch.agent.host.slot_holders import Holder
from taco_launch.agent.store import records, untrusted
from taco_launch.agent.store.folders import JobFolder, is_name, make_private
from taco_launch.core.model import codec

_FOLDER = ".slots"
LOCK = ".lock"
# A record is written once all slots of a job on its host are had.
_WRITTEN_SECONDS = 600.0
_MOST_BYTES = 1 << 12


class PreviousHolder(NamedTuple):
    """The job that had a slot last, and its mark."""

    job: str
    id: str


class OwnSlots:
    """The slots of one folder of leases, as the user who owns a folder of jobs has had them.

    A second lock lies here for each slot. Whoever made the shared one may remove it while a job holds it: without this
    one, the next job would take what runs there for left over.
    """

    def __init__(self, jobs: Path, leases: Path) -> None:
        """Name the folder; nothing is touched. Hosts that are tried on one machine have leases of their own."""
        self._jobs = jobs
        self._folder = jobs / _FOLDER / f"{zlib.crc32(str(leases).encode('utf-8', 'surrogateescape')):08x}"

    def lock(self, slot: str) -> Optional[int]:
        """Lock a slot among this user's jobs; None where one of them holds it.

        Raises:
            OSError: nothing can be written there.
        """
        make_private(self._folder)
        return untrusted.try_lock(self._folder / f"{slot}{LOCK}")

    def write(self, slot: str, job: str, job_id: str) -> None:
        """Note which job has a slot.

        Raises:
            OSError: nothing can be written there.
        """
        records.write_json(self._folder / slot, {"job": job, "id": job_id})

    def read(self, slot: str) -> Optional[PreviousHolder]:
        """Return the job that had a slot last and did not end in order, None where there is none."""
        try:
            had = codec.from_json(PreviousHolder, codec.load(untrusted.read(self._folder / slot, _MOST_BYTES)))
        except (OSError, ValueError):
            return None
        return had if is_name(had.job) else None

    def remove(self, slot: str) -> None:
        """Note that nothing is left of the job that had a slot last."""
        with contextlib.suppress(OSError):
            (self._folder / slot).unlink()

    def find(self, had: PreviousHolder) -> processes.ProcessScan:
        """Find what is left of a job on this host."""
        return process_registry.find(JobFolder(self._jobs / had.job), had.id)

    def end(self, had: PreviousHolder) -> str:
        """End what is left of a job; return what may still run, "" where all is."""
        left = process_registry.end(JobFolder(self._jobs / had.job), had.id)
        pids = ", ".join(str(entry.pid) for entry in left.found)
        told = "; ".join(filter(None, (pids and f"these processes could not be killed: {pids}", left.unknown)))
        return f"left by job {had.job}, which may still be running: {told}" if told else ""


def report(last: Holder) -> str:
    """Return what a job may have left, "" where all is gone.

    Only processes of the record's user count, whatever else it names. Root and that user itself see their marks. Another
    user does not: then every process of that user which started after the job may be one of its.
    """
    if os.geteuid() in (0, last.uid):
        of_job = processes.scan(last.id, user=last.uid).found
        found, unknown = [entry.pid for entry in of_job if processes.owner(entry.pid) == last.uid], ""
    else:
        found, unknown = _since(last), processes.why_hidden()
    if not found and not unknown:
        return ""
    told = unknown or f"perhaps process{'es' if len(found) > 1 else ''} {', '.join(map(str, found))}"
    return f"left by job {last.job} of {untrusted.user_name(last.uid)}, which may still be running: {told}"


def _since(last: Holder) -> List[int]:
    """Return the processes of a job's user that started after it."""
    # What /proc calls the start is counted from the boot, in ticks.
    boot = time.time() - time.clock_gettime(time.CLOCK_BOOTTIME)
    # Older than the record, it would have others wait for processes that have nothing to do with it.
    since = max(last.since, last.written - _WRITTEN_SECONDS)
    begin = int((since - boot) * os.sysconf("SC_CLK_TCK"))
    # The kernel's own threads are root's, in session 0.
    return [entry.pid for entry in processes.of_user(last.uid) if entry.start >= begin and entry.session]
