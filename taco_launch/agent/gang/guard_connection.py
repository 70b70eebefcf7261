"""The supervisor's way to each guard: to its own host's by the socket in the job's folder, to the others' by ssh.

Orders are kept, and given again when a connection had to be made again; what a guard tells comes again then too. So
whoever reads has to take a message twice as once.
"""

import math
import socket
import subprocess
import time
from pathlib import Path
from typing import Dict, List, Optional, Sequence, Type

from taco_launch.agent.gang.guard_answers import Answers
from taco_launch.agent.logs import agent_log
from taco_launch.agent.ssh import commands as ssh
from taco_launch.agent.store.folders import JobFolder
from taco_launch.core import trace
from taco_launch.core.model.host.hosts import Host
from taco_launch.core.protocol.connection import JsonConnection, StrayLine
from taco_launch.core.protocol.guard_messages import Lease, ReleaseSlots, StreamLogs, Trace
from taco_launch.core.protocol.message import Message
from taco_launch.core.protocol.relay_messages import Attached, NoAgent, NoGuard, Refused

KILLED = "its guard was killed"
LATE = "its guard did not report its host in time"
_RETRY_SECONDS = (0.5, 1.0, 2.0, 4.0)
# A connection is given up for a new one after as many heartbeats without a sign of life.
_SILENT_BEATS = 2.5
# A host that does not answer for so long is told.
_ABSENT_SECONDS = 15.0
# The exit code of a host that could not keep the agent that it was brought.
_NOT_KEPT = 1
# A host that refuses at once (its sshd has too many callers) is asked again at the start of a job; one that is silent not.
_FIRST_TRIES = 3
_SLOW_SECONDS = 5.0
# What ssh prints where the process that has its shared connection does not answer in time, on a head with much to do: the
# host has answered.
_NO_MASTER = "control master"
# Of these orders only the last one holds.
_SLOTS = (Lease, ReleaseSlots)


class GuardConnection:
    """The guard of this host, which runs already."""

    def __init__(self, host: Host, folder: JobFolder) -> None:
        """Note the host and the folder; `step` connects."""
        self.host = host
        self.name = host.name
        self.gone = ""  # why there is no guard any more
        self.boot = ""
        self.answers = Answers()
        self._folder = folder
        self._line: Optional[JsonConnection] = None
        self._orders: List[Message] = []
        self._advanced = 0.0  # when the way to its report got a step further
        self.error = ""  # why the last try to make a connection failed
        self.heard = time.monotonic()
        self._is_absent = False
        # Whether a step has something to do soon: to connect, or to send on what waits.
        self.is_unsettled = True

    @property
    def dialling(self) -> bool:
        """Whether a connection is being made that costs something."""
        return False

    @property
    def what(self) -> str:
        """Name the process that does not answer."""
        return f"the guard of {self.name or 'this host'}"

    @property
    def line(self) -> Optional[JsonConnection]:
        """The connection, None while there is none."""
        return self._line

    def order(self, message: Message) -> None:
        """Send an order that holds over every connection."""
        if isinstance(message, _SLOTS):  # given again, an earlier one would let the slots go for a moment
            self._orders = [earlier for earlier in self._orders if not isinstance(earlier, _SLOTS)]
        self._orders.append(message)
        self.post(message)

    def was_ordered(self, kind: Type[Message]) -> bool:
        """Return whether such an order was given."""
        return any(isinstance(order, kind) for order in self._orders)

    def post(self, message: Message) -> None:
        """Send what only matters over this connection."""
        if self._line is not None:
            self._line.post(message)
            self.is_unsettled = self.is_unsettled or bool(self._line.waiting)

    def step(self) -> None:
        """Make the connection where there is none yet; send on what waits."""
        if self._line is not None:
            self._line.flush()
        elif not self.gone:
            try:
                self._line = JsonConnection(self._folder.connect(), self.name)
            except OSError:
                return
            self._say_all()

    def settle(self) -> None:
        """Note after a step whether the next one has something to do soon."""
        idle = bool(self.gone) if self._line is None else not self._line.waiting
        self.is_unsettled = self.dialling or not idle

    def read(self) -> List[Message]:
        """Return what the guard has told; an answer is kept in `answers` besides."""
        messages = self._line.receive() if self._line is not None else []
        if messages is None:
            self._broken()
            return []
        for message in messages:
            self.answers.note(message)
            # The guard's own words: one that hangs can be connected to.
            if not isinstance(message, (StrayLine, Attached)):
                self.heard = time.monotonic()
            if isinstance(message, Trace):
                agent_log.relay(self.name, message)
        return messages

    def is_late(self, ordered: float, seconds: float) -> bool:
        """Return whether it has not reported its host `seconds` after it was ordered to, or was dialled, or was connected."""
        return self.answers.facts is None and time.monotonic() - max(ordered, self._advanced) > seconds

    def give_up(self) -> None:
        """Count the guard as gone, because it is late."""
        self.close()
        self.gone = LATE

    def extend_silence_limit(self, seconds: float) -> None:
        """Add the seconds in which this process did not listen to what the guard may be silent for."""
        self.heard += seconds

    def lost_after(self, seconds: float, looked: float) -> None:
        """Count the guard as lost if it was silent for more than `seconds` when it was last read, at `looked`."""
        if not self.gone and looked - self.heard > seconds:
            self.close()
            self.gone = f"no heartbeat for {seconds:g} s{f' ({self.error})' if self.error else ''}"
            trace.decision("host %s is lost: %s", self.name, self.gone)

    def absence(self, limit: float, looked: float) -> str:
        """Return, once, that the guard does not answer, or that it does again; else ""."""
        quiet = looked - self.heard
        if self.gone or (quiet > _ABSENT_SECONDS) == self._is_absent:
            return ""
        self._is_absent = quiet > _ABSENT_SECONDS
        if not self._is_absent:
            return f"{self.what} answers again"
        why = f" ({self.error})" if self.error else ""
        return f"{self.what} has not answered for {quiet:.0f} s{why}; it counts as lost after {limit:g} s"

    def close(self) -> None:
        """Let the connection go."""
        self.is_unsettled = True
        if self._line is not None:
            self._line.close()
            self._line = None

    def _say_all(self) -> None:
        for message in self._orders:
            self.post(message)

    def _broken(self) -> None:
        self.close()
        self.gone = KILLED
        trace.decision(
            "the guard of %s is gone%s", self.name, "" if self.answers.ended is None else ", after its last message"
        )


