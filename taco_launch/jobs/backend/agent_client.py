"""The head as the controller sees it: calls of its agent, each a request and its replies, and the way to it."""

import os
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, TypeVar

from taco_launch.core import trace
from taco_launch.core.command import BARE, Command, as_typed
from taco_launch.core.errors import (
    HOST_FAILED,
    KINDS,
    DamagedRecordError,
    HostError,
    NoJobError,
    OwnerError,
    TacoLaunchError,
    UsageError,
)
from taco_launch.core.model.host.hosts import Inventory
from taco_launch.core.model.job_view import JobView
from taco_launch.core.protocol import framing as protocol
from taco_launch.core.protocol.calls import EndOfReplies, Failure, Reply, Request, reply_of
from taco_launch.hosts.remote import agent_bundle
from taco_launch.hosts.remote.credentials import Credentials
from taco_launch.hosts.remote.local import LocalTransport
from taco_launch.hosts.remote.transport import Conversation, NoInput, Transport
from taco_launch.jobs.backend import agent_location
from taco_launch.jobs.backend.agent_location import AgentLocation

if TYPE_CHECKING:
    from taco_launch.jobs.backend.dialogue import Dialogue

# What a host may answer, since it may be anybody's by now. Logs are followed in frames, and only one is kept at a time.
_ANSWER_BYTES = 1 << 25
# Each takes up to a hundred bytes of memory, however short its text is.
_ANSWER_VALUES = 2 << 20
_DATA_BYTES = 1 << 23
_ANSWER_SECONDS = 300.0
# Operations that need py-spy on this machine, at once or later: a job whose ranks hang has their stacks read.
_READS_STACKS = frozenset(("submit", "stacks"))


_Kind = TypeVar("_Kind", bound=Reply)


class AgentError(TacoLaunchError):
    """An error that the agent answered with; it keeps the exit code it had there."""

    def __init__(self, message: str, hint: str | None, exit_code: int, kind: str = "") -> None:
        """Keep what the agent said; a kind that errors.py does not have is left out."""
        super().__init__(message, hint)
        self.exit_code = exit_code
        self.kind = kind if kind in KINDS else TacoLaunchError.kind


class _AgentUsageError(AgentError, UsageError):
    """What the agent was asked for cannot be."""


class _AgentNoJobError(AgentError, NoJobError):
    """The agent has no such job."""


class _AgentOwnerError(AgentError, OwnerError):
    """The job is another user's."""


class _AgentDamagedRecordError(AgentError, DamagedRecordError):
    """The agent cannot read a job's record."""


# Those that a caller tells apart. No other is a HostError: that is one for which the agent may not have been reached.
_ERRORS = {kind.kind: kind for kind in (_AgentUsageError, _AgentNoJobError, _AgentOwnerError, _AgentDamagedRecordError)}


