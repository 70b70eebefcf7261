"""One command on its way: from the login shell's first word over sudo's question to the marker behind the last byte.

Whatever an rc file or a message of the day says stands before the start marker and is dropped; input is sent only after
it, so that nothing else can take it. The pipe to the host is SSH's or a local process's.
"""

import io
import os
import time
from dataclasses import dataclass
from typing import IO, Any, Protocol

from taco_launch.core.command import Command, Result, login_line, ssh_line, start_line
from taco_launch.core.errors import NOT_FOUND, HostError, last_line
from taco_launch.hosts.remote.credentials import Credentials
from taco_launch.hosts.remote.transport import CutShortError

# What a login shell with its rc files may take; on hosts with a home on a slow file system they do take seconds.
START_SECONDS = 60.0
_KEPT = 1 << 16  # of what stands before the start: enough for the last output
# What a host may answer to one command, on stdout and stderr together: an inventory of its hardware is a hundredth of it.
ANSWER_BYTES = 1 << 25
_LONGEST_SECONDS = 3600.0  # of a command without a timeout of its own


class ProcessStreams(Protocol):
    """A process on a host, by its three streams."""

    def receive(self, timeout: float | None) -> tuple[bytes, bytes] | None:
        """Return what arrived on stdout and stderr, None when both have ended; nothing when time (seconds) is up."""

    def send(self, data: bytes, *, last: bool = False) -> None:
        """Send input, without waiting for it to be read; nothing follows after the `last`."""

    def write(self, data: bytes) -> None:
        """Send input, and wait until it is taken: see `transport.CommandInput`."""

    def ending(self) -> str:
        """Return how the process ended (`exit code 1`), empty where that is not known."""


class StderrTarget(Protocol):
    """Where a program's stderr goes."""

    def write(self, data: bytes, /) -> int:
        """Write a chunk."""

    def flush(self) -> None:
        """Have it appear."""


class TtyRequiredError(Exception):
    """Sudo wants a terminal: to be tried again with one."""


@dataclass(frozen=True)
class CommandSession:
    """How one command travels; `tty` is for a sudo that insists on a terminal.

    `login` is what a person types after `ssh` to get to the host, empty for this machine.
    """

    host: str
    command: Command
    marker: str
    tty: bool = False
    login: tuple[str, ...] = ()

    @property
    def line(self) -> str:
        """What the login shell is given."""
        return login_line(self.marker, sudo=self.command.sudo, tty=self.tty)


def plan(host: str, command: Command, *, tty: bool = False, login: tuple[str, ...] = ()) -> CommandSession:
    """Prepare a command, with a marker that nothing else can hold."""
    return CommandSession(host, command, os.urandom(16).hex(), tty, login)


@dataclass
class StartedProgram:
    """A program that has started: its process group, and what of its output arrived with the start marker."""

    group: int
    stdout: bytes
    stderr: bytes


def start(
    pipe: ProcessStreams, what: CommandSession, access: Credentials, *, whole: bool, open_input: bool = False
) -> StartedProgram:
    """Bring a command to its start and send it its input, behind which more may follow with `open_input`.

    Raises:
        HostError: the login shell or sudo does not let it start, or takes too long.
        TtyRequiredError: sudo wants a terminal.
    """
    line = start_line(what.command, whole=whole, tty=what.tty)
    begin = _Begin(what, access)
    limit = min(START_SECONDS, what.command.timeout or START_SECONDS)
    deadline = time.monotonic() + limit
    while (started := begin.started()) is None:
        arrived = pipe.receive(max(0.0, deadline - time.monotonic()))
        if arrived is None:
            raise begin.refused(pipe.ending())
        if answer := begin.take(*arrived):
            pipe.send(answer)
        if time.monotonic() >= deadline and begin.started() is None:
            raise begin.late(limit)
    if open_input:
        try:
            pipe.write(line + what.command.stdin)
        except OSError:
            raise begin.refused(pipe.ending()) from None
    else:
        pipe.send(line + what.command.stdin, last=not what.tty)
    return started


