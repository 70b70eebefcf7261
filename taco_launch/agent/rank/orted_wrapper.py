"""`agent daemon`, `agent proxy`: wraps the daemon of Open MPI, or of Hydra, on another host than the launcher's.

So whatever its ranks leave can be found. Open MPI's goes into the background by itself, and what it starts may leave it. All
of that comes to a process that stays above it until nothing is left below, and is registered with the guard, which ends it
and all below it. Hydra's stays; where it fails, what is left of it would keep its connection open, so that is ended at once.
"""

import os
import sys
from typing import Sequence

from taco_launch.agent.host import processes
from taco_launch.agent.store.folders import JobFolder
from taco_launch.core.errors import FAILED, NOT_EXECUTABLE, NOT_FOUND, SIGNAL_BASE
from taco_launch.core.protocol.connection import JsonConnection
from taco_launch.core.protocol.rank_messages import Daemon


def run_daemon(folder: JobFolder, command: Sequence[str]) -> int:
    """Run Open MPI's daemon; return as `_run` does."""
    return _run(folder, command, is_proxy=False)


def run_proxy(folder: JobFolder, command: Sequence[str]) -> int:
    """Run Hydra's proxy; return as `_run` does."""
    return _run(folder, command, is_proxy=True)


def _run(folder: JobFolder, command: Sequence[str], *, is_proxy: bool) -> int:
    """Run what the launcher starts on this host and return the exit code of the process that it started.

    That may end long before the daemon does.
    """
    told, tell = os.pipe()
    if os.fork() == 0:
        os.close(told)
        _stay(folder, command, tell, is_proxy=is_proxy)
    os.close(tell)
    code = os.read(told, 1)
    return code[0] if code else FAILED


def _stay(folder: JobFolder, command: Sequence[str], tell: int, *, is_proxy: bool) -> None:
    """Be above the daemon and all that comes of it; never returns."""
    try:
        os.setsid()
        processes.become_subreaper()
        own = processes.identify(os.getpid())
        guard = JsonConnection(folder.connect())
        guard.send(Daemon(root=[own.pid, own.start] if own is not None else []))
        pid = os.fork()
        if pid == 0:
            os.close(tell)
            _become(command)
        _reap(pid, tell, is_proxy=is_proxy)
    except OSError as error:
        sys.stderr.write(f"taco-launch: no guard answers in {folder.path}: {error.strerror}\n")
    finally:
        os._exit(FAILED)


def _become(command: Sequence[str]) -> None:
    try:
        os.execvp(command[0], list(command))  # noqa: S606 - no shell is what is wanted
    except OSError as error:
        sys.stderr.write(f"{command[0]}: {error.strerror}\n")
        sys.stderr.flush()
        os._exit(NOT_FOUND if isinstance(error, FileNotFoundError) else NOT_EXECUTABLE)


def _reap(first: int, tell: int, *, is_proxy: bool) -> None:
    """Collect all that ends, until there is nothing any more; tell how the first ended, and let go of its output."""
    while True:
        try:
            pid, status = os.wait()
        except ChildProcessError:
            return
        if pid == first:
            code = SIGNAL_BASE + os.WTERMSIG(status) if os.WIFSIGNALED(status) else os.WEXITSTATUS(status)
            if is_proxy and code:
                processes.end("", [(entry.pid, entry.start) for entry in processes.children(os.getpid())])
            os.write(tell, bytes([code]))
            nothing = os.open(os.devnull, os.O_RDWR)
            for descriptor in (tell, 0, 1, 2):  # ssh's: it stays for as long as somebody has them
                os.dup2(nothing, descriptor)
