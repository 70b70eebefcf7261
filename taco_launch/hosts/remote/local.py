"""This machine as a host, by subprocess; a shell is in between only where sudo is."""

import contextlib
import errno
import os
import selectors
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import IO

from taco_launch.agent.store.folders import make_private, private
from taco_launch.core.command import Command, Result, kill, start_line, without_git_secrets
from taco_launch.core.errors import NOT_EXECUTABLE, NOT_FOUND, HostError, code_of_process
from taco_launch.hosts.remote import session, transport
from taco_launch.hosts.remote.credentials import Credentials

_NOBODY = Credentials()
_CHUNK = 1 << 20  # no pipe holds more, unless somebody requested it
_END_SECONDS = 2
_LOOK_SECONDS = 0.05
_PART_SECONDS = 60
# A pipe takes this much without a reader, also where a user has used up what pipes may hold (pipe(7)).
_PIPE_HOLDS = 4096


class LocalTransport:
    """The machine that the controller itself runs on."""

    def __init__(self, name: str = "localhost", access: Credentials = _NOBODY) -> None:
        """Call it `name` in messages; nothing is touched."""
        self.name = name
        self._access = access
        self._running: set[subprocess.Popen[bytes]] = set()
        self._ahead: dict[tuple[str, ...], subprocess.Popen[bytes]] = {}

    def run(self, command: Command) -> Result:
        """Execute a command and wait for its end: see `Transport.run`."""
        begun = time.monotonic()
        if _needs_sudo(command):
            with self._under_sudo(command, whole=True) as (pipe, what, started):
                return session.finish(pipe, what, started, begun)
        try:
            start_line(command, whole=True)  # what cannot travel to a host is refused here too
            with self._popen(command.argv, command.env, stderr=subprocess.PIPE, whole=True) as process:
                out, err = _read(self.name, process, command)
        except FileNotFoundError as error:
            return _not_run(self.name, command, NOT_FOUND, error)
        except OSError as error:
            return _not_run(self.name, command, NOT_EXECUTABLE, error)
        except subprocess.TimeoutExpired:
            raise HostError(f"{self.name}: {command.argv[0]} did not end within {command.timeout:g} s") from None
        code = code_of_process(process.returncode)
        return Result(self.name, command, code, out, err, time.monotonic() - begun)

    def put(self, data: bytes, path: str, mode: int = 0o600, *, sudo: bool = False) -> None:
        """Write a file, whole or not at all: see `Transport.put`."""
        if sudo and os.geteuid() != 0:
            transport.put(self, data, path, mode, sudo=sudo)
            return
        target = Path(path)
        part = target.with_name(f"{transport.PART}{os.urandom(5).hex()}")
        try:
            make_private(target.parent)
            _remove_old_parts(target.parent)
            with open(part, "xb", opener=private) as file:
                os.fchmod(file.fileno(), mode)
                file.write(data)
                file.flush()
                os.fsync(file.fileno())  # a file that is there is whole, also after a power cut
            part.rename(target)
        except OSError as error:
            with contextlib.suppress(OSError):
                part.unlink()
            mib = -(-len(data) // (1 << 20))
            full = error.errno in (errno.ENOSPC, errno.EDQUOT)
            raise HostError(
                f"{self.name}: cannot write {path}: {error.strerror}",
                hint=f"free {mib} MiB there" if full else "name another folder with TACO_LAUNCH_STATE",
            ) from None

    @contextlib.contextmanager
    def tail(self, command: Command) -> Iterator[IO[bytes]]:
        """Execute a command and give its stdout while it runs: see `Transport.tail`."""
        with self._followed(command, open_input=False) as talk:
            yield talk.stdout

    def converse(self, command: Command) -> contextlib.AbstractContextManager[transport.Conversation]:
        """Execute a command whose input stays open: see `Transport.converse`."""
        return self._followed(command, open_input=True)

    @contextlib.contextmanager
    def _followed(self, command: Command, *, open_input: bool) -> Iterator[transport.Conversation]:
        if _needs_sudo(command):
            with self._under_sudo(command, whole=False, open_input=open_input) as (pipe, what, started):
                from taco_launch.hosts.remote.terminal import HostErrors  # noqa: PLC0415 - few commands are followed

                out = session.reader(pipe, what, started, HostErrors(sys.stderr.buffer))
                yield transport.Conversation(out, pipe)
            return
        with contextlib.ExitStack() as stack:
            start_line(command, whole=False)
            try:
                process = stack.enter_context(self._popen(command.argv, command.env, stderr=None, whole=False))
            except OSError as error:
                raise HostError(f"{self.name}: cannot run {command.argv[0]}: {error.strerror}") from None
            assert process.stdout is not None
            stdin = _Input(process)
            if open_input:
                with contextlib.suppress(OSError):  # it ended without reading: what it says tells why
                    stdin.write(command.stdin)
            else:
                _send(process, command.stdin, last=True)
            stack.enter_context(self._within(process, command))
            yield transport.Conversation(process.stdout, stdin)

    def prestart(self, command: Command) -> None:
        """Start a process now that `tail` of the same argv will use; it waits for its input until then."""
        if command.argv not in self._ahead:
            with contextlib.suppress(OSError):  # `tail` tries it again, and says why
                self._ahead[command.argv] = _started(command.argv, command.env, stderr=None)

    def close(self) -> None:
        """End what runs."""
        for process in tuple(self._running):
            _signal(process, signal.SIGTERM)

    @contextlib.contextmanager
    def _within(self, process: subprocess.Popen[bytes], command: Command) -> Iterator[None]:
        """Kill a process that takes longer than its command's timeout, and say so where what it said broke off by that.

        Raises:
            HostError: the command took longer than its timeout.
        """
        if command.timeout is None:
            yield
            return
        late = threading.Event()

        def end() -> None:
            late.set()
            _signal(process, signal.SIGKILL)

        timer = threading.Timer(command.timeout, end)
        timer.daemon = True
        timer.start()
        try:
            yield
        except HostError:
            if late.is_set():
                raise HostError(f"{self.name}: {command.argv[0]} did not end within {command.timeout:g} s") from None
            raise
        finally:
            timer.cancel()

    @contextlib.contextmanager
    def _under_sudo(
        self, command: Command, *, whole: bool, open_input: bool = False
    ) -> Iterator[tuple["_Pipe", session.CommandSession, session.StartedProgram]]:
        what = session.plan(self.name, command)
        with self._popen(("/bin/sh", "-c", what.line), stderr=subprocess.PIPE, whole=whole) as process:
            pipe = _Pipe(process)
            try:
                started = session.start(pipe, what, self._access, whole=whole, open_input=open_input)
            except session.TtyRequiredError as error:
                raise session.no_terminal(self.name, error) from None
            ended = False
            try:
                yield pipe, what, started
                ended = whole
            finally:
                if not ended:  # nobody but root may end what runs as root
                    threading.Thread(target=process.wait, daemon=True).start()  # `kill` waits until it is reaped
                    self.run(kill(started.group, sudo=True))

    @contextlib.contextmanager
    def _popen(
        self, argv: tuple[str, ...], env: tuple[tuple[str, str], ...] = (), *, stderr: int | None, whole: bool
    ) -> Iterator[subprocess.Popen[bytes]]:
        """Start a process; its group is ended with the block, unless the whole of it was read: see `Ssh._session`."""
        process = None if stderr is not None or env else self._ahead.pop(argv, None)
        process = process or _started(argv, env, stderr=stderr)
        self._running.add(process)
        ended = False
        try:
            yield process
            ended = whole
        finally:
            self._running.discard(process)
            for stream in (process.stdout, process.stderr):
                if stream is not None:
                    stream.close()
            if not ended or not _waited(process):
                _end(process)


class _Input:
    """The stdin of a process: see `transport.CommandInput`."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self._process = process

    def write(self, data: bytes) -> None:
        """Send input, and wait until the pipe has taken it: see `CommandInput.write`."""
        stdin = self._process.stdin
        assert stdin is not None
        try:
            stdin.write(data)
            stdin.flush()
        except ValueError:  # closed meanwhile
            raise BrokenPipeError from None

    def close(self) -> None:
        """End the input."""
        _send(self._process, b"", last=True)


class _Pipe(_Input):
    """A process of this machine, as a session sees it."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        super().__init__(process)
        assert process.stdout is not None
        assert process.stderr is not None
        self._out = process.stdout.fileno()
        self._open = selectors.DefaultSelector()
        self._open.register(self._out, selectors.EVENT_READ)
        self._open.register(process.stderr.fileno(), selectors.EVENT_READ)

    def receive(self, timeout: float | None) -> tuple[bytes, bytes] | None:
        """Return what arrived: see `session.ProcessStreams`."""
        if not self._open.get_map():
            return None
        out = err = b""
        for key, _events in self._open.select(timeout):
            data = os.read(key.fd, _CHUNK)
            if not data:
                self._open.unregister(key.fd)
            elif key.fd == self._out:
                out = data
            else:
                err = data
        return out, err

    def send(self, data: bytes, *, last: bool = False) -> None:
        """Send input: see `session.ProcessStreams`."""
        _send(self._process, data, last=last)

    def ending(self) -> str:
        """Return how the process ended."""
        if not _waited(self._process):
            return ""
        code = self._process.returncode
        return f"signal {-code}" if code < 0 else f"exit code {code}"


def _started(argv: tuple[str, ...], env: tuple[tuple[str, str], ...], *, stderr: int | None) -> subprocess.Popen[bytes]:
    # A session of its own: Ctrl-C in the caller's terminal is the controller's business.
    return subprocess.Popen(
        argv,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=stderr,
        env={**without_git_secrets(os.environ), **dict(env)},
        start_new_session=True,
    )


def _remove_old_parts(folder: Path) -> None:
    """Remove what killed writers left: a writer has all of its data in memory, and each write renews the time of its part."""
    for part in folder.glob(f"{transport.PART}{'?' * 10}"):
        with contextlib.suppress(OSError):
            if time.time() - part.lstat().st_mtime > _PART_SECONDS:
                part.unlink()


def _needs_sudo(command: Command) -> bool:
    return command.sudo and os.geteuid() != 0


def _not_run(name: str, command: Command, code: int, error: OSError) -> Result:
    """Return what a shell would: a code, and the reason on stderr."""
    return Result(name, command, code, b"", f"{command.argv[0]}: {error.strerror}\n".encode(), 0.0)


def _read(name: str, process: subprocess.Popen[bytes], command: Command) -> tuple[bytes, bytes]:
    """Return what a process says until it ends; a child that stays, and holds the pipes open, is not waited for.

    Raises:
        subprocess.TimeoutExpired: it takes longer than the command's timeout.
        HostError: it says more than is read.
    """
    pipe, out, err = _Pipe(process), bytearray(), bytearray()
    _send(process, command.stdin, last=True)
    deadline = None if command.timeout is None else time.monotonic() + command.timeout
    while True:
        ended = process.poll() is not None
        arrived = pipe.receive(0 if ended else _LOOK_SECONDS)  # after the end: what the pipes still hold
        if arrived is not None:
            out += arrived[0]
            err += arrived[1]
        if len(out) + len(err) > session.ANSWER_BYTES:
            raise session.too_much(name, command)
        left = None if deadline is None else max(0.0, deadline - time.monotonic())
        if ended or arrived is None:
            process.wait(left)
            return bytes(out), bytes(err)
        if left == 0:
            raise subprocess.TimeoutExpired(command.argv, command.timeout or 0)


def _send(process: subprocess.Popen[bytes], data: bytes, *, last: bool) -> None:
    stdin = process.stdin
    assert stdin is not None

    def write() -> None:
        with contextlib.suppress(OSError, ValueError):  # it ended without reading, or is closed: what it says tells why
            stdin.write(data)
            stdin.flush()
        if last:
            with contextlib.suppress(OSError):
                stdin.close()

    if len(data) <= _PIPE_HOLDS:
        write()
    else:
        threading.Thread(target=write, daemon=True).start()


def _end(process: subprocess.Popen[bytes]) -> None:
    """End a process and its group, of which some may outlive it: TERM, and KILL where that is not enough."""
    _signal(process, signal.SIGTERM)
    deadline, pause = time.monotonic() + _END_SECONDS, 0.001
    while (process.poll() is None or (_signal(process, 0) and _runs(process.pid))) and time.monotonic() < deadline:
        time.sleep(pause)
        pause = min(2 * pause, 0.01)
    _signal(process, signal.SIGKILL)
    _waited(process)


def _runs(group: int) -> bool:
    """Return whether a process of a group still runs; a zombie does not, and init may take seconds to reap it."""
    try:
        found = [entry.path for entry in os.scandir("/proc") if entry.name.isdigit()]
    except OSError:
        return True
    for path in found:
        with contextlib.suppress(OSError), open(f"{path}/stat", "rb") as file:
            state, _parent, of_group, *_ = file.read().rpartition(b") ")[2].split()
            if int(of_group) == group and state not in (b"Z", b"X"):
                return True
    return False


def _waited(process: subprocess.Popen[bytes]) -> bool:
    """Wait a moment for the end of a process, and say whether it came."""
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(_END_SECONDS)
    return process.returncode is not None


def _signal(process: subprocess.Popen[bytes], number: int) -> bool:
    """Signal a group; say whether there is one of ours."""
    try:
        os.killpg(process.pid, number)
    except (ProcessLookupError, PermissionError):
        return False
    return True
