"""What the supervisor knows of the ranks of an attempt: which have started and ended, how, and their logs."""

import signal
import time
from pathlib import Path
from typing import Dict, List, Optional, Sequence, Set, Tuple

from taco_launch.agent.gang.guard_connection import GuardConnection, RemoteGuardConnection
from taco_launch.agent.logs.merge import LogMerge
from taco_launch.agent.logs.remote_streams import LAUNCHER, LogReceiver
from taco_launch.agent.store import records
from taco_launch.agent.store.folders import JobFolder
from taco_launch.core import trace
from taco_launch.core.errors import SIGNAL_BASE
from taco_launch.core.lifecycle import state
from taco_launch.core.model.jobs import JobSpec, RankEnd, Restart
from taco_launch.core.model.launchers import LAUNCHERS, Launcher
from taco_launch.core.model.plans import Placement, numbered
from taco_launch.core.protocol.guard_messages import Ack, Ended, LogData, RankStarted
from taco_launch.core.protocol.message import Message
from taco_launch.core.protocol.rank_messages import EXITED, Exit, Roots

# Of a thousand ranks that fail together, the events of the first tell enough.
_MOST_FAILURES = 64
_MOST_NAMED = 4
# How often a rank may fail and restart while no host comes or goes, without a restart policy; after that, the program is at fault.
_MOST_RESTARTS = 3
WRAPPER_KILLED = "was killed together with its wrapper process"


def restarts(spec: JobSpec) -> Optional[int]:
    """Return how often a rank may fail and start again within an attempt: as often as the job may be tried again.

    None where only an attempt starts ranks.
    """
    if not spec.elastic:
        return None
    return _MOST_RESTARTS if spec.policy.restart is Restart.NEVER else spec.policy.backoff_limit


