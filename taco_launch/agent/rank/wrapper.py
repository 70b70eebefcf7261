"""`agent rank`: wraps one rank: registers with the guard, takes its environment, writes the rank's output to its log.

It stays beside the command as its parent, since somebody has to keep the output apart per rank (mpirun's tagged output
mixes lines of several ranks), to continue when the disk is full, and to tell how the command ended.
"""

import contextlib
import fcntl
import math
import os
import resource
import select
import signal
import stat
import subprocess
import sys
import termios
import time
from typing import TYPE_CHECKING, Callable, List, Mapping, Optional, Sequence, Tuple, Type

from taco_launch.agent.host import processes
from taco_launch.agent.logs import segments
from taco_launch.agent.store.folders import JobFolder
from taco_launch.core.errors import NOT_EXECUTABLE, NOT_FOUND, SIGNAL_BASE
from taco_launch.core.launch.command_line.env import FIRST_RANK, PMI_FD, RANK_VARIABLES, rank_env, rank_of
from taco_launch.core.launch.command_line.separator import unescape
from taco_launch.core.launch.light_program import names_light
from taco_launch.core.protocol.connection import JsonConnection
from taco_launch.core.protocol.message import Message
from taco_launch.core.protocol.rank_messages import (
    EXITED,
    REASON_CHARACTERS,
    AllowExit,
    Exit,
    InterruptRanks,
    Register,
    Roots,
    Signalled,
    SignalRanks,
    Terminate,
    Welcome,
)

if TYPE_CHECKING:
    from taco_launch.agent.logs.nccl_file import NcclFiles

_GUARD_SECONDS = 30.0
_F_SETPIPE_SZ = 1031  # fcntl(2); in Python's fcntl only from 3.10 on
# What mpirun sends to a rank's whole group when it ends or signals a job. The command gets it too, being in the group.
_FORWARDED = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2)


def main(folder: JobFolder, command: Sequence[str]) -> int:
    """Run the command as a rank and give its exit code; when a signal ends it, the same signal ends this process."""
    numbers = rank_of(os.environ)
    if numbers is None:
        unset = " nor ".join(names[0] for names in RANK_VARIABLES)
        return _refuse(f"a rank has to be started by a launcher: neither {unset} is set")
    rank, local_rank, _size = numbers
    _let_go(_inherited(os.environ))
    processes.become_subreaper()
    if os.getpgrp() != os.getpid():  # mpirun 4.1 gives each rank its own group; what signals it sends stay within it
        os.setpgid(0, 0)
    guard = _connect(folder)
    if guard is None:
        return _refuse(f"rank {rank}: no guard answers in {folder.path}")
    own, parent = processes.identify(os.getpid()), processes.identify(os.getppid())
    roots = [(entry.pid, entry.start) for entry in (own, parent) if entry is not None]
    first = os.environ.pop(FIRST_RANK, "")  # not for jobs that a rank submits
    number = int(first) + local_rank if first else rank
    guard.send(Register(rank=number, roots=roots))
    try:
        welcome, behind = _wait_for(guard, Welcome, _GUARD_SECONDS)
    except TimeoutError as error:
        return _refuse(f"rank {rank} on {os.uname().nodename}: {error}")
    if not isinstance(welcome, Welcome):
        return _refuse(f"rank {rank}: the guard in {folder.path} is gone")
    environment = {**os.environ, **rank_env(rank, local_rank, welcome.environment, welcome.processes)}
    os.umask(welcome.umask)  # on other hosts it is that of their sshd
    if welcome.folder:
        try:
            os.chdir(welcome.folder)
        except OSError as error:
            return _refuse(f"rank {rank}: cannot start in {welcome.folder}: {error.strerror}")
        environment["PWD"] = welcome.folder
    stem = folder.of_attempt(welcome.attempt).rank(number)
    with contextlib.suppress(OSError):  # as for the log itself: the rank continues without it
        stem.parent.mkdir(mode=0o700, exist_ok=True)
    log = segments.Writer(stem, welcome.log_max_bytes)
    nccl = None
    if welcome.nccl_file and not {"NCCL_DEBUG_FILE", "NCCL_DEBUG_SUBSYS"} & environment.keys():  # the container's own
        from taco_launch.agent.logs import nccl_file  # noqa: PLC0415 - for jobs that use NCCL

        environment.update(nccl_file.variables(stem))
        nccl = nccl_file.NcclFiles(stem, log)
    if names_light(command):  # it lies in the agent's file, which is on each host
        environment["PYTHONPATH"] = ":".join(filter(None, (str(folder.agent), environment.get("PYTHONPATH"))))
    terminating = any(isinstance(message, Terminate) for message in behind)
    return _Rank(guard, number, log, nccl, terminating=terminating).run(
        [unescape(word) for word in command], environment
    )


