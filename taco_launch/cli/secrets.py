"""Take passwords out of the environment before anything is started that would inherit it."""

import contextlib
import os
from collections.abc import Iterable
from pathlib import Path

# env_start and env_end in /proc/PID/stat, proc(5); the third field follows the program's name.
_START, _END = 50, 51


def take(names: Iterable[str]) -> dict[str, str]:
    """Remove these variables from the environment and return those that were set.

    Every process of the same user can read the environment that a process was started with: it is overwritten there, too.
    """
    found = {name: os.environ.pop(name) for name in names if name in os.environ}
    if found:
        with contextlib.suppress(OSError, ValueError, IndexError):  # no Linux, or no /proc
            _overwrite(found)
    return found


def _overwrite(values: dict[str, str]) -> None:
    fields = Path("/proc/self/stat").read_text("utf-8", "replace").rpartition(")")[2].split()
    start, end = (int(fields[place - 3]) for place in (_START, _END))
    with open("/proc/self/mem", "r+b", buffering=0) as memory:
        memory.seek(start)
        block = b"\0" + memory.read(end - start)
        for name, value in values.items():
            entry = b"\0%s=%s\0" % (os.fsencode(name), os.fsencode(value))
            at = block.find(entry)
            if at >= 0:
                memory.seek(start + at + len(name) + 1)  # block has one byte more than the memory
                memory.write(b"*" * len(os.fsencode(value)))
