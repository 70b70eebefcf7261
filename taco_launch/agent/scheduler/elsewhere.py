"""The supervisor of a job that runs in another container of this host: `agent begin` there, by ssh, starts it."""

import os
import subprocess
import time
from typing import Optional

from taco_launch.agent.host import containers
from taco_launch.agent.processes import agent_program
from taco_launch.agent.ssh import commands as ssh
from taco_launch.agent.store import records, untrusted
from taco_launch.agent.store.folders import JobFolder
from taco_launch.agent.upkeep import scheduler_wakeup
from taco_launch.core.errors import OK, TacoLaunchError

_POLL_SECONDS = 0.05


class ElsewhereStart:
    """The connection to the other container, which lasts until the job is placed there or has none to look after it."""

    def __init__(self, variant: str, agent: str, folder: JobFolder) -> None:
        """Start it; the caller does not hold the job's lock.

        Raises:
            HostError: there is no way to that container.
            OSError: there is no ssh.
        """
        self._errors = ssh.ErrorOutput()
        self._process = subprocess.Popen(
            containers.argv(variant, agent, "begin", str(folder.path)),
            cwd="/",
            env=scheduler_wakeup.environment(),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=self._errors.file,
            start_new_session=True,
        )
        self.pid = self._process.pid
        self._errors.limit(self.pid)

    def poll(self) -> Optional[int]:
        """Return its exit code, None while it lasts."""
        return self._process.poll()

    def problem(self) -> str:
        """Return why it failed, "" where it did not."""
        code = self._process.poll()
        return (self._errors.last_line() or f"ssh: exit {code}") if code else ""


def main(folder: JobFolder, agent: str) -> int:
    """Start a job's supervisor in this container, and stay until it has placed the job, or has ended."""
    lock = records.try_lock(folder)
    child: Optional[agent_program.Process] = None
    if lock is not None:
        with open(folder.debug, "ab", opener=untrusted.opener) as debug:
            words = ("run", str(folder.path), str(lock))
            child = agent_program.start(
                agent, *words, stderr=debug, environment=scheduler_wakeup.environment(), keep=(lock,)
            )
        os.close(lock)
    while scheduler_wakeup.is_locked(folder) if child is None else child.poll() is None:
        try:
            if not records.record(folder).state.waits:
                break
        except (TacoLaunchError, OSError):  # somebody has removed it
            break
        time.sleep(_POLL_SECONDS)
    return OK
