"""The agent on the other hosts of a job, by the plain `ssh` of PATH; whom it reaches, and how, its configuration says."""

import contextlib
import os
import re
import resource
import select
import signal
import socket
import subprocess
import time
from pathlib import Path
from typing import IO, List, Optional, Sequence, Tuple, Type, TypeVar, Union

from taco_launch.agent.store.folders import Jobs, state_folder
from taco_launch.core.command import shell
from taco_launch.core.errors import last_line
from taco_launch.core.protocol.framing import LINE_BYTES, parsed
from taco_launch.core.protocol.message import Message
from taco_launch.core.protocol.relay_messages import NoAgent

_Answer = TypeVar("_Answer", bound=Message)

# $1 is the agent where set-up puts it, which a container may only read; $2 where `AgentUpload` does.
_RUN = 'a=$1; [ -f "$2" ] && a=$2; shift 2; exec python3 -I -S "$a" "$@"'
_OPTIONS = ("-o", "BatchMode=yes", "-o", "ConnectTimeout=10")
# For a question that a person waits for: the containers' ssh_config has three attempts, which take 33 s of a host that is off.
ONCE = ("-o", "ConnectionAttempts=1")
# ssh's own exit code when there is no connection.
NOT_CONNECTED = 255
# Of what it prints where it gets none at all: not where the host is too busy for the handshake that follows, nor where a
# jump host is in the way. A host that refuses a connection answers.
_NO_CONNECTION, _REFUSED = "ssh: connect to host ", "Connection refused"
# More at a time only compete for the head's cores, as with mpirun's own.
MOST_AT_ONCE = 64
# $1 bytes of stdin become the file $2, whole or not at all: a connection that is cut looks like the end of the file. The login
# shell there reads this, csh too: one line, no single quotes, no exclamation mark.
_KEEP = (
    'set -eu; umask 077; mkdir -p "${2%/*}"; part=$2.$$; head -c "$1" >"$part"'
    ' && { [ "$(wc -c <"$part")" -eq "$1" ] || { echo only a part arrived >&2; false; }; }'
    ' && chmod 600 "$part" && mv -f "$part" "$2" || { rm -f "$part"; exit 1; }'
)
# As _RUN of an agent of $3 bytes, which is requested by a message, and then read from stdin, where the host has not got it, or
# only a part: a zip file ends with 22 bytes of its own.
_RUN_BROUGHT = (
    'a=$1; [ -f "$2" ] && a=$2; [ -f "$a" ] && [ "$(tail -c 22 "$a" | head -c 2)" = PK ]'
    f' || {{ echo "{{\\"op\\":\\"{NoAgent.op}\\"}}"; a=$2; (set -- "$3" "$2"; {_KEEP}) || exit 1; }}'
    '; shift 3; exec python3 -I -S "$a" "$@"'
)
_PUT_SECONDS = 60.0
# Of what an ssh says on its stderr.
_MOST_ERRORS = 1 << 20
_SSH_NO_KEY = "Host key verification failed."
_NO_KEY = "it is not set up with this head, which does not know its host key: run setup; without a container, ssh to it once from the head"
# What srun, which stands for ssh in an allocation of Slurm, prints below the words of the program itself.
_OF_SRUN = re.compile(rb"^srun: error: .*(?:Exited with exit code|task \d+: Killed).*$", re.MULTILINE)
# So says the Python of a host where the agent is not, or only a part of it, which it takes for a script.
_NO_AGENT = ("can't open file", "SyntaxError")


def argv(
    host: str,
    agent: str,
    *words: str,
    options: Sequence[str] = (),
    state: Optional[Path] = None,
    brings: bool = False,
) -> Tuple[str, ...]:
    """Return the command that runs an operation of the agent on a host; `state` is the state folder, by default this process's.

    With `brings`, a host that has not got the agent first says NoAgent, and then reads it from its stdin.

    Raises:
        OSError: the agent to bring is not there.
    """
    size = (str(Path(agent).stat().st_size),) if brings else ()
    script = _RUN_BROUGHT if brings else _RUN
    run = ("/bin/sh", "-c", script, "agent", agent, brought(agent, state), *size, *words)
    return ("ssh", *_OPTIONS, *options, host, shell(run))


