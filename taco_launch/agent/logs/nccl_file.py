"""The file in which NCCL describes what it sets up for a rank (NCCL_DEBUG_FILE): the rank's guard compares it with the plan.

The rank's wrapper has NCCL write it, copies NCCL's warnings into the rank's log, keeps the file small, and removes it.
"""

import contextlib
import os
from pathlib import Path
from typing import Dict, List

from taco_launch.agent.logs import segments
from taco_launch.agent.store import untrusted

# What NCCL writes at its start is less; a program that creates communicators all the time writes more.
_MOST_BYTES = 4 << 20
_BLOCK_BYTES = 512  # of st_blocks: stat(2)
_WARNING = b" NCCL WARN "


def variables(stem: Path) -> Dict[str, str]:
    """Return the variables that make NCCL write beside the log with this stem.

    In the name %p is the process, and %% a % (NCCL, `ncclDebugInit`).

    The subsystem NET reports GPUDirect RDMA and GID indices, BOOTSTRAP (from 2.23 on) the interface that NCCL starts with.
    """
    return {
        "NCCL_DEBUG": "INFO",
        "NCCL_DEBUG_SUBSYS": "INIT,BOOTSTRAP,ENV,NET",
        "NCCL_DEBUG_FILE": f"{str(stem).replace('%', '%%')}.nccl.%p",
    }


def files(stem: Path) -> List[Path]:
    """Return the files that processes of the rank have written, one for each process."""
    prefix = f"{stem.name}.nccl."
    try:
        names = sorted(name for name in os.listdir(stem.parent) if name.startswith(prefix))
    except OSError:  # the folder is gone
        return []
    return [stem.parent / name for name in names]


def beginning(path: Path, most: int) -> bytes:
    """Return the first `most` bytes, nothing where the file cannot be read."""
    try:
        with untrusted.opened(path) as file:
            return os.pread(file, most, 0)
    except OSError:
        return b""


class NcclFiles:
    """The files of one rank while it runs."""

    # How often warnings are copied.
    SECONDS = 5.0

    def __init__(self, stem: Path, log: segments.Writer) -> None:
        """Know of no file yet; warnings go to `log`."""
        self._stem, self._log = stem, log
        self._read: Dict[Path, int] = {}

    def copy_warnings(self) -> None:
        """Copy the warnings that are new into the log, and empty a file that has grown too large."""
        for path in files(self._stem):
            with contextlib.suppress(OSError), untrusted.opened(path) as file:
                self._copy(path, file)
                if os.fstat(file).st_blocks * _BLOCK_BYTES > _MOST_BYTES:
                    os.truncate(path, 0)  # NCCL continues where it was: what lies before takes no room on the disk

    def remove(self) -> None:
        """Copy what is left, and remove the files."""
        self.copy_warnings()
        for path in files(self._stem):
            with contextlib.suppress(OSError):
                path.unlink()

    def _copy(self, path: Path, file: int) -> None:
        while True:
            begin = self._read.get(path, 0)
            piece = os.pread(file, segments.CHUNK, begin)
            whole = piece[: piece.rfind(b"\n") + 1]
            if not whole:
                return
            self._read[path] = begin + len(whole)
            for line in whole.splitlines(keepends=True):
                if _WARNING in line:
                    self._log.write(line)
