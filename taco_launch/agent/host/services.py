"""Which processes are services of ours: schedulers, supervisors and guards, which outlive the job they were started in.

A rank may submit another job. What looks after that one is started with `SERVICE` in its environment, which any process
may have: it is believed of a process that holds a lock of ours. Whoever holds one is seen by it: as the supervisor of a
job that has not ended, the scheduler, or who has a slot of this host.
"""

import os
import re
from pathlib import Path
from typing import List

from taco_launch.agent import scheduler_wakeup
from taco_launch.agent.store import records
from taco_launch.agent.store.folders import JobFolder, Jobs, is_name, lease_folder, state_folder
from taco_launch.errors import TacoLaunchError
from taco_launch.model.slots import is_lease_name

# proc(5), /proc/PID/fdinfo: `lock:	1: FLOCK  ADVISORY  WRITE 708 08:01:12345 0 EOF`
_FLOCK = re.compile(rb"^lock:\s+\d+: FLOCK ", re.MULTILINE)
_MOST_BYTES = 1 << 16


def is_service(pid: int) -> bool:
    """Return whether a process that says so is a service: it holds a lock of ours."""
    try:
        return any(_is_ours(Path(os.readlink(f"/proc/{pid}/fd/{name}"))) for name in _locked(pid))
    except OSError:  # it is gone, or another user's
        return False


def _locked(pid: int) -> List[str]:
    """Return the descriptors of a process whose files are locked by them."""
    found = []
    for name in os.listdir(f"/proc/{pid}/fdinfo"):
        try:
            with open(f"/proc/{pid}/fdinfo/{name}", "rb") as file:
                if _FLOCK.search(file.read(_MOST_BYTES)):
                    found.append(name)
        except OSError:  # closed meanwhile
            continue
    return found


def _is_ours(path: Path) -> bool:
    uid = os.geteuid()
    state = state_folder(os.environ, uid)
    if path.parent == lease_folder(os.environ, state, root=uid == 0):
        return _is_lease(path)
    folder, jobs = path.parent, Jobs(state)
    if folder == jobs.queue:
        return path.name == scheduler_wakeup.LOCK
    return folder.parent == jobs.path and is_name(folder.name) and path == JobFolder(folder).lock and _goes_on(folder)


def _is_lease(path: Path) -> bool:
    """Return whether a path is that of a slot or port, and still a file there: any other can be locked by anybody."""
    return is_lease_name(path.name) and path.is_file()


def _goes_on(folder: Path) -> bool:
    try:
        return not records.record(JobFolder(folder)).state.is_terminal
    except (TacoLaunchError, OSError):
        return False