def brought(agent: str, state: Optional[Path] = None) -> str:
    """Return where another host has an agent that was brought there: beside its jobs, by the same name."""
    return str(Jobs(state or state_folder(os.environ, os.geteuid())).path / ".agents" / Path(agent).name)


def ask(
    hosts: Sequence[str], agent: str, answer: Type[_Answer], *words: str, seconds: float
) -> List[Tuple[str, Union[_Answer, str]]]:
    """Have each host do one operation, side by side; return (host, its answer), or (host, why there is none)."""
    return ask_by([(host, argv(host, agent, *words, options=ONCE)) for host in hosts], answer, seconds)


def ask_by(
    lines: Sequence[Tuple[str, Sequence[str]]], answer: Type[_Answer], seconds: float
) -> List[Tuple[str, Union[_Answer, str]]]:
    """Run the command of each host, side by side; return as `ask` does."""

    def request(line: Sequence[str]) -> Union[_Answer, str]:
        errors = ErrorOutput()
        try:
            process = subprocess.Popen(
                list(line),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=errors.file,
            )
        except OSError as error:
            return f"{line[0]}: {error.strerror}"
        if line[0] == "ssh":
            errors.limit(process.pid)
        with process:
            said = output(process, seconds)
            process.kill()  # if it has not ended, it is to say no more
        if said is None:
            return f"no answer within {seconds:g} s"
        last = said.rpartition(b"\n")[0].rpartition(b"\n")[2]
        return understood(last, answer) or errors.last_line() or f"{line[0]}: exit {process.returncode}"

    from concurrent.futures import ThreadPoolExecutor  # noqa: PLC0415 - every supervisor and guard imports this file

    with ThreadPoolExecutor(max(1, min(len(lines), MOST_AT_ONCE))) as pool:
        answers = pool.map(request, [line for _host, line in lines])
        return [(host, found) for (host, _line), found in zip(lines, answers)]


def understood(line: bytes, kind: Type[_Answer]) -> Union[_Answer, str]:
    """Return the message that a line of another process is, or why it is none; empty where it is no JSON at all."""
    found = parsed(line)
    if found is None:
        return ""
    try:
        return kind.from_wire(found)
    except ValueError as error:
        return f"its answer cannot be read: {error} (is it from another version of taco-launch?)"


def output(process: "subprocess.Popen[bytes]", seconds: float) -> Optional[bytes]:
    """Return what a process says until its end, no more than a line may hold; None where its end does not come in time."""
    assert process.stdout is not None
    until, said = time.monotonic() + seconds, b""
    poll = select.poll()  # select() takes no descriptor above 1023, and the supervisor of a large job has more
    poll.register(process.stdout, select.POLLIN)
    while len(said) <= LINE_BYTES:
        if not poll.poll(max(0.0, until - time.monotonic()) * 1000):
            return None
        piece = os.read(process.stdout.fileno(), 1 << 16)
        if not piece:
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(max(0.0, until - time.monotonic()))
            break
        said += piece
    return said


def lacks_agent(said: str) -> bool:
    """Return, by the last output of an operation whether the host has not got this agent yet."""
    return any(word in said for word in _NO_AGENT)


class ErrorOutput:
    """Keeps what a running ssh, or another program, prints on stderr: a file without a name, which nothing has to read meanwhile."""

    def __init__(self) -> None:
        """Open it."""
        import tempfile  # noqa: PLC0415 - only who has other hosts needs it

        self.file: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115 - closed with the connection

    def limit(self, pid: int) -> None:
        """Have a process write only so much of it: what it prints comes from another host, or from a rank."""
        with contextlib.suppress(OSError):  # it is gone
            resource.prlimit(pid, resource.RLIMIT_FSIZE, (_MOST_ERRORS, _MOST_ERRORS))

    def last_line(self) -> str:
        """Return its last output; of a host whose key is not known, what that means."""
        self.file.seek(0)
        last = last_line(_OF_SRUN.sub(b"", self.file.read(1 << 16)))
        return _NO_KEY if last == _SSH_NO_KEY else last

    def text(self) -> str:
        """Return its output, the first 64 KiB of it."""
        self.file.seek(0)
        return self.file.read(1 << 16).decode("utf-8", "replace")


