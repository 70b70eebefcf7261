"""What the scheduler knows of the slots of hosts: `agent watch` on each that a job waits for, on others by ssh."""

import contextlib
import os
import subprocess
import time
from typing import AbstractSet, Dict, Iterable, List, Mapping, NamedTuple, Optional

from taco_launch.agent.host import occupancy
from taco_launch.agent.processes import agent_program
from taco_launch.agent.ssh import commands as ssh
from taco_launch.agent.upkeep import scheduler_wakeup
from taco_launch.core.lifecycle import slot_fit
from taco_launch.core.model.slots import Occupancy
from taco_launch.core.placement.gpu_constraints import models_of
from taco_launch.core.protocol.calls.hosts import SlotsReply
from taco_launch.core.protocol.framing import LINE_BYTES

HERE = ""  # this host, whatever jobs call it
# How long after it ended a watch is started again, doubled up to the most.
_RETRY_SECONDS = (1.0, 60.0)
# A host that says nothing for so long is taken for one that does not answer: the probe of its GPUs takes at most 30.
_FIRST_WORDS_SECONDS = 40.0


class SlotQuery(NamedTuple):
    """What to watch: a host, how many slots it has (Host.size), and whether they may be GPUs (Host.gpus)."""

    host: str
    size: str
    gpus: str


class SlotWatchers:
    """The watches that run."""

    def __init__(self, agent: str) -> None:
        """Watch nothing yet."""
        self._agent = agent
        self._watches: Dict[SlotQuery, _Watch] = {}

    def want(self, queries: AbstractSet[SlotQuery], now: float) -> None:
        """Watch this and no more; start again what has ended."""
        for query in self._watches.keys() - queries:
            self._watches.pop(query).close()
        for query in queries:
            if query not in self._watches:
                self._watches[query] = _Watch(query, self._agent)
            self._watches[query].step(now)

    def descriptors(self) -> List[int]:
        """Return what can be read when there is something new."""
        return [watch.descriptor for watch in self._watches.values() if watch.descriptor >= 0]

    def read(self, ready: Iterable[int]) -> None:
        """Take in what has come."""
        for watch in self._watches.values():
            if watch.descriptor in ready:
                watch.read()

    def nudge(self) -> None:
        """Have every host looked at now: slots have been let go."""
        for watch in self._watches.values():
            watch.nudge()

    def occupancies(self) -> Dict[SlotQuery, Occupancy]:
        """Return who has the slots, as far as that is known."""
        return {query: watch.occupancy for query, watch in self._watches.items() if watch.occupancy is not None}

    def down(self) -> Dict[str, str]:
        """Name the hosts that do not answer, and say why."""
        return {query.host: watch.problem for query, watch in self._watches.items() if watch.problem}

    def close(self) -> None:
        """Watch nothing any more."""
        self.want(frozenset(), 0.0)


def capacities(told: Mapping[SlotQuery, Occupancy]) -> Dict[str, slot_fit.HostCapacity]:
    """Return the slots of hosts; where jobs are not of one mind how many a host has, the most."""
    by_host: Dict[str, slot_fit.HostCapacity] = {}
    for query, found in told.items():
        if query.host not in by_host or len(found.slots) >= len(by_host[query.host].holders):
            by_host[query.host] = _capacity(found)
    return by_host


def _capacity(found: Occupancy) -> slot_fit.HostCapacity:
    """Return the holder of each slot; whoever is not ours may go at any time, and is one for each slot."""
    holders = tuple(
        slot.holder.id or f"?{number}" if slot.holder is not None else f"?{number}" if slot.foreign else ""
        for number, slot in enumerate(found.slots)
    )
    return slot_fit.HostCapacity(holders, models_of(found))


