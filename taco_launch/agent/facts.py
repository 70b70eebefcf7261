"""What the agent has to know of its own host before a job is placed."""

import os
import re
import socket
import subprocess

from taco_launch.errors import HostError

# A driver that hangs must not hang the job's start for ever (Azure's and NHC's health checks use 30 s too).
_SMI_SECONDS = 30.0
_NO_DEVICES = 6  # nvidia-smi(1), RETURN VALUE: a query to find an object was unsuccessful


def slots() -> int:
    """Count the places for ranks: the GPUs, else the larger of 2 and the cores this process may use.

    Raises:
        HostError: as `gpus` does.
    """
    return gpus() or max(2, len(os.sched_getaffinity(0)))


def gpus() -> int:
    """Count the GPUs that `nvidia-smi -L` lists: one line `GPU 0: ...` each; 0 without the tool.

    Raises:
        HostError: the tool is there but does not answer, so that nobody knows.
    """
    argv = ["nvidia-smi", "-L"]
    hint = "repair the driver, or say how many ranks the host takes: slots in the inventory, or -H HOST:N"
    try:
        listing = subprocess.run(
            argv, capture_output=True, text=True, errors="replace", timeout=_SMI_SECONDS, check=False
        )
    except FileNotFoundError:
        return 0
    except (OSError, subprocess.TimeoutExpired) as error:
        raise HostError(f"nvidia-smi -L: {error}", hint) from None
    if listing.returncode not in (0, _NO_DEVICES):
        said = (listing.stdout + listing.stderr).strip().splitlines()
        raise HostError(f"nvidia-smi -L: exit {listing.returncode}: {said[0] if said else ''}", hint)
    return len(re.findall(r"^GPU \d+:", listing.stdout, re.MULTILINE))


def free_port() -> int:
    """Give a TCP port that is free now, for the ranks' rendezvous."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.bind(("", 0))
        return int(probe.getsockname()[1])


def boot_id() -> str:
    """Name this boot of the host: process numbers mean nothing beyond it."""
    with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
        return file.read().strip()