class _Begin:
    """What was said so far, up to the start markers."""

    def __init__(self, what: CommandSession, access: Credentials) -> None:
        self._what = what
        self._access = access
        self._out = _Before(what.marker)
        self._err = _Before(what.marker)
        self._asked = 0

    def take(self, out: bytes, err: bytes) -> bytes:
        """Note what arrived; return the password where sudo asks for it. Raises HostError without one, or for too much output.

        A host can print the prompt of any command: without sudo there is nothing to be asked.
        """
        self._out.take(out)
        self._err.take(err)
        if len(self._out.said) + len(self._err.said) > ANSWER_BYTES:
            what = self._what
            raise too_much(what.host, what.command, hint=f"see what it prints: {ssh_line(what.login, 'true')}")
        asked = self._out.asked + self._err.asked
        if asked == self._asked or not self._what.command.sudo:
            return b""
        self._asked = asked
        password = self._access.sudo_password
        if password is None:
            raise HostError(
                f"{self._what.host}: sudo asks for a password",
                hint="add --ask-sudo-password, or set TACO_LAUNCH_SUDO_PASSWORD",
            )
        if asked > 1:
            raise HostError(
                f"{self._what.host}: sudo rejected the password",
                hint=f"try it there: {ssh_line(self._what.login, 'sudo -k true', '-t')}",
            )
        return password.encode("utf-8", "surrogateescape") + b"\n"

    def started(self) -> StartedProgram | None:
        """Return the start, when its marker is on every stream."""
        out = self._out.after()
        err = (0, bytes(self._err.said)) if self._what.tty else self._err.after()
        return StartedProgram(out[0], out[1], err[1]) if out and err else None

    def refused(self, ending: str) -> Exception:
        """Return why nothing started."""
        what, said = self._what, self._last_words()
        evidence = f"{said} ({ending})" if said and ending else said or ending or "the connection ended"
        if not what.command.sudo:
            return HostError(
                f"{what.host}: the login shell did not start /bin/sh: {evidence}",
                hint=f"see what it does: {ssh_line(what.login, '/bin/sh -c true')}",
            )
        if b"tty" in self._err.said + self._out.said and not what.tty:
            return TtyRequiredError(evidence)
        if ending == f"exit code {NOT_FOUND}":
            return HostError(
                f"{what.host}: there is no sudo: {evidence}", hint="install sudo there, or log in as root (user: root)"
            )
        return HostError(
            f"{what.host}: sudo refuses: {evidence}",
            hint=f"see what it allows: {ssh_line(what.login, 'sudo -l', '-t')}",
        )

    def _last_words(self) -> str:
        said = (bytes(text.said).replace(text.prompt, b"\n") for text in (self._err, self._out))
        reasons = (text.partition(b"\nThis incident ")[0] for text in said)  # with which sudo ends, after its reason
        return next(filter(None, map(last_line, reasons)), "")

    def late(self, seconds: float) -> HostError:
        """Return what was waited for."""
        what, said = self._what, self._last_words()
        waited = "sudo" if what.command.sudo else "the login shell"
        seen = f"; its last output: {said}" if said else "; it printed nothing"
        if (size := self._out.size + self._err.size) > _KEPT:
            seen = f"; still printing after {size} bytes (is a shell start-up file printing this?), its last output: {said}"
        line, options = ("sudo /bin/sh -c true", ("-t",)) if what.command.sudo else ("/bin/sh -c true", ())
        return HostError(
            f"{what.host}: {waited} did not start /bin/sh within {seconds:g} s{seen}",
            hint=f"see what it does: {ssh_line(what.login, line, *options)}",
        )


class _Before:
    """One stream up to its start marker and behind it; of what stands before, only the end is kept."""

    def __init__(self, marker: str) -> None:
        self.said = bytearray()
        self.size = 0
        self.asked = 0
        self.prompt = f"{marker}:password".encode()
        self._start = f"{marker}:start ".encode()
        self._found = -1

    def take(self, data: bytes) -> None:
        """Add what arrived, which alone is searched."""
        known = len(self.said)
        self.said += data
        self.size += len(data)
        self.asked += self.said.count(self.prompt, max(0, known - len(self.prompt) + 1))
        if self._found < 0:
            self._found = self.said.find(self._start, max(0, known - len(self._start) + 1))
        if self._found < 0:
            del self.said[:-_KEPT]

    def after(self) -> tuple[int, bytes] | None:
        """Return the process group in the marker's line (0: not told), and what stands behind it."""
        if self._found < 0:
            return None
        group, ended, output = bytes(self.said[self._found + len(self._start) :]).partition(b"\n")
        group = group.strip()
        return (int(group) if group.isdigit() and len(group) < 11 else 0, output) if ended else None


def finish(pipe: ProcessStreams, what: CommandSession, started: StartedProgram, begun: float) -> Result:
    """Read a command's output up to the markers behind it; `begun` is when it was given (time.monotonic).

    Raises:
        CutShortError: the answer is not whole, or takes longer than the command's timeout; has what came of it.
    """
    out, err = _Stream(started.stdout, f"{what.marker}:end "), _Stream(started.stderr, f"{what.marker}:end ")
    if what.tty:
        err = _Stream(b"", f"{what.marker}:err")
    timeout = _LONGEST_SECONDS if what.command.timeout is None else what.command.timeout
    program = what.command.argv[0]
    while not (out.ended and err.ended):
        left = begun + timeout - time.monotonic()
        if left <= 0:
            raise CutShortError(
                f"{what.host}: {program} did not end within {timeout:g} s{_seen(err.content())}",
                f"is the host busy? {ssh_line(what.login, 'uptime')}",
                out.content(),
                f"the host had not answered after {timeout:g} s",
            )
        arrived = pipe.receive(left)
        if arrived is None:
            ending = f" ({pipe.ending()})" if pipe.ending() else ""
            raise CutShortError(
                f"{what.host}: the answer of {program} broke off{ending}{_seen(err.content())}",
                f"is the host up, and does the network work? {ssh_line(what.login, 'uptime')}",
                out.content(),
                f"the answer broke off{ending}",
            )
        out.take(arrived[0])
        err.take(arrived[1])
        if out.size + err.size > ANSWER_BYTES:
            raise too_much(what.host, what.command, hint=f"see what it prints: {ssh_line(what.login, 'uptime')}")
        if what.tty and out.ended:
            err.take(out.behind())
    seconds = time.monotonic() - begun
    try:
        code = out.code()
    except ValueError as error:
        raise HostError(f"{what.host}: the answer of {program} ends in no exit code: {error}") from None
    return Result(what.host, what.command, code, out.content(), err.content(), seconds)