class AgentClient:
    """Calls the agent on a host, and uploads this controller's version of it if that is missing.

    Its calls may be made from several threads at once, as those of the transports are.
    """

    def __init__(self, remote: Transport, where: AgentLocation, typed: str = BARE) -> None:
        """Speak by way of `remote` to the agent at `where`; `typed` is how taco-launch is called, for hints."""
        self.location = where
        self.typed = typed
        self._remote = remote
        self._contents: tuple[tuple[str, bytes], ...] = ()

    @property
    def name(self) -> str:
        """The host's name in the inventory."""
        return self._remote.name

    def expect(self, request: Request, kind: type[_Kind]) -> _Kind:
        """Return the last reply of that kind.

        Raises:
            HostError: as `call`, or there is none.
        """
        found = [reply for reply in self.call(request) if isinstance(reply, kind)]
        if not found:
            raise HostError(f"{self.name}: {request.op}: not a taco-launch message: the answer has no {kind.op}")
        return found[-1]

    def call(self, request: Request) -> list[Reply]:
        """Return all replies.

        Raises:
            AgentError: the agent replied with an error.
            HostError: the host cannot be reached, is not set up, or gave no whole answer, or none of taco-launch.
        """
        answer: list[Reply] = []
        size = count = 0
        seconds = _ANSWER_SECONDS * max(1, len(getattr(request, "names", ()))) + (getattr(request, "grace", None) or 0)
        with self._stream(request, seconds) as replies:
            for reply, length, values in replies:
                size += length
                count += values
                if size > _ANSWER_BYTES or count > _ANSWER_VALUES:
                    raise HostError(
                        f"{self.name}: the answer to {request.op} is larger than {_ANSWER_BYTES >> 20} MiB, or has more "
                        f"than {_ANSWER_VALUES >> 20} million values",
                        hint="are there very many old jobs? remove them: taco-launch prune --older-than 30d",
                    )
                answer.append(reply)
        return answer

    @contextmanager
    def stream(self, request: Request) -> Iterator[Iterator[Reply]]:
        """Return the replies as they come, without a limit of time: it may be a log that is followed for days.

        Leaving the block ends the call. Raises as `call` does.
        """
        with self._stream(request, None) as replies:
            yield (reply for reply, _length, _values in replies)

    @contextmanager
    def converse(self, request: Request) -> "Iterator[Dialogue]":
        """Return the replies as they come, as `stream` does, and what takes the frames that follow the request.

        Raises as `call` does.
        """
        from taco_launch.jobs.backend.dialogue import Dialogue  # noqa: PLC0415 - few calls go on like this

        with self._timed(request), self._answering(request, None, self._remote.converse) as found:
            replies = (reply for reply, _length, _values in self._replies(request.op, found.stdout))
            with Dialogue(replies, found.stdin, self.name) as talk:
                yield talk

    @contextmanager
    def _stream(self, request: Request, timeout: float | None) -> Iterator[Iterator[tuple[Reply, int, int]]]:
        with self._timed(request), self._answering(request, timeout, self._followed) as found:
            yield self._replies(request.op, found.stdout)

    @contextmanager
    def _timed(self, request: Request) -> Iterator[None]:
        op = request.op
        trace.decision("%s: %s: the agent is called", self.name, op)
        trace.message("sent", request, self.name)
        begun, how = time.monotonic(), "failed"
        try:
            yield
            how = "answered"
        finally:
            trace.decision("%s: %s: %s after %.2f s", self.name, op, how, time.monotonic() - begun)

    @contextmanager
    def _followed(self, command: Command) -> Iterator[Conversation]:
        with self._remote.tail(command) as stdout:
            yield Conversation(stdout, NoInput())

    @contextmanager
    def _answering(
        self,
        request: Request,
        timeout: float | None,
        start: Callable[[Command], AbstractContextManager[Conversation]],
    ) -> Iterator[Conversation]:
        """Start a call and give its replies, behind their header; where the agent is not there yet it is put there.

        Raises:
            HostError: the agent was written and is not there.
        """
        op, missing = request.op, self.location.missing(self._agent()) or None
        command = Command(
            self.location.argv(self._agent(), op),
            protocol.dump(protocol.header(op, "")) + request.encode(),
            sudo=self.location.sudo,
            timeout=timeout,
        )
        if self.location.python and op in _READS_STACKS:
            self._put_py_spy(Path(self.location.folder))
        if missing is None:
            with start(command) as found:
                missing = self._begin(op, found.stdout)
                if missing is None:
                    yield found
                    return
        trace.decision("%s: %s does not exist: installing the agent", self.name, missing)
        built = agent_bundle.build(self._contents)
        if not self.location.python or self.location.missing(self._agent()):  # another controller may have been faster
            self._remote.put(built, missing, sudo=self.location.sudo)
        if not self.location.python:
            self._put_py_spy(Path(missing).parent)
        with start(command) as found:
            if self._begin(op, found.stdout) is not None:
                raise HostError(
                    f"{self.name}: {missing} was written but does not exist",
                    hint="check whether something on the host removes files there",
                )
            yield found

    def _put_py_spy(self, folder: Path) -> None:
        """Put the program that reads stacks into the agent's folder; without it a job runs, and `stacks` names it.

        Not before other operations, on this machine: it has 8 MB, and what frees space must work on a full disk.
        """
        if self.location.python and any(folder.glob("py-spy-*")):
            return
        from taco_launch.hosts.remote import py_spy  # noqa: PLC0415 - once for each version of the agent

        program = py_spy.program()
        try:
            if program is not None:
                self._remote.put(program[1], str(folder / program[0]), sudo=self.location.sudo)
        except HostError as error:
            trace.decision("%s: py-spy is not installed: %s", self.name, error.message)

    def prestart(self, op: str) -> None:
        """Start the agent of this machine for a call that is still being made up, which continues with it then."""
        if (
            isinstance(self._remote, LocalTransport)
            and not self.location.sudo
            and not self.location.missing(self._agent())
        ):
            self._remote.prestart(Command(self.location.argv(self._agent(), op)))

    def _agent(self) -> str:
        self._contents = self._contents or agent_bundle.sources()
        return agent_bundle.name(self._contents)

    def _begin(self, op: str, stdout: IO[bytes]) -> str | None:
        """Read the answer's header; return the path of the agent's file instead where that is missing.

        Raises:
            HostError: the answer is none of an agent, or the host is not set up.
        """
        line = stdout.readline(protocol.LINE_BYTES + 1)
        if line.startswith(agent_location.UNREADY):
            what, words = _unready(line)
            if what == agent_location.AGENT:
                return self.location.destination(self.name, self._agent(), words)
            raise self.location.refused(self.name, what, words, f"{self.typed} setup")
        if line == agent_location.READY:
            line = stdout.readline(protocol.LINE_BYTES + 1)
        if line.startswith(agent_location.UNREADY):  # the agent's own word, which names nothing to be done
            raise self.location.refused(self.name, *_unready(line), f"{self.typed} setup")
        protocol.check(self._read(op, line), "the controller", self.name)
        return None

    def _replies(self, op: str, stdout: IO[bytes]) -> Iterator[tuple[Reply, int, int]]:
        """Yield each reply, how many bytes it had, and of how many values.

        Raises:
            HostError: the answer breaks off, or is no message.
            TacoLaunchError: the agent reports it.
        """
        while True:
            line = stdout.readline(protocol.LINE_BYTES + 1)
            data = self._read(op, line)
            count = data.get("bytes", 0)
            if type(count) is not int or not 0 <= count <= _DATA_BYTES:
                raise HostError(f"{self.name}: {op}: not a taco-launch message: invalid byte count {str(count)[:40]}")
            try:
                reply = reply_of(data)
            except ValueError as error:
                raise HostError(f"{self.name}: {op}: not a taco-launch message: {error!s:.200}") from None
            trace.message("received", reply, self.name)
            if isinstance(reply, EndOfReplies):
                return
            if isinstance(reply, Failure):
                raise self.error(reply)
            raw = stdout.read(count) if count else b""
            if len(raw) < count:
                raise self._broken_off(op)
            yield self._completed(reply, raw), len(line) + len(raw), protocol.values(line)

    def error(self, failure: Failure) -> AgentError:
        """Return the error that the agent reported."""
        # What is wrong with its host the agent says without a name: it knows none.
        host = f"{self.name}: " if failure.exit_code == HOST_FAILED and self.location.inherit else ""
        code = failure.exit_code if 0 < failure.exit_code < 256 else HOST_FAILED  # an error never ends in success
        hint = failure.hint and as_typed(failure.hint, self.typed)
        if hint and hint.endswith("taco-launch list") and self.typed == BARE:
            hint = f"{hint} (for jobs on a cluster: taco-launch -i FILE list)"
        return _ERRORS.get(failure.kind, AgentError)(f"{host}{failure.message}", hint, code, failure.kind)

    def _completed(self, reply: Reply, raw: bytes) -> Reply:
        """Add a reply's data, and have a job's hints and warnings say what to type here."""
        if raw:
            return reply.replace(data=raw)
        job: JobView | None = vars(reply).get("job")
        if job is None:
            return reply
        record = replace(
            job.record,
            hint=job.record.hint and as_typed(job.record.hint, self.typed),
            warnings=tuple(as_typed(warning, self.typed) for warning in job.record.warnings),
            waiting=tuple((host, as_typed(why, self.typed)) for host, why in job.record.waiting),
        )
        events = (replace(each, hint=each.hint and as_typed(each.hint, self.typed)) for each in job.events)
        return reply.replace(job=replace(job, record=record, events=tuple(events)))

    def _read(self, op: str, line: bytes) -> dict[str, Any]:
        try:
            data = protocol.message(line)
        except UsageError as error:
            raise HostError(f"{self.name}: {op}: {error.message}") from None
        if data is None:
            raise self._broken_off(op)
        return data

    def _broken_off(self, op: str) -> HostError:
        hint = "is the host up, and does the network work? the agent's output, if any, is above"
        return HostError(f"{self.name}: the answer to {op} broke off", hint)


def _unready(line: bytes) -> tuple[str, str]:
    """Return what is in the way, and the words on it, as they may be shown."""
    what, _, words = line[len(agent_location.UNREADY) :].decode("utf-8", "replace").strip().partition(" ")
    return what, words


@contextmanager
def reach(inventory: Inventory, access: Credentials, environ: Mapping[str, str], typed: str) -> Iterator[AgentClient]:
    """Return the head of an inventory, which the first call connects to; `typed` as in `Head`.

    Raises:
        SpecError: ~/.ssh/config cannot be read.
    """
    from taco_launch.hosts.fanout import connect  # noqa: PLC0415 - without an inventory nobody needs it

    host = next(host for host in inventory.hosts if host.name == inventory.head)
    with connect(inventory, (host,), access) as fanout:
        (transport,) = fanout.transports
        yield AgentClient(transport, agent_location.of(inventory, environ, os.geteuid()), typed)
