"""The peak memory of every process that a command starts, also of those that it leaves in the background.

What belongs to the command carries a mark of ours in its environment; what a process is for, its command line tells.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Mapping
from pathlib import Path, PurePath
from types import TracebackType

WRITER = "writer"
_EVERY_SECONDS = 0.02
# What `agent OP` is called in a table.
_AGENTS = {"run": "supervisor", "guard": "guard", "rank": "rank wrapper"}


class Watch:
    """Looks at the processes that carry `mark` (NAME=VALUE) while its block runs.

    A peak is the kernel's own (VmHWM), so that only what a process takes in its last moment, after the last look at it,
    may be missed.
    """

    def __init__(self, mark: str) -> None:
        """Watch for `mark`."""
        self.peaks: dict[str, int] = {}
        self._mark = os.fsencode(mark)
        self._present = frozenset(_pids())
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._look, daemon=True)

    def __enter__(self) -> Mapping[str, int]:
        """Begin; give the peaks in bytes by what the process is: of several alike the largest."""
        self._thread.start()
        return self.peaks

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """End."""
        self._done.set()
        self._thread.join()

    def _look(self) -> None:
        while not self._done.wait(_EVERY_SECONDS):
            for pid in frozenset(_pids()) - self._present:
                folder = Path("/proc", pid)
                try:
                    if self._mark not in (folder / "environ").read_bytes().split(b"\0"):
                        continue
                    argv = (folder / "cmdline").read_bytes().split(b"\0")
                    peak = _peak((folder / "status").read_text(encoding="ascii", errors="replace"))
                except OSError:  # it has ended
                    continue
                if peak and argv[0]:  # no argument: it is just being executed
                    role = _role(argv)
                    self.peaks[role] = max(self.peaks.get(role, 0), peak)


def _role(argv: list[bytes]) -> str:
    """Return what a process is by how its command line starts: the rest may name the others."""
    words = [PurePath(os.fsdecode(word)).name for word in argv[:5]]
    if len(words) == 5 and words[3].endswith(".pyz"):
        return _AGENTS.get(words[4], f"agent {words[4]}")
    if "taco-launch" in words[:2]:
        return "controller"
    return WRITER if "-c" in words[:2] else words[0]


def _pids() -> list[str]:
    return [name for name in os.listdir("/proc") if name.isdigit()]


def _peak(status: str) -> int:
    """Return VmHWM (proc(5), in kB) in bytes; 0 for a process that has given its memory back."""
    for line in status.splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) * 1024
    return 0