class _Watch:
    def __init__(self, query: SlotQuery, agent: str) -> None:
        self.occupancy: Optional[Occupancy] = None
        self.problem = ""
        self._query, self._agent = query, agent
        self._put: Optional[ssh.AgentUpload] = None
        self._may_put = query.host != HERE
        self._process: Optional[subprocess.Popen[bytes]] = None
        self._errors: Optional[ssh.ErrorOutput] = None
        self._rest = b""
        self._since = 0.0
        self._again_at = 0.0
        self._pause = _RETRY_SECONDS[0]

    @property
    def descriptor(self) -> int:
        """What its words come from, -1 while it does not run."""
        if self._process is None or self._process.stdout is None:
            return -1
        return self._process.stdout.fileno()

    def step(self, now: float) -> None:
        """Begin, or start again, where it is time."""
        if self._put is not None:
            self._look_at_put(self._put)
        if self._put is None and self._process is None and now >= self._again_at:
            self._begin(now)
        elif self._process is not None and self.occupancy is None and now - self._since > _FIRST_WORDS_SECONDS:
            self._ended(f"sent nothing within {_FIRST_WORDS_SECONDS:g} s")

    def read(self) -> None:
        """Take in its words; the last line counts."""
        data = b""
        with contextlib.suppress(BlockingIOError):
            data = os.read(self.descriptor, 1 << 18)
            if not data:
                self._ended("")
                return
        *lines, self._rest = (self._rest + data).split(b"\n")
        if len(self._rest) > LINE_BYTES:
            self._ended(f"sent a line of more than {LINE_BYTES} bytes")
            return
        for line in lines:
            answer = ssh.understood(line, SlotsReply)
            if answer == "":
                continue  # what a login script says
            problem = answer if isinstance(answer, str) else answer.problem
            if problem or isinstance(answer, str):
                self._ended(problem)
                return
            self.occupancy = answer.occupancy
            self.problem, self._pause, self._may_put = "", _RETRY_SECONDS[0], self._query.host != HERE

    def nudge(self) -> None:
        """Have it look at once."""
        if self._process is not None and self._process.stdin is not None:
            with contextlib.suppress(OSError):
                self._process.stdin.write(b"\n")

    def close(self) -> None:
        """End it: a watch ends with its stdin, and ssh by a signal besides."""
        if self._put is not None:
            self._put.close()
            self._put = None
        if self._process is None:
            return
        for stream in (self._process.stdin, self._process.stdout):
            if stream is not None:
                with contextlib.suppress(OSError):
                    stream.close()
        self._process.kill()
        self._process.wait()
        self._process = None

    def _begin(self, now: float) -> None:
        host, size, gpus = self._query
        words = ("watch", *occupancy.arguments(size, gpus))
        argv = agent_program.argv(self._agent, *words) if host == HERE else ssh.argv(host, self._agent, *words)
        self._errors, self._rest, self._since = ssh.ErrorOutput(), b"", now
        try:
            self._process = subprocess.Popen(
                argv,
                cwd="/",
                env=scheduler_wakeup.environment(),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=self._errors.file,
                bufsize=0,
                start_new_session=True,
            )
        except OSError as error:
            self._ended(f"{argv[0]}: {error.strerror}")
            return
        self._errors.limit(self._process.pid)
        for stream in (self._process.stdin, self._process.stdout):
            if stream is not None:
                os.set_blocking(stream.fileno(), False)

    def _ended(self, why: str) -> None:
        """Note why nothing is known any more, and when to try again."""
        said = self._errors.last_line() if self._errors is not None else ""
        self.close()
        self.occupancy = None
        if not why and self._may_put and ssh.lacks_agent(said):  # no job has been on that host
            self._may_put = False
            try:
                self._put = ssh.AgentUpload(self._query.host, self._agent)
            except OSError as error:
                said = f"the agent cannot be copied there: {error}"
            else:
                return
        self._fail(why or said)

    def _look_at_put(self, put: ssh.AgentUpload) -> None:
        problem = put.problem()
        if problem is not None:
            put.close()
            self._put = None
        if problem:
            self._fail(f"the agent cannot be copied to {put.folder}: {problem}")

    def _fail(self, why: str) -> None:
        self.problem = why or "the process that watches its slots ended"
        self._again_at = time.monotonic() + self._pause
        self._pause = min(2 * self._pause, _RETRY_SECONDS[1])