def _tracing_allowed() -> "Optional[Callable[[], None]]":
    """Return what lets py-spy read the command's stack, where the kernel restricts that to a process's parents.

    Under kernel.yama.ptrace_scope 1 a process may name who else may trace it: prctl(2), PR_SET_PTRACER.
    """
    try:
        with open("/proc/sys/kernel/yama/ptrace_scope", encoding="ascii") as file:
            if file.read().strip() != "1":
                return None
    except OSError:  # a kernel without Yama
        return None
    return processes.allow_tracing


def _inherited(environment: Mapping[str, str]) -> Tuple[int, ...]:
    """Return the descriptors that a rank of Hydra needs of us; it finds the number in its environment."""
    told = environment.get(PMI_FD, "")
    if not (told.isascii() and told.isdecimal() and len(told) < 10):
        return ()
    try:
        return (int(told),) if stat.S_ISSOCK(os.fstat(int(told)).st_mode) else ()
    except OSError:  # another launcher's, which is gone
        return ()


def _let_go(kept: Tuple[int, ...]) -> None:
    """Close what Hydra's proxy has leaked to us: while we held its sockets, nobody would see that it has ended."""
    for name in os.listdir("/proc/self/fd") if kept else ():
        if int(name) > 2 and int(name) not in kept:
            with contextlib.suppress(OSError):  # the descriptor of the listing itself
                os.close(int(name))


def _refuse(why: str) -> int:
    sys.stderr.write(f"taco-launch: {why}\n")
    return NOT_EXECUTABLE


def _connect(folder: JobFolder) -> Optional[JsonConnection]:
    deadline = time.monotonic() + _GUARD_SECONDS
    while time.monotonic() < deadline:
        try:
            return JsonConnection(folder.connect())
        except OSError:
            time.sleep(0.05)
    return None


def _wait_for(
    guard: JsonConnection, kind: Type[Message], seconds: float = math.inf
) -> Tuple[Optional[Message], List[Message]]:
    """Wait for a message, and give those that came right behind it; None when the guard is gone.

    Raises:
        TimeoutError: it did not come within so many seconds.
    """
    poll, deadline = select.poll(), time.monotonic() + seconds
    poll.register(guard, select.POLLIN)
    while True:
        remaining = deadline - time.monotonic()
        if remaining <= 0:
            raise TimeoutError(f"the guard did not answer within {seconds:g} s")
        poll.poll(None if remaining == math.inf else remaining * 1000)
        messages = guard.receive()
        if messages is None:
            return None, []
        for index, message in enumerate(messages):
            if isinstance(message, kind):
                return message, messages[index + 1 :]


def _is_named(roots: Roots) -> bool:
    own = processes.identify(os.getpid())
    return own is not None and [own.pid, own.start] in [list(root) for root in roots]


