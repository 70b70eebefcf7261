"""`agent start`: starts a command once for each rank of this host, as mpirun's daemon does under mpirun.

It stays above the ranks until all have ended: what a rank leaves comes to it, and belongs to the job.
"""

import os
import subprocess
import sys
from typing import Dict, Mapping, NamedTuple, Sequence, Tuple

from taco_launch.agent.host import processes
from taco_launch.agent.processes import agent_program
from taco_launch.agent.store.folders import JobFolder
from taco_launch.core.errors import NOT_EXECUTABLE, SIGNAL_BASE
from taco_launch.core.launch.command_line.env import VISIBLE_GPUS, process_words


class HostRanks(NamedTuple):
    """The ranks of this host: the first one's number, how many ranks are here and in all, how many share a slot."""

    first: int
    here: int
    world_size: int
    processes_per_slot: int


def main(
    folder: JobFolder,
    first: int,
    count: int,
    world_size: int,
    processes_per_slot: int,
    gpus: str,
    command: Sequence[str],
) -> int:
    """Start the ranks and return the first exit code that is not 0.

    `gpus` are those that they share by CUDA's Multi-Process Service, "" without that.
    """
    ranks = HostRanks(first, count, world_size, processes_per_slot)
    processes.become_subreaper()
    if not gpus:
        return _ranks(folder, ranks, command, os.environ)
    own = environment(folder, gpus, os.environ)
    why = start(folder, own)
    if why:
        return _say(why)
    code = _ranks(folder, ranks, command, of_ranks(own, os.environ))
    why = stop(own)
    if why:
        _say(why)
    return code


def _say(why: str) -> int:
    sys.stderr.write(f"taco-launch: {why}\n")
    return NOT_EXECUTABLE


def _ranks(folder: JobFolder, ranks: HostRanks, command: Sequence[str], environ: Mapping[str, str]) -> int:
    running: Dict[int, subprocess.Popen[bytes]] = {}
    for local_rank in range(ranks.here):
        own = {"RANK": ranks.first + local_rank, "LOCAL_RANK": local_rank, "WORLD_SIZE": ranks.world_size}
        environment = {**environ, **{name: str(value) for name, value in own.items()}}
        behind = process_words(local_rank, ranks.processes_per_slot)
        child = subprocess.Popen(
            (*agent_program.wrapper(folder.agent, "rank", folder.path), *command, *behind), env=environment
        )
        running[child.pid] = child
    code = 0
    while running:
        pid, status = os.wait()
        ended = running.pop(pid, None)  # None: an orphan that came to us
        if ended is not None:
            ended.returncode = 0  # its status was taken by our own wait
            code = code or (SIGNAL_BASE + os.WTERMSIG(status) if os.WIFSIGNALED(status) else os.WEXITSTATUS(status))
    return code


# CUDA's Multi-Process Service runs under processes that share GPUs. Its daemon and servers descend from the job's starter and
# have the job's mark: what does not quit is ended with the job. Source: NVIDIA's "Multi-Process Service" guide.
_CONTROL = "nvidia-cuda-mps-control"
_PIPES, _LOGS = "CUDA_MPS_PIPE_DIRECTORY", "CUDA_MPS_LOG_DIRECTORY"
# unix(7): a socket's path has 108 bytes with the NUL; the daemon's longest name in its folder is control_privileged.
_MOST_BYTES = 107 - len("/control_privileged")
_SECONDS = 10.0


def environment(folder: JobFolder, gpus: str, environ: Mapping[str, str]) -> Dict[str, str]:
    """Return the environment of the daemon, which serves these GPUs alone (UUIDs, joined by commas)."""
    own = str(folder.path / "mps")
    return {**environ, _PIPES: own, _LOGS: own, VISIBLE_GPUS: gpus}


def of_ranks(own: Mapping[str, str], environ: Mapping[str, str]) -> Dict[str, str]:
    """Return the environment of what finds that daemon; which GPUs each process sees is told to it by the guard."""
    return {**environ, _PIPES: own[_PIPES]}


def start(folder: JobFolder, own: Mapping[str, str]) -> str:
    """Start the daemon; give "" when it serves, else why not."""
    if len(own[_PIPES].encode()) > _MOST_BYTES:
        return f"--mps: {own[_PIPES]} is too long a path for the sockets of MPS: give the job a shorter name"
    (folder.path / "mps").mkdir(mode=0o700, exist_ok=True)
    return _call((_CONTROL, "-d"), own, "")


def stop(own: Mapping[str, str]) -> str:
    """Have the daemon and its servers quit; give "" when they do, else why not: then they end with the job."""
    return _call((_CONTROL,), own, "quit\n")


def _call(argv: Tuple[str, ...], own: Mapping[str, str], words: str) -> str:
    # What it says may continue coming from the daemon: a file, since a pipe would be open until that ends.
    with open(f"{own[_LOGS]}/said", "a+b") as said:
        begin = said.tell()
        try:
            done = subprocess.run(
                argv, check=False, input=words.encode(), stdout=said, stderr=said, env=own, timeout=_SECONDS
            )
        except FileNotFoundError:
            return f"--mps: the program {_CONTROL} was not found here: it comes with the NVIDIA driver"
        except (OSError, subprocess.TimeoutExpired) as error:
            return f"--mps: {' '.join(argv)}: {error}"
        said.seek(begin)
        told = said.read(4096).decode("utf-8", "replace").strip()
    return f"--mps: {' '.join(argv)} exited with {done.returncode}: {told}" if done.returncode else ""
