"""Watches ranks that write nothing: the counters of their processes and, if these do not change either, their stacks.

Stacks stop a rank for a moment, so they are only read when all else has stood still for half of the time after which a hang is
told.
"""

import contextlib
import os
import signal
import subprocess
from dataclasses import replace
from typing import Dict, List, Mapping, Optional

from taco_launch.agent.counters import process_trees
from taco_launch.agent.counters.process_trees import Key
from taco_launch.agent.counters.rank_sample import infiniband_bytes, rank_sample
from taco_launch.agent.processes import agent_program
from taco_launch.agent.store.folders import JobFolder
from taco_launch.core.model.run.rank_samples import RankSample, RankStack
from taco_launch.core.model.stalls import RankLook
from taco_launch.core.protocol.framing import LINE_BYTES, parsed
from taco_launch.core.protocol.stack_messages import HostStacks
from taco_launch.core.stalls.quiet import LEAST_STACKS, QuietHost

# On a machine that has much to do, stacks may not have been read often enough when the time is over.
_MOST_WAIT_SECONDS = 15.0


class QuietRanks:
    """Keeps what is known of the ranks of this host since one of them last made progress."""

    def __init__(self, job: JobFolder, after: float) -> None:
        """Know nothing yet; a hang is told `after` seconds."""
        self._after = after
        self._host = QuietHost(after)
        self._reading = StackReading(job)
        self._read: List[float] = []  # after how many seconds without progress
        self._taken = 0
        self._members: Dict[int, List[Key]] = {}
        self._changes: Dict[int, int] = {}

    @property
    def silent(self) -> float:
        """Return for how many seconds no rank has made progress."""
        return self._host.silent

    @property
    def reads(self) -> bool:
        """Return whether stacks are being read."""
        return self._reading.runs

    def look(self, now: float, roots: Mapping[int, Key], output: Mapping[int, int]) -> float:
        """Look at the processes of the ranks, of which each has written so many bytes; return `silent`."""
        found = process_trees.trees(roots)
        for rank, members in found.items():
            if members != self._members.get(rank, members):
                self._changes[rank] = self._changes.get(rank, 0) + 1
        self._members = found
        network = infiniband_bytes()
        self._host.add(now, {rank: self._look(rank, now, output.get(rank), network) for rank in found})
        if not self.silent:
            self._read.clear()
            self._taken = 0
        elif self._is_due():
            self._read.append(self.silent)
            self.start_reading()
        return self.silent

    @property
    def is_known(self) -> bool:
        """Return whether the stacks were read often enough to see whether they move, or cannot be read in time."""
        return self._taken >= LEAST_STACKS or self.silent >= self._after + _MOST_WAIT_SECONDS

    def start_reading(self) -> None:
        """Read the stacks, unless they are being read."""
        if not self._reading.runs:
            self._reading.start()

    def take_stacks(self) -> Optional[Dict[int, RankStack]]:
        """Return what a reading has found, once it has ended."""
        found = self._reading.take()
        if found is not None:
            self._taken += 1
            self._host.add_stacks({rank: told.stack for rank, told in found.items() if told.stack is not None})
        return found

    def seen(self, rank: int, silent: float, last_line: str) -> RankLook:
        """Return what the processes of a rank are seen doing now."""
        shown = process_trees.most_telling(process_trees.of_rank(self._members.get(rank, [])))
        if shown is None:
            return RankLook(rank, silent=silent, last_line=last_line)
        name = process_trees.word(shown.pid, "comm")
        return RankLook(rank, shown.pid, name, shown.state, process_trees.where(shown.pid), silent, last_line)

    def standing(self, look: RankLook) -> RankLook:
        """Add what is known of a rank's stack, CPU use and traffic."""
        return self._host.standing(look)

    def with_stack(self, look: RankLook, told: RankStack) -> RankLook:
        """Add what a single reading has found."""
        at = told.look
        return replace(
            look,
            pid=at.pid,
            program=at.program,
            state=at.state,
            where=at.where,
            does=at.does,
            waits=at.waits,
            gpu=at.gpu,
        )

    def close(self) -> None:
        """End a reading of stacks."""
        self._reading.close()

    def _look(self, rank: int, now: float, output: Optional[int], network: Optional[int]) -> RankSample:
        found = process_trees.of_rank(self._members[rank])
        return rank_sample(found, now, output=output, network=network, changes=self._changes.get(rank, 0))

    def _is_due(self) -> bool:
        """Return whether stacks are to be read now: in the second half of the time, at least as often as is needed."""
        since = self.silent - self._read[-1] if self._read else self.silent
        return self.silent >= self._after / 2 and since >= min(self._after / (2 * LEAST_STACKS), self.silent)


class StackReading:
    """The process while it runs; what it prints goes to memory, since nothing reads it before its end."""

    def __init__(self, folder: JobFolder) -> None:
        """Start nothing."""
        self._folder = folder
        self._process: Optional[subprocess.Popen[bytes]] = None
        self._output = -1

    @property
    def runs(self) -> bool:
        """Return whether one was started whose result was not taken yet."""
        return self._process is not None

    def start(self) -> None:
        """Start one; without memory or memfd_create(2) no stack is read."""
        try:
            self._output = os.memfd_create("stacks")
        except (OSError, AttributeError):  # AttributeError: a libc without it
            return
        try:
            self._process = subprocess.Popen(
                agent_program.argv(str(self._folder.agent), "rank-stacks", str(self._folder.path)),
                stdin=subprocess.DEVNULL,
                stdout=self._output,
                stderr=subprocess.DEVNULL,
                cwd="/",
                start_new_session=True,
            )
        except OSError:
            os.close(self._output)

    def take(self) -> Optional[Dict[int, RankStack]]:
        """Return what each rank does once the process has ended; None before."""
        if self._process is None or self._process.poll() is None:
            return None
        self._process = None
        with os.fdopen(self._output, "rb") as file:
            file.seek(0)
            line = parsed(file.read(LINE_BYTES).rstrip())
        try:
            return {told.look.rank: told for told in HostStacks.from_wire(line or {}).ranks}
        except ValueError:  # it was killed
            return {}

    def close(self) -> None:
        """End it."""
        if self._process is not None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()
            self._process = None
            os.close(self._output)