class Ranks:
    """The ranks of one attempt; none before they have a place."""

    def __init__(self, folder: JobFolder, events: records.Events, max_bytes: int) -> None:
        """`folder` is that of the attempt; of each log at most `max_bytes` are kept."""
        self._folder = folder
        self._events = events
        self._max_bytes = max_bytes
        self._merge = LogMerge(folder.merged, max_bytes)
        self._keepers: Dict[str, LogReceiver] = {}
        self._lost_bytes = 0
        self._boot = self._here = ""
        self._launcher = LAUNCHERS["mpirun"]
        self._launchers: List[Path] = []
        self._placed: Dict[int, str] = {}  # the host of each rank
        self._width = 0  # of the labels in the merged log
        self._restarts = False  # whether a rank that has ended may start again, as torchrun's do
        self._most_restarts = 0  # how often one that has failed may
        self._roots: Dict[int, Roots] = {}  # those of the last start of each rank
        self._since: Dict[int, float] = {}  # when that was, by time.monotonic()
        self._interrupted: Set[int] = set()  # ranks that end because a host comes or goes, and start again
        self._failed: Dict[int, int] = {}  # how many times each rank has failed since a host came or went
        self.last_output = time.monotonic()
        self.started: Dict[int, str] = {}  # each with its host
        self.ended: Dict[int, int] = {}  # each with its exit code
        self.failures: List[RankEnd] = []
        # When the first came that ended by a code of its own, by time.monotonic(), and its host: a host that restarts ends its
        # ranks by signals.
        self.failed_by_itself: Optional[Tuple[float, str]] = None
        self.roots: List[List[int]] = []  # those of this host

    def place(
        self,
        placement: Placement,
        here: GuardConnection,
        attempt: int,
        launcher: Launcher,
        suspended: str,
        *,
        restarts: Optional[int] = None,
    ) -> None:
        """Take their places, and name the streams of the merged log; a launcher has one, or one on each host.

        `suspended` is why the job was, before this; `restarts` is how often a rank may fail and start again, None without torchrun's restarts.
        """
        self._boot, self._here, self._launcher = here.boot, here.name, launcher
        self._restarts, self._most_restarts = restarts is not None, restarts or 0
        self._folder.launcher.parent.mkdir(mode=0o700, exist_ok=True)
        self._merge.begin(attempt, suspended)
        self.join(placement)
        if self._launcher.is_single:
            self._add_launcher(here.name)

    def join(self, placement: Placement) -> None:
        """Add the ranks of a placement that were not there before, with their hosts."""
        self._width = self._width or max(len(f"{share.host}/{placement.np - 1}") for share in placement.shares)
        new = [(share.host, ranks) for share, ranks in numbered(placement.shares) if ranks[0] not in self._placed]
        for host, ranks in new:
            for rank in ranks:
                self._placed[rank] = host
                self._merge_log(host, self._folder.rank(rank), f"{host}/{rank}".ljust(self._width))
        if not self._launcher.is_single:
            for host, _ranks in new:
                self._add_launcher(host)
        self._expect_restart()

    def leave(self, host: str) -> None:
        """Remove the ranks of a host from the job."""
        for rank in [rank for rank, placed in self._placed.items() if placed == host]:
            self._merge.finish(self._folder.rank(rank))
            del self._placed[rank]
            self.started.pop(rank, None)
            self.ended.pop(rank, None)
        self.failures = [end for end in self.failures if end.host != host]
        self._expect_restart()

    def _expect_restart(self) -> None:
        self._failed.clear()
        if not self._launcher.restarts_ranks:
            return
        self._interrupted.update(rank for rank in self.started if rank not in self.ended)

    def wrappers(self, before: float) -> List[Sequence[int]]:
        """Return the wrappers, (pid, start), of the ranks that run and have started before that time."""
        old = [rank for rank in self.started if rank not in self.ended and self._since[rank] < before]
        return [root for rank in old for root in self._roots[rank][:1]]

    def _add_launcher(self, host: str) -> None:
        stem = self._folder.launcher if host == self._here else self._folder.launcher_on(host)
        if stem not in self._launchers:
            self._launchers.append(stem)
            self._merge_log(host, stem, f"{host}/{self._launcher.name}")

    def _merge_log(self, host: str, stem: Path, label: str) -> None:
        # Those of other hosts are written here, so that it is known when they grow.
        self._merge.add(stem, label, polled=host == self._here)

    @property
    def np(self) -> int:
        """How many there are; 0 before they have a place."""
        return len(self._placed)

    @property
    def fatal(self) -> Optional[RankEnd]:
        """The first failure, where that ends the job: torchrun restarts ranks that fail, but not forever."""
        if not self._restarts:
            return self.failures[0] if self.failures else None
        return next((end for end in self.failures if self._failed.get(end.rank, 0) > self._most_restarts), None)

    @property
    def restarted(self) -> int:
        """The number of times that torchrun restarted the rank whose failure ends the job; 0 if there is none."""
        return self._most_restarts if self.fatal else 0

    def forgive(self) -> None:
        """Forget failures: the launcher of an elastic job has ended well without the ranks that had failed."""
        self.failures = []

    def keep(self, host: str) -> None:
        """Keep the logs of another host here."""
        self._keepers[host] = LogReceiver(self._folder, self._max_bytes, self._merge.finish, host)

    @property
    def running(self) -> List[str]:
        """Return the host of each rank that has started and not ended."""
        return [host for rank, host in self.started.items() if rank not in self.ended]

    def missing(self) -> str:
        """Return which ranks have not started, "" where all have."""
        names = [f"rank {rank} on {host}" for rank, host in self._placed.items() if rank not in self.started]
        more = f" and {len(names) - _MOST_NAMED} more" if names[_MOST_NAMED:] else ""
        return ", ".join(names[:_MOST_NAMED]) + more

    @property
    def all_ended(self) -> bool:
        """Whether all ranks have ended. A rank that torchrun restarts after a failure has not."""
        return len(self.ended) >= self.np and not (self._restarts and any(self.ended.values()))

    @property
    def all_well(self) -> bool:
        """Whether each has ended with 0."""
        return self.np > 0 and len(self.ended) == self.np and not any(self.ended.values())

    def note(self, link: GuardConnection, message: Message, *, blame: bool) -> None:
        """Take what a guard says of them; it may come twice. With `blame` an exit code other than 0 is a failure.

        A host tells of its own ranks alone: of those that have started there.
        """
        if isinstance(message, RankStarted) and (message.rank not in self.started or self._has_restarted(message)):
            if message.rank in self._placed:
                self._note_start(link, message)
        elif isinstance(message, Exit) and message.rank not in self.ended:
            if self._is_of(link, message.rank):
                self._note_exit(link, message, blame)
        elif isinstance(message, LogData) and link.name in self._keepers:
            self._keep(link, message)
        elif isinstance(message, Ended) and link.name in self._keepers:
            for rank, size in message.sizes.items():
                if self._is_of(link, int(rank), or_launcher=True):
                    self._keepers[link.name].ends_at(int(rank), size)

    def _is_of(self, link: GuardConnection, rank: int, *, or_launcher: bool = False) -> bool:
        """Return whether a rank is of a guard's host, or the host's own launcher stands in its place."""
        if rank == LAUNCHER:
            return or_launcher and self._folder.launcher_on(link.name) in self._launchers
        return self.started.get(rank, self._placed.get(rank)) == link.name

    def _has_restarted(self, message: RankStarted) -> bool:
        """Return whether a rank has restarted; a new connection may report that a second time."""
        return self._restarts and message.roots != self._roots.get(message.rank)

    def _keep(self, link: GuardConnection, message: LogData) -> None:
        if isinstance(link, RemoteGuardConnection) and self._is_of(link, message.rank, or_launcher=True):
            rank, offset = self._keepers[link.name].take(message)
            link.post(Ack(rank=rank, offset=offset))
            link.offsets[rank] = offset
            self._merge.wake(self._folder.launcher_on(link.name) if rank == LAUNCHER else self._folder.rank(rank))

    def step(self) -> bool:
        """Bring the merged log on; False when there was nothing to bring."""
        moved = self._merge.step()
        if moved:
            self.last_output = time.monotonic()
        return moved

    def whole(self, host: str) -> bool:
        """Return whether the logs of a host are all here, of the ranks that have ended there."""
        return host not in self._keepers or self._keepers[host].whole()

    def close(self) -> str:
        """Bring the logs to their end; return what is lost of them or only in those of the ranks, as a disk was full."""
        for stem in (*self._launchers, *map(self._folder.rank, self._placed)):
            self._merge.finish(stem)
        while self._merge.step():
            pass
        lost = self._lost_bytes + sum(keeper.close() for keeper in self._keepers.values())
        unmerged = self._merge.close()
        words = (
            f"{lost} bytes of its logs were lost on a full disk" if lost else "",
            f"{unmerged} bytes are only in the logs of its ranks (logs --rank), as the disk was full"
            if unmerged
            else "",
        )
        return "; ".join(filter(None, words))

    def _note_start(self, link: GuardConnection, message: RankStarted) -> None:
        self.started[message.rank] = link.name
        if self._restarts:
            self._roots[message.rank], self._since[message.rank] = message.roots, time.monotonic()
            self.ended.pop(message.rank, None)
            self._interrupted.discard(message.rank)
            self.failures = [end for end in self.failures if end.rank != message.rank]
            self.failed_by_itself = None
        trace.decision("rank %s started on %s", message.rank, link.name)
        if not isinstance(link, RemoteGuardConnection):
            self.roots += [[pid, start] for pid, start in message.roots]
        if len(self.started) == self.np and not any(self.ended.values()):
            self._events.add(state.RUNNING, "every rank has started", boot=self._boot, roots=self.roots)

    def _note_exit(self, link: GuardConnection, message: Exit, blame: bool) -> None:
        rank, code, reason = self._end_of(message)
        if message.orphan and isinstance(
            link, RemoteGuardConnection
        ):  # on the head that is the launcher, which is told of
            reason = f"{reason or state.ending(code)}, and {self._launcher.starter} had already ended there"
        self.ended[rank] = code
        trace.decision("rank %s ended on %s: %s", rank, link.name, reason or state.ending(code))
        if self._restarts:
            blame = blame and rank not in self._interrupted and code != SIGNAL_BASE + signal.SIGTERM  # by torchrun
            self._failed[rank] = self._failed.get(rank, 0) + bool(code and blame)
        elif link.name in self._keepers:
            self._keepers[link.name].ends_at(rank, message.size)
        else:
            self._merge.finish(self._folder.rank(rank))
        self._lost_bytes += message.lost
        if code and blame:
            if code < SIGNAL_BASE:
                self.failed_by_itself = self.failed_by_itself or (time.monotonic(), link.name)
            self.failures.append(RankEnd(rank, link.name, code, reason, killed=message.killed))
            if len(self.failures) <= _MOST_FAILURES:
                told = f"rank {rank} on {link.name} {reason or state.ending(code)}"
                self._events.add(state.RANK_FAILED, told, rank=rank, host=link.name, exit_code=code)

    def _end_of(self, message: Exit) -> Tuple[int, int, str]:
        if message.exit_code is None:
            return message.rank, SIGNAL_BASE + signal.SIGKILL, WRAPPER_KILLED
        if message.reason == EXITED.format(message.exit_code):
            return message.rank, message.exit_code, state.exited_as(message.exit_code)
        return message.rank, message.exit_code, message.reason