class RemoteGuardConnection(GuardConnection):
    """The guard of another host: started by the first connection, kept as long as the host is not silent for too long."""

    def __init__(
        self, host: Host, folder: JobFolder, agent: str, start: List[str], beat: float, options: Sequence[str] = ()
    ) -> None:
        """Name the way.

        `start` is what `guard-start` is given, with these options of ssh; `beat` the seconds between two heartbeats.
        """
        super().__init__(host, folder)
        self._agent = agent
        self._start, self._options = start, options
        self._silence = _SILENT_BEATS * beat
        self._process: Optional[subprocess.Popen[bytes]] = None
        self._errors: Optional[ssh.ErrorOutput] = None
        self._joined = False
        self._was_joined = False
        self._tries = 0
        self._feed: Optional[ssh.AgentFeed] = None
        self._was_fed = False  # over this connection
        self._at = 0.0  # of the next try or the last one, then of the connection
        self._advanced = math.inf  # no host is late before it is its turn to be dialled
        self._sign = math.inf  # when anything of the host was last heard, or it was dialled for the first time
        self.offsets: Dict[int, int] = {}

    @property
    def what(self) -> str:
        """The host, which may be gone with its guard."""
        return self.name

    @property
    def dialling(self) -> bool:
        """Whether a connection is being made, in which the agent may be brought there."""
        return self._process is not None and not self._joined

    def post(self, message: Message) -> None:
        """Send a message if the guard is connected; until then it has no reader."""
        if self._joined:
            super().post(message)

    def step(self) -> None:
        """Make the connection, or make it again; send on what waits."""
        now = time.monotonic()
        if self._line is not None:
            self._line.flush()
            if self._was_joined and now - max(self.heard, self._at) > self._silence:
                self._broken()
            if self._feed is not None:
                self._look_at_feed(self._feed)
        elif not self.gone and now >= self._at:
            self._dial(now)

    def read(self) -> List[Message]:
        """Return what the guard has told."""
        messages = super().read()
        if messages:
            self._sign = time.monotonic()
        for message in messages:
            if isinstance(message, Attached):
                trace.decision("connected to the guard of %s", self.name)
                # A busy host takes long to be connected to: what it may be silent for begins only now.
                self._at = time.monotonic()
                self._advanced = self._advanced if self._was_joined else self._at
                self._joined = self._was_joined = True
                self._tries, self.error = 0, ""
                self._say_all()
                self.post(StreamLogs(offsets=self.offsets))
            elif isinstance(message, NoAgent):
                self._bring_agent()
            elif isinstance(message, NoGuard):
                self._no_guard(message)
            elif isinstance(message, Refused):
                self.gone = message.reason
                trace.decision("host %s refuses: %s", self.name, self.gone)
        return messages

    def silence(self) -> float:
        """Return for how many seconds nothing of the host was heard; negative before it is dialled."""
        return time.monotonic() - self._sign

    def extend_silence_limit(self, seconds: float) -> None:
        """Add the seconds in which this process did not listen to what the host may be silent for."""
        super().extend_silence_limit(seconds)
        self._sign += seconds

    def cut_off(self, problem: str) -> None:
        """Count the guard as gone, because its host cannot be connected to any more."""
        quiet = self.silence()
        self.close()
        self.gone = f"cut off while the job started: nothing heard for {quiet:.0f} s; {problem}"
        trace.decision("host %s is lost: %s", self.name, self.gone)

    def give_up(self) -> None:
        """Count the guard as gone, because it is late or cannot be reached in time."""
        super().give_up()
        self.gone = self.error or self.gone

    def close(self) -> None:
        """Let the connection go, and end its ssh."""
        super().close()
        self._joined = False
        if self._feed is not None:
            self._feed.close()
            self._feed = None
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def pids(self) -> List[int]:
        """Return the numbers of the processes that make the connection."""
        return [process.pid for process in (self._process, self._feed) if process is not None]

    def _dial(self, now: float) -> None:
        self._at = now
        if not self._was_joined:
            self._advanced = self._sign = now
        op = "attach" if self._was_joined else "guard-start"
        trace.decision("connecting to %s by ssh: %s", self.name, op)
        ours, theirs = socket.socketpair()
        self._errors = ssh.ErrorOutput()
        words = (op, str(self._folder.path), *self._start)
        options = () if self._was_joined else self._options
        self._was_fed = False
        try:
            self._process = subprocess.Popen(
                ssh.argv(self.name, self._agent, *words, options=options, brings=not self._was_joined),
                stdin=theirs.fileno(),
                stdout=theirs.fileno(),
                stderr=self._errors.file,
                start_new_session=True,
            )
        except OSError as error:
            ours.close()
            self.gone = f"{error.filename or 'ssh'}: {error.strerror}"
            return
        finally:
            theirs.close()
        self._errors.limit(self._process.pid)
        self._line = JsonConnection(ours, self.name)

    def _broken(self) -> None:
        """Look why the connection ended, and plan the next."""
        process, errors = self._process, self._errors
        code = None
        if process is not None:
            try:
                # Only of the first connection the code matters. Later ssh may hang, and all other hosts would wait with us.
                code = process.wait(0.0 if self._was_joined else 1.0)
            except subprocess.TimeoutExpired:
                code = None
        said = errors.last_line() if errors is not None else ""
        if not self._joined:
            unsaid = "" if self._was_joined else "the connection broke"
            self.error = said or (f"ssh: exit {code}" if code is not None else unsaid)
        self.close()
        unknown = "no reason is known" if self.answers.ended is None else "it had sent its last message"
        trace.decision("the connection to %s ended: %s", self.name, self.gone or self.error or said or unknown)
        if self.gone:
            return
        self._tries += 1
        slow = time.monotonic() - self._at > _SLOW_SECONDS
        self._at = time.monotonic() + _RETRY_SECONDS[min(self._tries, len(_RETRY_SECONDS)) - 1]
        if self._was_joined:
            return
        if code == _NOT_KEPT and self._was_fed:
            self._not_brought(self.error)
        elif code == ssh.NOT_CONNECTED and _NO_MASTER in said and self._options:
            self._options = ()  # a connection of its own, shared with nothing
        elif code != ssh.NOT_CONNECTED or slow or self._tries >= _FIRST_TRIES:
            self.gone = self.error

    def _bring_agent(self) -> None:
        if self._line is None or self._was_fed or self._was_joined:
            return
        self._was_fed = True
        self._advanced = math.inf  # bringing the agent has a limit of its own
        try:
            self._feed = ssh.AgentFeed(self._agent, self._line.sock)
        except OSError as error:
            self._not_brought(str(error))

    def _look_at_feed(self, feed: ssh.AgentFeed) -> None:
        problem = feed.problem()
        if problem:
            self._not_brought(problem)
            self.close()
        elif problem is not None:
            self._feed = None
            self._advanced = time.monotonic()

    def _not_brought(self, why: str) -> None:
        self.gone = f"the agent cannot be copied to {Path(ssh.brought(self._agent)).parent}: {why}"

    def _no_guard(self, message: NoGuard) -> None:
        if not self._was_joined:
            self.gone = f"its guard did not start: see {message.debug} there"
        elif self.boot and message.boot != self.boot:
            self.gone = "the host or its container restarted"
        else:
            self.gone = KILLED
        trace.decision("host %s is lost: %s", self.name, self.gone)
