"""`agent start`: starts a command once for each rank of this host, as mpirun's daemon does under mpirun.

It stays above the ranks until all have ended: what a rank leaves comes to it, and belongs to the job.
"""

import os
import subprocess
from typing import Dict, Sequence

from taco_launch.agent import processes, program
from taco_launch.agent.folders import JobFolder
from taco_launch.errors import SIGNAL_BASE


def main(folder: JobFolder, numbers: Sequence[str], command: Sequence[str]) -> int:
    """Start the ranks; `numbers` are the first one's, how many there are here and in all. Gives the first code but 0."""
    first, count, world_size = map(int, numbers)
    processes.become_subreaper()
    running: Dict[int, subprocess.Popen[bytes]] = {}
    for local_rank in range(count):
        own = {"RANK": first + local_rank, "LOCAL_RANK": local_rank, "WORLD_SIZE": world_size}
        environment = {**os.environ, **{name: str(value) for name, value in own.items()}}
        child = subprocess.Popen((*program.wrapper(folder, "rank"), *command), env=environment)
        running[child.pid] = child
    code = 0
    while running:
        pid, status = os.wait()
        ended = running.pop(pid, None)  # None: an orphan that came to us
        if ended is not None:
            ended.returncode = 0  # its status was taken by our own wait
            code = code or (SIGNAL_BASE + os.WTERMSIG(status) if os.WIFSIGNALED(status) else os.WEXITSTATUS(status))
    return code
