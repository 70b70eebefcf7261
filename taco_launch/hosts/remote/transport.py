"""What a host can be asked, whatever lies between: run a command, put a file, follow a command's output."""

from contextlib import AbstractContextManager
from pathlib import PurePosixPath
from typing import IO, NamedTuple, NoReturn, Protocol

from taco_launch.core.command import Command, Result
from taco_launch.core.errors import HostError, last_line

# What a writer that was killed leaves beside its target: PART and ten characters. The next writer there removes it.
PART = ".taco-"
# $1 is the path, $2 the mode, $3 the size. A cut connection looks like the end of the file: hence the size. No writer whose
# connection stalls is given five minutes for an agent or for py-spy.
_PUT = """set -eu
umask 077
if [ -d "$1" ]; then echo "$1: is a folder" >&2; exit 1; fi
mkdir -p "${1%/*}/"
find "${1%/*}/" -maxdepth 1 -type f -name '.taco-??????????' -mmin +5 -exec rm -f {} \\; 2>/dev/null || :
part=$(mktemp "${1%/*}/.taco-XXXXXXXXXX")
trap 'rm -f "$part"' EXIT
dd of="$part" bs=65536 conv=fsync 2>/dev/null || { dd of=/dev/null bs=65536 2>/dev/null; df "$part" >&2; exit 1; }
if [ "$(wc -c <"$part")" -ne "$3" ]; then echo "only a part arrived" >&2; exit 1; fi
chmod "$2" "$part"
mv -f "$part" "$1"
"""

_PUT_SECONDS = 120.0
_SLOWEST = 1e5  # bytes a second


class CommandInput(Protocol):
    """The stdin of a command that runs; any thread may write to it, one at a time."""

    def write(self, data: bytes) -> None:
        """Send data, and wait as long as the command does not take it.

        Raises:
            OSError: nobody reads it any more: the command has ended, or the connection was lost.
        """

    def close(self) -> None:
        """End the input; nothing is raised where it has ended already."""


class NoInput:
    """The stdin of a command that has had all of its input."""

    def write(self, _data: bytes) -> None:
        """Refuse: see `CommandInput.write`."""
        raise BrokenPipeError

    def close(self) -> None:
        """Nothing is open."""


class Conversation(NamedTuple):
    """A command that runs: what it says, and its input, which is open."""

    stdout: IO[bytes]
    stdin: CommandInput


class Transport(Protocol):
    """A host, and the way to it. A transport belongs to one thread at a time."""

    @property
    def name(self) -> str:
        """The host's name in the inventory."""

    def run(self, command: Command) -> Result:
        """Execute a command and wait for its end; no arguments, environment or output is changed by any shell.

        Raises:
            HostError: there is no connection, no whole answer, not in time, or sudo refuses. A program that is not
                there or fails is a Result: 127, 126, its own code.
            CutShortError: of these, the answer started and is not whole; says what came of it.
        """

    def put(self, data: bytes, path: str, mode: int = 0o600, *, sudo: bool = False) -> None:
        """Write a file at an absolute path, whole or not at all; folders that are missing are made, mode 0700.

        Raises:
            HostError: it cannot be written, or as `run` does.
        """

    def tail(self, command: Command) -> AbstractContextManager[IO[bytes]]:
        """Execute a command and give its stdout while it runs; at the end of the block it is ended.

        What it says on stderr goes to this process's stderr. The command's timeout is for all of its output; reading
        from a host fails after it.

        Raises:
            HostError: there is no connection, or sudo refuses.
        """

    def converse(self, command: Command) -> AbstractContextManager[Conversation]:
        """Do as `tail`, and keep the command's input open behind its `stdin`.

        Raises:
            HostError: as `tail`, or sudo insists on a terminal, whose input has no end.
        """

    def close(self) -> None:
        """End the connection, from any thread; a command that runs gets no more of it."""


class CutShortError(HostError):
    """A program's answer that is not whole: `stdout` is what came of it, `why` what cut it off."""

    def __init__(self, message: str, hint: str, stdout: bytes, why: str) -> None:
        """Keep what came beside the message."""
        super().__init__(message, hint)
        self.stdout = stdout
        self.why = why


class Unreachable:
    """A host that there is no way to: whatever it is asked, the answer is why."""

    def __init__(self, name: str, error: HostError) -> None:
        """Answer with `error`."""
        self.name = name
        self._error = error

    def run(self, _command: Command) -> NoReturn:
        """Raise the error: see `Transport.run`."""
        self.fail()

    def put(self, _data: bytes, _path: str, _mode: int = 0o600, *, sudo: bool = False) -> NoReturn:
        """Raise the error: see `Transport.put`."""
        del sudo
        self.fail()

    def tail(self, _command: Command) -> NoReturn:
        """Raise the error: see `Transport.tail`."""
        self.fail()

    def converse(self, _command: Command) -> NoReturn:
        """Raise the error: see `Transport.converse`."""
        self.fail()

    def close(self) -> None:
        """Nothing is open."""

    def fail(self) -> NoReturn:
        """Raise why it cannot be reached."""
        raise HostError(self._error.message, self._error.hint)


def put(transport: Transport, data: bytes, path: str, mode: int, *, sudo: bool) -> None:
    """Do what `Transport.put` promises by means of its `run`.

    Raises:
        HostError: the file cannot be written.
        ValueError: the path is not absolute.
    """
    where = str(PurePosixPath(path))
    if not where.startswith("/"):
        raise ValueError(f"{path}: not an absolute path")
    argv = ("/bin/sh", "-c", _PUT, "put", where, f"{mode:o}", str(len(data)))
    result = transport.run(Command(argv, data, sudo=sudo, timeout=_PUT_SECONDS + len(data) / _SLOWEST))
    if result.exit_code:
        raise HostError(
            f"{transport.name}: cannot write {path}: {last_line(result.stderr) or f'exit code {result.exit_code}'}",
            hint="is there space, and may this user write there? df, ls -ld",
        )
