"""The lock of labs: on one machine, commands that change labs wait for one another."""

import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from taco_launch.agent.host import file_locks
from taco_launch.agent.store import untrusted
from taco_launch.core.errors import TacoLaunchError
from taco_launch.lab.docker.reporter import Reporter

_LOCKED = "/run"
_MOST_SECONDS, _PAUSE_SECONDS = 1800.0, 0.2


@contextmanager
def one_at_a_time(talk: Reporter) -> Iterator[None]:
    """Let one command at a time change labs on this machine, of any user: labs share the engine, images and networks.

    The lock is on a folder that every user can open: no file of it is left, and none can be in another user's way. As any
    user can keep it, the wait ends.

    Raises:
        TacoLaunchError: the lock is still held after half an hour; names its holder.
    """
    handle = os.open(_LOCKED, os.O_RDONLY | os.O_DIRECTORY)
    deadline, told = time.monotonic() + _MOST_SECONDS, False
    try:
        while not _locked(handle):
            if time.monotonic() > deadline:
                raise TacoLaunchError(
                    f"{_holder(handle)} has held the lock for all labs, on {_LOCKED}, for {_MOST_SECONDS // 60:g} min",
                    hint="if that process is not a running `taco-launch lab`, end it and try again",
                )
            if not told:
                talk.say(f"another `taco-launch lab` is running ({_holder(handle)}): waiting for it")
                told = True
            time.sleep(_PAUSE_SECONDS)
        yield
    finally:
        os.close(handle)


def _locked(handle: int) -> bool:
    with suppress(BlockingIOError):
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return True
    return False


def _holder(handle: int) -> str:
    """Return which process holds the lock of labs, and whose it is, as far as that can be seen."""
    with suppress(OSError):
        for pid in file_locks.read().takers(os.fstat(handle)):
            return f"process {pid} of {untrusted.user_name(Path(f'/proc/{pid}').stat().st_uid)}"
    return "another process"