class AgentUpload:
    """The agent on its way to a host that has not got this one; nobody waits for it."""

    def __init__(self, host: str, agent: str) -> None:
        """Start it.

        Raises:
            OSError: the agent cannot be read, or there is no ssh.
        """
        self._errors = ErrorOutput()
        self._until = time.monotonic() + _PUT_SECONDS
        path = brought(agent)
        self.folder = str(Path(path).parent)
        with open(agent, "rb") as content:
            size = str(os.fstat(content.fileno()).st_size)
            command = ("ssh", *_OPTIONS, host, shell(("/bin/sh", "-c", _KEEP, "put", size, path)))
            self._process = subprocess.Popen(
                command,
                stdin=content,
                stdout=subprocess.DEVNULL,
                stderr=self._errors.file,
                start_new_session=True,
            )
        self.pid = self._process.pid
        self._errors.limit(self.pid)

    def problem(self) -> Optional[str]:
        """Return why it failed, empty where it did not; None as long as it continues."""
        code = self._process.poll()
        if code is None:
            return f"not within {_PUT_SECONDS:g} s" if time.monotonic() > self._until else None
        return self._errors.last_line() or f"exit {code}" if code else ""

    def close(self) -> None:
        """End it, unless it has ended."""
        self._process.kill()
        self._process.wait()


class AgentFeed:
    """The agent's bytes on their way into a connection whose host has requested them; nobody waits for them."""

    def __init__(self, agent: str, connection: socket.socket) -> None:
        """Start it.

        Raises:
            OSError: no process can be started.
        """
        self._until = time.monotonic() + _PUT_SECONDS
        command = ("cat", agent)
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=connection.fileno(),
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        self.pid = self._process.pid

    def problem(self) -> Optional[str]:
        """Return why it failed, empty where it did not, or where the host will say why; None as long as it continues."""
        code = self._process.poll()
        if code is None:
            return "it takes too long" if time.monotonic() > self._until else None
        return "" if code in (0, -signal.SIGPIPE) else f"cat: exit {code}"

    def close(self) -> None:
        """End it, unless it has ended."""
        self._process.kill()
        self._process.wait()


class SecondConnection:
    """An ssh that only has to connect, by no connection that is there already: it tells a host that is cut off from a slow one.

    The first ssh cannot tell: once it is connected, it waits in silence for a login that takes long, as for a host that no
    packet reaches any more. The kernel of a busy host still accepts connections.
    """

    def __init__(self, host: str, again: float) -> None:
        """Start it, unless there is no ssh; where it can connect, it starts again after so many seconds."""
        self._host, self._again = host, again
        self._start()

    def problem(self) -> str:
        """Return why the host cannot be connected to; "" where it can be, or this is not known yet."""
        if self._process is None or self._process.poll() is None:
            return ""
        words = self._errors.last_line() if self._process.returncode == NOT_CONNECTED else ""
        if words.startswith(_NO_CONNECTION) and not words.endswith(_REFUSED):
            return words
        if time.monotonic() - self._begun > self._again:
            self.close()
            self._start()
        return ""

    def close(self) -> None:
        """End it, unless it has ended."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    def _start(self) -> None:
        self._begun = time.monotonic()
        self._errors = ErrorOutput()
        self._process: Optional[subprocess.Popen[bytes]] = None
        command = ("ssh", *_OPTIONS, *ONCE, "-o", "ControlPath=none", self._host, "true")
        with contextlib.suppress(OSError):
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=self._errors.file,
                start_new_session=True,
            )
            self._errors.limit(self._process.pid)
