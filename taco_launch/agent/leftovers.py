"""What the last holder of a slot has left on this host: ended where it is ours to end, told where it is not."""

import os
import pwd
import time
from pathlib import Path
from typing import List

from taco_launch.agent import processes, roots
from taco_launch.agent.folders import JobFolder
from taco_launch.agent.holders import Holder


def end(last: Holder) -> str:
    """End what is left of a job; say what is not proven gone, nothing where all is."""
    if not last.is_ours:
        return others(last)
    left = roots.end(JobFolder(Path(last.folder)), last.id)
    pids = ", ".join(str(entry.pid) for entry in left.found)
    told = "; ".join(filter(None, (pids and f"processes {pids} cannot be ended", left.unknown)))
    return f"left by job {last.job}, which is not proven gone: {told}" if told else ""


def others(last: Holder) -> str:
    """Say what another user's job may have left, nothing where all is gone; none of it is ended.

    Root sees the marks of all processes. Another user does not: then every process of that user which began after the job
    may be one of its.
    """
    if os.geteuid() == 0:
        found, unknown = [entry.pid for entry in processes.scan(last.id).found], ""
    else:
        found, unknown = _since(last), processes.why_hidden()
    if not found and not unknown:
        return ""
    told = unknown or f"its may be the process{'es' if len(found) > 1 else ''} {', '.join(map(str, found))}"
    return f"left by job {last.job} of {_name(last.uid)}, which is not proven gone: {told}"


def _since(last: Holder) -> List[int]:
    """Give the processes of a job's user that began after it."""
    # What /proc calls the start is counted from the boot, in ticks.
    boot = time.time() - time.clock_gettime(time.CLOCK_BOOTTIME)
    begin = int((last.since - boot) * os.sysconf("SC_CLK_TCK"))
    # The kernel's own threads are root's, in session 0.
    return [entry.pid for entry in processes.of_user(last.uid) if entry.start >= begin and entry.session]


def _name(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return f"user {uid}"
