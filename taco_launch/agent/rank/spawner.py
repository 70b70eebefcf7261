"""`agent start`: starts a command once for each rank of this host, as mpirun's daemon does under mpirun.

It stays above the ranks until all have ended: what a rank leaves comes to it, and belongs to the job.
"""

import os
import subprocess
import sys
from typing import Dict, Mapping, Sequence

from taco_launch.agent import program
from taco_launch.agent.host import processes
from taco_launch.agent.rank import mps
from taco_launch.agent.store.folders import JobFolder
from taco_launch.errors import NOT_EXECUTABLE, SIGNAL_BASE
from taco_launch.launch.env import process_words


def main(folder: JobFolder, numbers: Sequence[str], command: Sequence[str]) -> int:
    """Start the ranks; gives the first code but 0.

    `numbers` are the first rank's, how many there are here and in all, how many share a slot, and the GPUs that they
    share by CUDA's Multi-Process Service, "" without that.
    """
    processes.become_subreaper()
    gpus = numbers[4]
    if not gpus:
        return _ranks(folder, numbers, command, os.environ)
    own = mps.environment(folder, gpus, os.environ)
    why = mps.start(folder, own)
    if why:
        return _say(why)
    code = _ranks(folder, numbers, command, mps.of_ranks(own, os.environ))
    why = mps.stop(own)
    if why:
        _say(why)
    return code


def _say(why: str) -> int:
    sys.stderr.write(f"taco-launch: {why}\n")
    return NOT_EXECUTABLE


def _ranks(folder: JobFolder, numbers: Sequence[str], command: Sequence[str], environ: Mapping[str, str]) -> int:
    first, count, world_size, each = map(int, numbers[:4])
    running: Dict[int, subprocess.Popen[bytes]] = {}
    for local_rank in range(count):
        own = {"RANK": first + local_rank, "LOCAL_RANK": local_rank, "WORLD_SIZE": world_size}
        environment = {**environ, **{name: str(value) for name, value in own.items()}}
        behind = process_words(local_rank, each)
        child = subprocess.Popen((*program.wrapper(folder, "rank"), *command, *behind), env=environment)
        running[child.pid] = child
    code = 0
    while running:
        pid, status = os.wait()
        ended = running.pop(pid, None)  # None: an orphan that came to us
        if ended is not None:
            ended.returncode = 0  # its status was taken by our own wait
            code = code or (SIGNAL_BASE + os.WTERMSIG(status) if os.WIFSIGNALED(status) else os.WEXITSTATUS(status))
    return code
