"""`agent guard`: one per host of a job: knows its ranks, gives them their environment, and ends all that is the job's.

It listens on a Unix socket in the job's folder. The supervisor connects to it and says `supervise`; every rank
connects and says `register`. When the supervisor is gone for good, the guard ends the job on this host.

On the head it can tell whether the supervisor lives (by the job's lock). On another host (`elsewhere`) it cannot: a
connection that ends may be made again, until the supervisor is silent for too long. So what it has told is told again
over every new connection, and what it is told may be told twice.
"""

import contextlib
import os
import selectors
import shutil
import signal
import socket
import time
from typing import Any, Callable, Dict, List, Optional, Sequence, Set, Tuple, Type

from taco_launch.agent.guard.code_fetch import CodeFetch
from taco_launch.agent.guard.host_launcher import HostLauncher
from taco_launch.agent.guard.host_probe import ProbeOnce
from taco_launch.agent.guard.memory_kills import MemoryKills
from taco_launch.agent.guard.observer import ProgressWatcher
from taco_launch.agent.guard.slot_allocator import JobSlots
from taco_launch.agent.guard.usage_watch import UsageWatcher
from taco_launch.agent.host import ports, process_registry, processes
from taco_launch.agent.logs.agent_log import GuardTrace
from taco_launch.agent.logs.remote_streams import LAUNCHER, LogSender
from taco_launch.agent.store import records
from taco_launch.agent.store.folders import JobFolder
from taco_launch.agent.upkeep import recovery
from taco_launch.core.errors import SIGNAL_BASE
from taco_launch.core.protocol import guard_messages, rank_messages, stall_messages
from taco_launch.core.protocol.connection import JsonConnection
from taco_launch.core.protocol.message import Message

_TICK = 0.5
# How often logs are looked at that go to another host.
_LOG_TICK = 0.05
# A supervisor that started a guard and then died before it connected leaves nothing behind for longer than this.
_FIRST_CONTACT_SECONDS = 30.0
_LAST_WORDS_SECONDS = 2.0
# When it takes longer to listen again it was us who were away (a look at the host, a disk that hangs, a suspended
# machine): the supervisor was not silent.
_STALL_SECONDS = 2 * _TICK


def main(folder: JobFolder, job_id: str = "") -> int:
    """Guard the job until its supervisor says `end`, or is gone; `job_id` is given on other hosts than the head."""
    with folder.listen() as server:
        _Guard(folder, server, job_id).run()
    return 0


