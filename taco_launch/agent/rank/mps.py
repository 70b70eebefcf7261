"""CUDA's Multi-Process Service of one job on this host, under processes that share GPUs.

Its daemon and servers descend from the job's starter and have the job's mark: what does not quit is ended with the job.
The commands and variables are those of NVIDIA's "Multi-Process Service" guide.
"""

import subprocess
from typing import Dict, Mapping, Tuple

from taco_launch.agent.store.folders import JobFolder
from taco_launch.launch.env import VISIBLE_GPUS

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