def no_terminal(host: str, said: Exception) -> HostError:
    """Return the error of a sudo that wants a terminal where there can be none."""
    return HostError(
        f"{host}: sudo requires a terminal: {said}",
        hint="remove requiretty from sudo's settings (visudo), or log in as root",
    )


def too_much(host: str, command: Command, hint: str = "") -> HostError:
    """Return the error of a command that answers more than is read."""
    return HostError(f"{host}: the answer of {command.argv[0]} is larger than {ANSWER_BYTES >> 20} MiB", hint=hint)


def _seen(said: bytes) -> str:
    words = last_line(said)
    return f"; the last on its stderr: {words}" if words else ""


class _Stream:
    """Output of a program, up to the marker that ends it."""

    def __init__(self, begin: bytes, marker: str) -> None:
        self._data = bytearray()
        self._marker = marker.encode()
        self._end = -1
        self._taken = 0
        self.take(begin)

    def take(self, data: bytes) -> None:
        """Add what arrived."""
        searched = max(0, len(self._data) - len(self._marker))
        self._data += data
        if self._end < 0:
            self._end = self._data.find(self._marker, searched)

    @property
    def size(self) -> int:
        """How many bytes have arrived."""
        return len(self._data)

    @property
    def ended(self) -> bool:
        """Whether the marker and its line are there."""
        return self._end >= 0 and self._data.find(b"\n", self._end) >= 0

    def content(self) -> bytes:
        """Return what stands before the marker."""
        return bytes(self._data if self._end < 0 else self._data[: self._end])

    def code(self) -> int:
        """Return the exit code behind the marker.

        Raises:
            ValueError: none stands there.
        """
        text = bytes(self._data[self._end + len(self._marker) : self._data.find(b"\n", self._end)]).strip()
        code = int(text) if text.isdigit() and len(text) < 4 else -1
        if not 0 <= code <= 255:
            raise ValueError(f"exit code {text[:20]!r}")
        return code

    def behind(self) -> bytes:
        """Return what stands behind the marker's line and was not given yet."""
        begin = max(self._taken, self._data.find(b"\n", self._end) + 1)
        self._taken = len(self._data)
        return bytes(self._data[begin:])


class _Reader(io.RawIOBase):
    """A program's stdout as a file, as it comes; what it says on stderr is passed on to `errors`."""

    def __init__(
        self, pipe: ProcessStreams, what: CommandSession, started: StartedProgram, errors: StderrTarget
    ) -> None:
        super().__init__()
        self._pipe = pipe
        self._what = what
        self._data = started.stdout
        self._errors = errors
        timeout = what.command.timeout
        self._deadline = None if timeout is None else time.monotonic() + timeout
        self._say(started.stderr)

    def readable(self) -> bool:
        """Return True."""
        return True

    def readinto(self, buffer: Any) -> int:
        """Fill a part of the buffer; return 0 at the end.

        Raises:
            HostError: the command's timeout is over.
        """
        while not self._data:
            left = None if self._deadline is None else self._deadline - time.monotonic()
            if left is not None and left <= 0:
                raise self._late()
            arrived = self._pipe.receive(left)
            if arrived is None:
                return 0
            self._data = arrived[0]
            self._say(arrived[1])
        if self._deadline is not None and time.monotonic() > self._deadline:  # a host that never stops talking
            raise self._late()
        view = memoryview(buffer).cast("B")
        count = min(len(view), len(self._data))
        view[:count], self._data = self._data[:count], self._data[count:]
        return count

    def _late(self) -> HostError:
        what = self._what
        return HostError(
            f"{what.host}: no complete answer after {what.command.timeout:g} s",
            hint=f"is the host busy? {ssh_line(what.login, 'uptime')}",
        )

    def _say(self, said: bytes) -> None:
        if said:
            self._errors.write(said)
            self._errors.flush()


def reader(pipe: ProcessStreams, what: CommandSession, started: StartedProgram, errors: StderrTarget) -> IO[bytes]:
    """Return a program's stdout as a buffered file; reading fails when the command's timeout is over."""
    return io.BufferedReader(_Reader(pipe, what, started, errors))