class _Guard:
    def __init__(self, folder: JobFolder, server: socket.socket, job_id: str) -> None:
        self._folder = folder
        self._selector = selectors.DefaultSelector()
        self._selector.register(server, selectors.EVENT_READ, None)
        self._supervisor: Optional[JsonConnection] = None
        self._supervised = False
        self._job_id = job_id
        self._elsewhere = bool(job_id)
        own = processes.identify(os.getpid())
        self._own = None if own is None else (own.pid, own.start)
        self._welcome: Optional[rank_messages.Welcome] = None
        self._host_loss_timeout = _FIRST_CONTACT_SECONDS
        self._heard = time.monotonic()
        self._ranks: Dict[JsonConnection, int] = {}
        self._roots: Set[Tuple[int, int]] = set()
        self._told: List[Message] = []
        self._sender = LogSender(folder)
        self._observer = ProgressWatcher(folder)
        self._usage = UsageWatcher()
        self._kills = MemoryKills()
        self._trace = GuardTrace(folder, elsewhere=self._elsewhere)
        self._slots = JobSlots(folder)
        self._launcher = HostLauncher(folder, self._selector)
        self._probe = ProbeOnce(self._selector, self._tell)
        self._code = CodeFetch(folder, self._selector, self._tell)
        self._terminating = False
        self._released = False
        self._done = False
        # What each order does; all take a message of the kind under which they stand here.
        self._orders: Dict[Type[Message], Callable[[Any], None]] = {
            guard_messages.Heartbeat: self._answer_beat,
            guard_messages.Lease: self._lease,
            guard_messages.ReleaseSlots: self._unlease,
            guard_messages.ProbeHost: self._probe.start,
            guard_messages.Reach: self._reach,
            guard_messages.FetchCode: self._code.start,
            guard_messages.Prepare: self._prepare,
            guard_messages.Launch: self._launch,
            guard_messages.Launched: lambda message: self._remember(message.root),
            guard_messages.StreamLogs: lambda message: self._sender.go_on(message.offsets),
            guard_messages.Ack: lambda message: self._sender.acknowledge(message.rank, message.offset),
            rank_messages.SignalRanks: self._pass_on,
            stall_messages.LookAtRanks: self._look_at_ranks,
            stall_messages.ReadStacks: lambda _message: self._observer.read(),
            rank_messages.Terminate: self._terminate,
            rank_messages.AllowExit: self._release,
            rank_messages.InterruptRanks: self._pass_on,
            rank_messages.Leave: lambda _message: self._launcher.terminate(),
            guard_messages.EndJob: self._end,
            guard_messages.Close: self._close,
        }

    def run(self) -> None:
        looked = time.monotonic()
        while not self._done:
            now = time.monotonic()
            stalled, looked = now - looked, now
            if stalled > _STALL_SECONDS:
                self._heard += stalled
            for key, _mask in self._selector.select(self._pause()):
                if isinstance(key.data, JsonConnection):
                    self._hear(key.data)
                elif isinstance(key.data, (HostLauncher, CodeFetch)):
                    key.data.read(key.fileobj)
                elif key.data is None:
                    self._accept(key.fileobj)  # type: ignore[arg-type]
            self._probe.follow()
            self._look_at_launcher()
            self._observer.check(looked, self._ranks.values(), self._answer)
            self._usage.check(looked, self._observer.running(self._ranks.values()), self._slots.taken, self._answer)
            silent = looked - self._heard > self._host_loss_timeout
            if silent or (self._supervised and self._supervisor is None and not self._elsewhere):
                self._on_supervisor_lost(silent=silent)
        for part in (self._probe, self._code, self._observer, self._usage):
            part.close()
        if self._supervisor is not None:
            self._supervisor.finish(_LAST_WORDS_SECONDS)

    def _pause(self) -> float:
        """Send on what there is for the supervisor, and say how long to wait for more."""
        line = self._supervisor
        if line is None:
            return _TICK
        moved = self._elsewhere and not line.waiting and self._sender.step(line)
        line.flush()
        if line.fileno() >= 0:
            events = selectors.EVENT_READ | (selectors.EVENT_WRITE if line.waiting else 0)
            self._selector.modify(line.sock, events, line)
        if moved and not line.waiting:
            return 0.0
        return _LOG_TICK if self._elsewhere and self._roots else _TICK

    def _accept(self, server: socket.socket) -> None:
        connection, _address = server.accept()
        self._selector.register(connection, selectors.EVENT_READ, JsonConnection(connection))

    def _hear(self, line: JsonConnection) -> None:
        if line.fileno() < 0:  # lost a moment ago, on another's account
            return
        heard = line.receive()
        for message in heard or ():
            self._act(line, message)
        if heard is None:
            self._lost(line)

    def _act(self, line: JsonConnection, message: Message) -> None:
        if line is self._supervisor or isinstance(message, guard_messages.Supervise):
            self._heard = time.monotonic()
            self._obey(line, message)
        elif isinstance(message, rank_messages.Daemon):
            self._remember(message.root)
        elif isinstance(message, rank_messages.Register):
            self._register(line, message)
        elif isinstance(message, rank_messages.Visit):
            self._receive_visitor(line, message)
        elif isinstance(message, stall_messages.AskRanks):
            running = self._observer.running(self._ranks.values())
            line.send(stall_messages.RunningRanks(ranks={str(rank): root for rank, root in running.items()}))
        elif isinstance(message, rank_messages.Signalled):
            self._tell(message)
        elif isinstance(message, rank_messages.Exit):
            self._ranks.pop(line, None)
            self._tell_exit(message)
            if self._released:
                line.send(rank_messages.AllowExit())

    def _tell_exit(self, message: rank_messages.Exit) -> None:
        size = self._sender.sizes().get(message.rank, 0) if self._elsewhere else 0
        killed = self._kills.killed(message.rank) if message.exit_code in (None, SIGNAL_BASE + signal.SIGKILL) else ""
        self._tell(message.replace(orphan=self._is_orphan(message.rank), size=size, killed=killed))

    def _obey(self, line: JsonConnection, message: Message) -> None:
        """Do what the supervisor says. All of it may come again after a connection was made again."""
        if isinstance(message, guard_messages.Supervise):
            self._supervise(line, message)
        elif type(message) in self._orders:
            self._orders[type(message)](message)

    def _answer_beat(self, _message: guard_messages.Heartbeat) -> None:
        if self._supervisor is not None:
            self._supervisor.post(guard_messages.Heartbeat())

    def _unlease(self, message: guard_messages.ReleaseSlots) -> None:
        """Let the slots go; say who has which, if that is asked."""
        self._slots.release(gone=True)
        self._told = [told for told in self._told if not isinstance(told, guard_messages.Leased)]
        seen = self._slots.occupancy() if message.look else None
        if seen is not None:
            self._answer(guard_messages.SlotsReleased(occupancy=seen))

    def _prepare(self, message: guard_messages.Prepare) -> None:
        first = self._welcome is None
        self._welcome = self._code.welcomed(message.welcome)
        self._observer.begin(self._folder.of_attempt(self._welcome.attempt), message.stall_after)
        if first:  # the connection broke just before, and the launcher was faster than the next
            for line in self._ranks:
                self._greet(line)

    def _launch(self, message: guard_messages.Launch) -> None:
        """Start what starts the ranks of this host, where that is not mpirun's to do."""
        self._remember(*self._launcher.start(self._code.launched(message)))
        if self._elsewhere:
            self._sender.add(LAUNCHER)

    def _look_at_launcher(self) -> None:
        code = self._launcher.ended()
        if code is not None:
            for line in self._lines():  # what its ranks have said already comes before its end
                self._hear(line)
            self._tell(guard_messages.LauncherEnded(code=code))

    def _greet(self, line: JsonConnection) -> None:
        """Tell a rank how to start; what it was told before that it has not heard."""
        if self._welcome is not None:
            line.send(self._welcome)
            if self._terminating:
                line.send(rank_messages.Terminate())

    def _terminate(self, message: rank_messages.Terminate) -> None:
        if not self._terminating:
            self._terminating = True
            self._pass_on(message)
            if not self._ranks:
                self._launcher.terminate()

    def _release(self, message: rank_messages.AllowExit) -> None:
        if not self._released:
            self._terminating = self._released = True
            self._pass_on(message)

    def _close(self, message: guard_messages.Close) -> None:
        if message.remove:
            shutil.rmtree(self._folder.path, ignore_errors=True)
        self._done = True

    def _supervise(self, line: JsonConnection, message: guard_messages.Supervise) -> None:
        before, self._supervisor, self._supervised = self._supervisor, line, True
        if before is not None and before is not line:
            self._lost(before)
        self._job_id = message.job_id
        self._host_loss_timeout = message.host_loss_timeout
        self._trace.begin(line, message)
        self._remember()
        self._observer.repeat_report()
        for told in self._told:
            line.post(told)
        if not self._has_told(guard_messages.HostReport):
            self._tell(self._slots.report(message))

    def _lease(self, message: guard_messages.Lease) -> None:
        """Take as many slots; say which, or who has those that are missing."""
        answer = None if self._has_told(guard_messages.Leased) else self._slots.take(self._job_id, message)
        if answer is not None:
            (self._answer if answer.slots is None else self._tell)(answer)

    def _reach(self, message: guard_messages.Reach) -> None:
        """Try the port of another host where the ranks are to meet; not again, over a new connection, once they do."""
        if self._welcome is None:
            why = ports.unreachable(message.address, message.port, listens=message.listens)
            self._answer(guard_messages.Reached(why=why))

    def _look_at_ranks(self, message: stall_messages.LookAtRanks) -> None:
        """Send the supervisor what is seen of the ranks."""
        from taco_launch.agent.guard import rank_view  # noqa: PLC0415 - not while a job starts

        folder = self._folder.of_attempt(1 if self._welcome is None else self._welcome.attempt)
        self._answer(rank_view.seen(folder, self._observer.running(self._ranks.values()), message.variables))

    def _answer(self, answer: Message) -> None:
        """Send an answer once: the supervisor asks again, or gives up."""
        if self._supervisor is not None:
            self._supervisor.post(answer)

    def _register(self, line: JsonConnection, message: rank_messages.Register) -> None:
        self._ranks[line] = message.rank
        self._remember(*message.roots)
        self._observer.add(message.rank, message.roots)
        if message.roots:
            self._kills.begin(message.rank, message.roots[0][0])
        if self._elsewhere:
            self._sender.add(message.rank)
        self._greet(line)
        # If torchrun has restarted the rank, a new connection reports its last start and end only.
        self._told = [told for told in self._told if getattr(told, "rank", None) != message.rank]
        self._tell(guard_messages.RankStarted(rank=message.rank, roots=message.roots))

    def _receive_visitor(self, line: JsonConnection, message: rank_messages.Visit) -> None:
        """Tell a process that is to run beside a rank how that was started; it ends with the job as a rank does."""
        found, welcome, answer = self._roots_of(message.rank), self._welcome, rank_messages.Visited()
        if found and welcome is not None and message.rank in self._ranks.values():
            self._remember(message.root)
            answer = rank_messages.Visited(
                roots=found,
                environment=welcome.environment,
                umask=welcome.umask,
                processes=welcome.processes,
            )
        line.send(answer)

    def _roots_of(self, rank: int) -> rank_messages.Roots:
        """Return what a rank has registered: itself, and what started it; nothing before it has."""
        told = (each for each in self._told if isinstance(each, guard_messages.RankStarted))
        return next((each.roots for each in told if each.rank == rank), ())

    def _is_orphan(self, rank: int) -> bool:
        """Return whether what started a rank is gone: mpirun's daemon, or this host's launcher, that somebody has killed."""
        return any(not processes.lives(pid, start) for pid, start in self._roots_of(rank)[1:2])

    def _remember(self, *more: Sequence[int]) -> None:
        self._roots.update((pid, start) for pid, start in more)
        if self._elsewhere:  # on the head the job's events tell them
            with contextlib.suppress(OSError):  # the disk is full: the mark is left to find them by
                process_registry.keep(self._folder, self._job_id, self._roots, self._own)

    def _pass_on(self, message: Message) -> None:
        """Tell every rank, also those that have told their end and wait to be released."""
        for rank in self._lines():
            rank.send(message)

    def _lines(self) -> List[JsonConnection]:
        data = (key.data for key in self._selector.get_map().values())
        return [line for line in data if isinstance(line, JsonConnection) and line is not self._supervisor]

    def _tell(self, message: Message) -> None:
        self._told.append(message)
        if self._supervisor is not None:
            self._supervisor.post(message)

    def _has_told(self, kind: Type[Message]) -> bool:
        return any(isinstance(message, kind) for message in self._told)

    def _lost(self, line: JsonConnection) -> None:
        self._selector.unregister(line.sock)
        line.close()
        if line is self._supervisor:
            self._supervisor = None
        rank = self._ranks.pop(line, None)
        if rank is not None:  # it said nothing of an end: its wrapper was killed
            self._tell_exit(rank_messages.Exit(rank=rank, exit_code=None))

    def _end(self, message: guard_messages.EndJob) -> None:
        """End all that belongs to the job here, prove it, say so. Elsewhere the logs are sent before the guard ends.

        With `leave` it stays, and is the business of who takes its slots next.
        """
        if self._has_told(guard_messages.Ended):
            return
        self._usage.close()
        self._remember(*message.roots)
        for line in self._lines():  # what the ranks have said already comes before the end
            self._hear(line)
        left = processes.ProcessScan(()) if message.leave else processes.end(self._job_id, self._roots)
        gone = not (message.leave or left.found or left.unknown)
        self._slots.release(gone=gone)
        self._launcher.close()
        self._code.close(gone=gone)
        if gone:
            shutil.rmtree(self._folder.sessions, ignore_errors=True)
        sizes = self._sender.sizes()
        listener = self._slots.listener() if message.listener else ""
        found = [entry.pid for entry in left.found]
        self._tell(guard_messages.Ended(left=found, unknown=left.unknown, sizes=sizes, listener=listener))
        self._done = not self._elsewhere

    def _on_supervisor_lost(self, *, silent: bool) -> None:
        """End the job when its supervisor is gone: at once when it is dead, else when it is silent for too long."""
        lock = None if self._elsewhere else records.try_lock(self._folder)
        # Another process may have ended the attempt first; the next attempt has a guard of its own.
        over = lock is None and not self._elsewhere and records.has_moved_on(self._folder, self._job_id)
        if lock is not None:
            self._trace.take_over()
            recovery.close(self._folder, lock, tuple(self._roots))
        elif silent or over:
            left = processes.end(self._job_id, self._roots)
            self._slots.release(gone=not left.found and not left.unknown)
            unheard = f"heard nothing from the supervisor for {self._host_loss_timeout:g} s"
            reason = f"its guard {'found another attempt' if over else unheard} and ended its ranks"
            self._trace.note(reason)
            self._tell(guard_messages.GaveUp(reason=reason))
            if self._elsewhere and not (self._sender.sizes() or left.found or left.unknown):
                # no rank ever ran, and the head may not know of this host at all
                shutil.rmtree(self._folder.path, ignore_errors=True)
        self._done = lock is not None or silent or over
