"""What comes to the supervisor as a child without being one: processes whose parents, the launcher's above all, have ended."""

import os
from typing import List, Optional, Set, Tuple

from taco_launch.agent import program
from taco_launch.agent.host import processes
from taco_launch.agent.supervisor.guard_pool import GuardPool


class Orphans:
    """The children of the supervisor that are the job's."""

    def __init__(self, guard_process: program.Process, gang: GuardPool) -> None:
        """Know those that are ours alone: this host's guard, and what leads to the others."""
        self._guard_process = guard_process
        self._gang = gang
        # Those from before the launcher's start: the connections that it may share (shared_ssh.py), in the background.
        self._before: Optional[Set[Tuple[int, int]]] = None

    def launcher_starts(self) -> None:
        """Note that children from now on are the job's."""
        self._before = set(self._children())

    def found(self) -> List[List[int]]:
        """Return those of a launcher that has ended, (pid, start): our children now, and all but our own are the job's."""
        if self._before is None:
            return []
        own = self._own()
        return [[pid, start] for pid, start in self._children() if pid not in own and (pid, start) not in self._before]

    def reap(self, launcher: Optional[int]) -> None:
        """Collect those that have ended, leaving our own children to those who started them; `launcher` is its number."""
        self._guard_process.poll()
        own = [*self._own(), launcher]
        while True:
            try:
                ended = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
            except ChildProcessError:
                return
            if ended is None or ended.si_pid in own:
                return
            os.waitpid(ended.si_pid, 0)

    def _children(self) -> List[Tuple[int, int]]:
        return [(entry.pid, entry.start) for entry in processes.children(os.getpid())]

    def _own(self) -> List[Optional[int]]:
        return [self._guard_process.pid, *(link.pid() for link in self._gang.remote)]
