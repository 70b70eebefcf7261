"""What the last holder of a slot has left on this host: ended where it is ours to end, reported where it is not."""

import os
import time
from pathlib import Path
from typing import List

from taco_launch.agent import processes, roots
from taco_launch.agent.folders import JobFolder
from taco_launch.agent.holders import Holder
from taco_launch.agent.untrusted import user_name


def end(last: Holder) -> str:
    """End what is left of a job; return what is not proven gone, "" where all is."""
    if not last.is_ours:
        return others(last)
    left = roots.end(JobFolder(Path(last.folder)), last.id)
    pids = ", ".join(str(entry.pid) for entry in left.found)
    told = "; ".join(filter(None, (pids and f"processes {pids} cannot be ended", left.unknown)))
    return f"left by job {last.job}, which is not proven gone: {told}" if told else ""


def others(last: Holder) -> str:
    """Return what another user's job may have left, "" where all is gone; none of it is ended.

    Only processes of that user count, whatever its record names. Root sees their marks. Another user does not: then every
    process of that user which began after the job may be one of its.
    """
    if os.geteuid() == 0:
        of_job = processes.scan(last.id).found
        found, unknown = [entry.pid for entry in of_job if processes.owner(entry.pid) == last.uid], ""
    else:
        found, unknown = _since(last), processes.why_hidden()
    if not found and not unknown:
        return ""
    told = unknown or f"its may be the process{'es' if len(found) > 1 else ''} {', '.join(map(str, found))}"
    return f"left by job {last.job} of {user_name(last.uid)}, which is not proven gone: {told}"


def _since(last: Holder) -> List[int]:
    """Return the processes of a job's user that began after it."""
    # What /proc calls the start is counted from the boot, in ticks.
    boot = time.time() - time.clock_gettime(time.CLOCK_BOOTTIME)
    begin = int((last.since - boot) * os.sysconf("SC_CLK_TCK"))
    # The kernel's own threads are root's, in session 0.
    return [entry.pid for entry in processes.of_user(last.uid) if entry.start >= begin and entry.session]
