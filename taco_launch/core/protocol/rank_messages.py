"""The messages between a rank's wrapper, or whatever else a job starts on a host, and the guard of that host.

A process is named by (pid, start): [number, clock ticks]. Every rank imports this module and no other messages.
"""

from typing import Mapping, Optional, Sequence

from taco_launch.core.protocol.message import Message

Roots = Sequence[Sequence[int]]

# Of a reason, which supervisors keep for every rank.
REASON_CHARACTERS = 1 << 12
# The reason of an exit with a code above 128: the program chose it, and no signal ended it.
EXITED = "exited with code {}"
# In its log, behind a program that cannot be run.
IS_FOLDER = " (it is a folder)"


def check_roots(roots: Roots) -> None:
    """Check that each names a process.

    Raises:
        ValueError: one is no pair.
    """
    if any(len(root) != 2 for root in roots):
        raise ValueError(f"roots is {str(roots)[:60]!r}")


# --- a rank's wrapper, and others that a job consists of, to the guard of their host


class Register(Message):
    """Report that a rank has started; `roots` are its wrapper and the wrapper's parent."""

    op = "register"
    rank: int
    roots: Roots

    def check(self) -> None:
        """Check that its roots are processes."""
        check_roots(self.roots)


class Exit(Message):
    """Report that a rank has ended; a guard passes it on to the supervisor and adds what it knows.

    `exit_code` is None where its wrapper was killed. `lost` bytes of its log were lost on a full disk; the log is `size` bytes
    long, where the supervisor is on another host. An `orphan` is a rank whose starter was gone before.
    `killed` tells of signal 9 who sent it, where that is known.
    """

    op = "exit"
    rank: int
    exit_code: Optional[int]
    reason: str = ""
    lost: int = 0
    orphan: bool = False
    size: int = 0
    killed: str = ""

    def check(self) -> None:
        """Check that its counts are counts, and its reason is short."""
        if min(self.lost, self.size) < 0 or max(len(self.reason), len(self.killed)) > REASON_CHARACTERS:
            raise ValueError(f"lost is {self.lost}, size {self.size}, reason {self.reason[:60]!r}")


class Visit(Message):
    """Ask to run a command beside a rank (exec); `root` is the command's parent."""

    op = "visit"
    rank: int
    root: Sequence[int]

    def check(self) -> None:
        """Check that its root is a process."""
        check_roots([self.root])


class Signalled(Message):
    """Report to how many processes of a rank the signal has gone. A guard passes it on to the supervisor."""

    op = "signalled"
    rank: int
    caught: int


class Daemon(Message):
    """Report that the launcher's daemon has started; `root` is the process above it that stays."""

    op = "daemon"
    root: Sequence[int]

    def check(self) -> None:
        """Check that its root is a process."""
        check_roots([self.root])


# --- a guard to its host's ranks and visitors


class Welcome(Message):
    """Start a rank: the variables added to its environment, and how its log is kept."""

    op = "welcome"
    environment: Mapping[str, str]
    log_max_bytes: int
    umask: int
    # how many processes share a slot
    processes: int = 1
    # which attempt's folder the log is in
    attempt: int = 1
    # where it starts, "" for where its launcher has started the wrapper
    folder: str = ""
    # whether NCCL writes its messages into a file beside the log (agent/logs/nccl_file.py)
    nccl_file: bool = False


class Visited(Message):
    """Return what a command beside a rank needs; no `roots` where the rank does not run."""

    op = "visited"
    roots: Roots = ()
    environment: Mapping[str, str] = {}
    umask: int = 0
    processes: int = 1


class SignalRanks(Message):
    """Send a signal to the processes of the ranks that catch it, once. To a guard, which passes it on to its ranks."""

    op = "signal"
    number: int


class Leave(Message):
    """End the host's launcher, which ends its ranks: the job continues on its other hosts."""

    op = "leave"


class InterruptRanks(Message):
    """Kill the commands of the wrappers in `roots`, (pid, start): they may wait forever for a rank whose host is lost.

    To a guard, which passes it on to its ranks. A rank that torchrun has restarted since has another wrapper.
    """

    op = "interrupt"
    roots: Roots

    def check(self) -> None:
        """Check that its roots are processes."""
        check_roots(self.roots)


class Terminate(Message):
    """Send TERM to the ranks. To a guard, which passes it on to its ranks."""

    op = "terminate"


class AllowExit(Message):
    """Let the wrapper of a rank that has ended exit, so that its launcher sees it. To a guard, which passes it on to its ranks."""

    op = "release"
