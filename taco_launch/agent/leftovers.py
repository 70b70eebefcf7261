"""What the last holder of a slot may have left on this host, where it is another's: reported, and not ended."""

import os
import time
from typing import List

from taco_launch.agent import processes
from taco_launch.agent.holders import Holder
from taco_launch.agent.untrusted import user_name


def report(last: Holder) -> str:
    """Return what a job may have left, "" where all is gone.

    Only processes of the record's user count, whatever else it names. Root and that user itself see their marks. Another
    user does not: then every process of that user which began after the job may be one of its.
    """
    if os.geteuid() in (0, last.uid):
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
