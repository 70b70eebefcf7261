"""What the agent has to know of its own host before a job is placed."""

import os
import re
import socket
import subprocess

# A driver that hangs must not hang the job's start for ever (Azure's and NHC's health checks use 30 s too).
_SMI_SECONDS = 30.0


def slots() -> int:
    """Count the places for ranks: the GPUs, else the larger of 2 and the cores this process may use."""
    return gpus() or max(2, len(os.sched_getaffinity(0)))


def gpus() -> int:
    """Count the GPUs that `nvidia-smi -L` lists: one line `GPU 0: ...` each; 0 without the tool or a driver."""
    try:
        listing = subprocess.run(
            ["nvidia-smi", "-L"],  # noqa: S607 - wherever the driver put it
            capture_output=True,
            text=True,
            errors="replace",
            timeout=_SMI_SECONDS,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return 0
    return len(re.findall(r"^GPU \d+:", listing.stdout, re.MULTILINE)) if listing.returncode == 0 else 0


def free_port() -> int:
    """Give a TCP port that is free now, for the ranks' rendezvous."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.bind(("", 0))
        return int(probe.getsockname()[1])


def boot_id() -> str:
    """Name this boot of the host: process numbers mean nothing beyond it."""
    with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
        return file.read().strip()
