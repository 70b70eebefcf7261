"""Starting a job's supervisor: in this container, or by ssh in another one of this host that the job runs in."""

import os
import socket
import subprocess
import time
from typing import TYPE_CHECKING, Optional, Tuple, Union

from taco_launch.agent.host import containers
from taco_launch.agent.processes import agent_program, forked
from taco_launch.agent.scheduler.pending import PendingJob
from taco_launch.agent.store import untrusted
from taco_launch.agent.store.folders import JobFolder
from taco_launch.agent.upkeep import scheduler_wakeup

if TYPE_CHECKING:
    from taco_launch.agent.scheduler.elsewhere import ElsewhereStart

_HERE = (subprocess.Popen, forked.ForkedChild)
_LOCK_SECONDS, _POLL_SECONDS = 15.0, 0.01
Process = Union[agent_program.Process, "ElsewhereStart"]


def is_elsewhere(entry: PendingJob) -> bool:
    """Return whether a job runs in another container than this process."""
    return entry.asked is not None and entry.asked.variant != containers.here()


def start(entry: PendingJob, folder: JobFolder, lock: int) -> Process:
    """Start a job's supervisor, which gets the job's lock; here it is let go.

    Raises:
        OSError: it cannot be started.
        HostError: nothing leads to the job's container.
    """
    try:
        agent = os.path.realpath(folder.agent)  # a job keeps the agent that it was submitted with
        if not is_elsewhere(entry) or entry.asked is None:
            with open(folder.debug, "ab", opener=untrusted.opener) as debug:
                words = ("run", str(folder.path), str(lock))
                return agent_program.start(
                    agent, *words, stderr=debug, environment=scheduler_wakeup.environment(), keep=(lock,)
                )
    finally:
        os.close(lock)
    from taco_launch.agent.scheduler.elsewhere import ElsewhereStart  # noqa: PLC0415 - most jobs run in this container

    return ElsewhereStart(entry.asked.variant, agent, folder)


def await_lock(entry: PendingJob, folder: JobFolder) -> None:
    """Wait until the supervisor of a job in another container has the job's lock, or there is none to wait for."""
    until = time.monotonic() + _LOCK_SECONDS
    while (
        entry.process is not None
        and not isinstance(entry.process, _HERE)
        and entry.process.poll() is None
        and time.monotonic() < until
    ):
        if scheduler_wakeup.is_locked(folder):
            return
        time.sleep(_POLL_SECONDS)


def unreachable(process: Optional[Process]) -> Tuple[Tuple[str, str], ...]:
    """Return why a job goes on waiting whose container on this host does not answer, as JobRecord.waiting has it.

    After a boot it may come soon; of one that was removed only set-up makes another.
    """
    problem = process.problem() if process is not None and not isinstance(process, _HERE) else ""
    if not problem:
        return ()
    return ((socket.gethostname(), f"its container does not answer: {problem}; to recreate it, run taco-launch setup"),)
