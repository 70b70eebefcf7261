"""Send a signal to the processes of a rank that handle it; others would only be ended by it."""

import contextlib
import os
from typing import Dict, List

from taco_launch.agent.host import processes


def deliver(pid: int, number: int) -> int:
    """Send a signal to a process, or where it does not catch it to those below that do; return to how many.

    So it reaches the program behind a shell, and not the workers that the program has started.
    """
    below: Dict[int, List[int]] = {}
    for entry in processes.descendants(pid):
        below.setdefault(entry.parent, []).append(entry.pid)
    sent, waiting = 0, [pid]
    while waiting:
        each = waiting.pop()
        if not _catches(each, number):
            waiting += below.get(each, [])
            continue
        with contextlib.suppress(ProcessLookupError, PermissionError):  # it has ended, or sudo runs it
            os.kill(each, number)
            sent += 1
    return sent


def _catches(pid: int, number: int) -> bool:
    """Return whether a process has a handler for a signal (proc(5), SigCgt)."""
    try:
        with open(f"/proc/{pid}/status", "rb") as file:
            mask = next(int(line.split()[1], 16) for line in file if line.startswith(b"SigCgt:"))
    except (OSError, StopIteration, ValueError, IndexError):
        return False
    return bool(mask >> (number - 1) & 1)