class _Rank:
    """The command while it runs."""

    def __init__(
        self,
        guard: JsonConnection,
        rank: int,
        log: segments.Writer,
        nccl: "Optional[NcclFiles]" = None,
        *,
        terminating: bool,
    ) -> None:
        self._guard = guard
        self._rank = rank
        self._log = log
        self._nccl = nccl
        self._pid = 0
        self._status: Optional[int] = None
        self._terminating = terminating
        self._signalled = False
        self._warnings_due = 0.0

    def run(self, command: List[str], environment: Mapping[str, str]) -> int:
        """Start the command, serve it to its end, report."""
        output, write_end = os.pipe()
        with contextlib.suppress(OSError):  # the user's share of pipe memory is used up: a smaller one is only slower
            fcntl.fcntl(write_end, _F_SETPIPE_SZ, segments.CHUNK)
        os.set_blocking(output, False)
        wakeup, wake = os.pipe()
        os.set_blocking(wakeup, False)
        os.set_blocking(wake, False)
        signal.set_wakeup_fd(wake)
        for number in (signal.SIGCHLD, *_FORWARDED):
            signal.signal(number, self._on_signal)
        try:
            child = subprocess.Popen(
                command,
                env=dict(environment),
                stdin=subprocess.DEVNULL,
                stdout=write_end,
                stderr=write_end,
                pass_fds=_inherited(environment),
                preexec_fn=_tracing_allowed(),  # noqa: PLW1509 - there is one thread
            )
        except OSError as error:
            why = f"cannot run {command[0]!r}: {error.strerror}"
            from taco_launch.agent.rank import unrunnable  # noqa: PLC0415 - no rank that can run needs it

            advice = unrunnable.advice(
                command[0], environment.get("PATH")
            )  # not in the reason: the finding repeats it as the next step
            self._log.write(f"taco-launch: {why}{advice}\n".encode("utf-8", "backslashreplace"))
            self._log.close()
            return self._report(NOT_FOUND if isinstance(error, FileNotFoundError) else NOT_EXECUTABLE, why)
        finally:
            os.close(write_end)
        self._pid = child.pid
        if self._terminating:
            os.killpg(os.getpgrp(), signal.SIGTERM)
        self._serve(output, wakeup)
        child.returncode = 0  # its status was taken by our own waitpid
        return self._finish()

    def _serve(self, output: int, wakeup: int) -> None:
        """Bring output to the log until the command has ended and all it wrote is in."""
        poll = select.poll()
        for descriptor in (output, wakeup, self._guard.fileno()):
            poll.register(descriptor, select.POLLIN)
        while True:
            ready = [descriptor for descriptor, _event in poll.poll(self._copy_warnings())]
            if wakeup in ready:
                os.read(wakeup, 4096)
            if output in ready and self._copy(output) == b"":
                poll.unregister(output)  # the command closed its output, and may continue all the same
            if self._guard.fileno() in ready:
                self._obey(poll)
            self._reap()
            if self._status is not None:
                self._drain(output)
                return

    def _copy_warnings(self) -> Optional[float]:
        """Copy NCCL's warnings into the log where that is due; return after how many milliseconds it is due again."""
        if self._nccl is None:
            return None
        if time.monotonic() >= self._warnings_due:
            self._nccl.copy_warnings()
            self._warnings_due = time.monotonic() + self._nccl.SECONDS
        return max(0.0, self._warnings_due - time.monotonic()) * 1000

    def _copy(self, output: int) -> Optional[bytes]:
        """Bring one piece of output to the log and give it: None when there is none yet, b"" at the end."""
        try:
            data = os.read(output, segments.CHUNK)
        except BlockingIOError:
            return None
        self._log.write(data)
        return data

    def _drain(self, output: int) -> None:
        """Bring over what the command has left in the pipe; what its own leftovers continue writing is cut there."""
        left = int.from_bytes(fcntl.ioctl(output, termios.FIONREAD, bytes(4)), sys.byteorder)
        while left > 0:
            left -= len(self._copy(output) or b"")
        if self._nccl is not None:
            self._nccl.remove()
        self._log.close()

    def _obey(self, poll: "select.poll") -> None:
        messages = self._guard.receive()
        if messages is None:
            poll.unregister(self._guard.fileno())  # the supervisor sees it too, and ends the job
            return
        for message in messages:
            if isinstance(message, SignalRanks):
                self._signal(message.number)
            elif isinstance(message, InterruptRanks) and _is_named(message.roots):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(self._pid, signal.SIGKILL)
                os.killpg(os.getpgrp(), signal.SIGTERM)  # its own processes
        if any(isinstance(message, Terminate) for message in messages):
            self._terminating = True
            os.killpg(os.getpgrp(), signal.SIGTERM)

    def _signal(self, number: int) -> None:
        """Send the command a signal, once; a connection that was made again has brought it a second time."""
        if self._signalled:
            return
        self._signalled = True
        from taco_launch.agent.rank import early_signal  # noqa: PLC0415 - few jobs have one

        self._guard.send(Signalled(rank=self._rank, caught=early_signal.deliver(self._pid, number)))

    def _on_signal(self, number: int, _frame: object) -> None:
        if number == signal.SIGCHLD or self._status is not None:
            return
        try:
            # A command that made a group or session of its own does not get what is sent to ours.
            if self._pid and os.getpgid(self._pid) != os.getpgrp():
                os.kill(self._pid, number)
        except (ProcessLookupError, PermissionError):  # gone, or run by sudo
            return

    def _reap(self) -> None:
        """Collect every child that ended: the command, and orphans that came to us."""
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            if pid == self._pid:
                self._status = status

    def _finish(self) -> int:
        status = self._status or 0
        if not os.WIFSIGNALED(status):
            code = os.WEXITSTATUS(status)
            return self._report(code, EXITED.format(code) if SIGNAL_BASE < code < SIGNAL_BASE + signal.NSIG else "")
        number = os.WTERMSIG(status)
        self._report(SIGNAL_BASE + number)
        # mpirun has to see what happened, so the same signal ends us; the command has left the core file, if any.
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        if number not in (signal.SIGKILL, signal.SIGSTOP):
            signal.signal(number, signal.SIG_DFL)
        os.kill(os.getpid(), number)
        return SIGNAL_BASE + number

    def _report(self, exit_code: int, reason: str = "") -> int:
        lost = self._log.lost_in_all
        told = reason[:REASON_CHARACTERS]  # it holds the name of a program
        self._guard.send(Exit(rank=self._rank, exit_code=exit_code, reason=told, lost=lost))
        if self._terminating or self._signalled:
            # mpirun kills the other ranks one second after it sees one end: held back, each has the whole grace time.
            _wait_for(self._guard, AllowExit)
        return exit_code
