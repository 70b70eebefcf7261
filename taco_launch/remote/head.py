"""The head as the controller sees it: operations of its agent, answered in frames, and the way to it."""

import os
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import field
from typing import IO, Any

from taco_launch.command import BARE, Command, as_typed
from taco_launch.errors import HOST_FAILED, HostError, TacoLaunchError, UsageError
from taco_launch.frozen import dataclass
from taco_launch.model.host.hosts import Inventory
from taco_launch.protocol import framing as protocol
from taco_launch.remote import agent_location, bundle
from taco_launch.remote.agent_location import Seat
from taco_launch.remote.answers import Answer
from taco_launch.remote.credentials import Access
from taco_launch.remote.local import Local
from taco_launch.remote.transport import Transport

# What a host may answer, since it may be anybody's by now. Logs are followed in frames, and only one is kept at a time.
_ANSWER_BYTES = 1 << 25
# Each takes up to a hundred bytes of memory, however short its text is.
_ANSWER_VALUES = 2 << 20
_FRAME_BYTES = 1 << 23
_ANSWER_SECONDS = 300.0


@dataclass(frozen=True)
class Frame:
    """One frame of an answer: its values, of which there are `count` in `size` bytes, and the raw bytes that follow it."""

    data: Mapping[str, Any]
    raw: bytes = b""
    size: int = field(default=0, compare=False)
    count: int = field(default=0, compare=False)


class AgentError(TacoLaunchError):
    """An error that the agent answered with; it keeps the exit code it had there."""

    def __init__(self, message: str, hint: str | None, exit_code: int) -> None:
        """Keep what the agent said."""
        super().__init__(message, hint)
        self.exit_code = exit_code


class Head:
    """An agent on a host; where this controller's version of it is not there yet, the first call puts it there.

    Its calls may be made from several threads at once, as those of the transports are.
    """

    def __init__(self, remote: Transport, where: Seat, typed: str = BARE) -> None:
        """Speak by way of `remote` to the agent at its seat; `typed` is how taco-launch is called, for hints."""
        self.seat = where
        self.typed = typed
        self._remote = remote
        self._contents: tuple[tuple[str, bytes], ...] = ()

    @property
    def name(self) -> str:
        """The host's name in the inventory."""
        return self._remote.name

    def one(self, op: str, **request: Any) -> Mapping[str, Any]:
        """Return the last frame of an answer that has to have one. Raises as `call` does."""
        answer = self.call(op, **request)
        return answer[-1] if answer else Answer(self.name, op, {})

    def call(self, op: str, **request: Any) -> list[Mapping[str, Any]]:
        """Return all frames of an answer.

        Raises:
            AgentError: the agent answered with an error.
            HostError: the host cannot be reached, is not set up, or gave no whole answer, or none of taco-launch.
        """
        answer: list[Mapping[str, Any]] = []
        size = count = 0
        with self._stream(op, request, _ANSWER_SECONDS + float(request.get("grace") or 0)) as frames:
            for frame in frames:
                size += frame.size + len(frame.raw)
                count += frame.count
                if size > _ANSWER_BYTES or count > _ANSWER_VALUES:
                    raise HostError(
                        f"{self.name}: the answer to {op} is larger than {_ANSWER_BYTES >> 20} MiB, or has more than "
                        f"{_ANSWER_VALUES >> 20} million values",
                        hint="are there very many old jobs? remove them: taco-launch prune",
                    )
                answer.append(frame.data)
        return answer

    def stream(self, op: str, **request: Any) -> AbstractContextManager[Iterator[Frame]]:
        """Return the frames of an answer as they come, without a limit of time: it may be a log that is followed for days.

        Leaving the block ends the call. Raises as `call` does.
        """
        return self._stream(op, request, None)

    @contextmanager
    def _stream(self, op: str, request: Mapping[str, Any], timeout: float | None) -> Iterator[Iterator[Frame]]:
        stdin = protocol.dump(protocol.header(op, "")) + protocol.dump(request)
        command = Command(self.seat.argv(self._agent(), op), stdin, sudo=self.seat.sudo, timeout=timeout)
        missing = self.seat.missing(self._agent()) or None
        if missing is None:
            with self._remote.tail(command) as stdout:
                missing = self._begin(op, stdout)
                if missing is None:
                    yield self._frames(op, stdout)
                    return
        self._remote.put(bundle.build(self._contents), missing, sudo=self.seat.sudo)
        with self._remote.tail(command) as stdout:
            if self._begin(op, stdout) is not None:
                raise HostError(f"{self.name}: {missing}: written, and not there", hint="who removes files there?")
            yield self._frames(op, stdout)

    def ahead(self, op: str) -> None:
        """Start the agent of this machine for a call that is still being made up, which goes on with it then."""
        if isinstance(self._remote, Local) and not self.seat.sudo and not self.seat.missing(self._agent()):
            self._remote.ahead(Command(self.seat.argv(self._agent(), op)))

    def _agent(self) -> str:
        self._contents = self._contents or bundle.sources()
        return bundle.name(self._contents)

    def _begin(self, op: str, stdout: IO[bytes]) -> str | None:
        """Read the answer's header; return the path of the agent's file instead where that is missing."""
        line = stdout.readline(protocol.LINE_BYTES + 1)
        if line.startswith(agent_location.UNREADY):
            what, words = _unready(line)
            if what == agent_location.AGENT:
                return self.seat.destination(self.name, self._agent(), words)
            raise self.seat.refused(self.name, what, words, f"{self.typed} setup")
        if line == agent_location.READY:
            line = stdout.readline(protocol.LINE_BYTES + 1)
        if line.startswith(agent_location.UNREADY):  # the agent's own word, which names nothing to be done
            raise self.seat.refused(self.name, *_unready(line), f"{self.typed} setup")
        protocol.check(self._read(op, line), "the controller", self.name)
        return None

    def _frames(self, op: str, stdout: IO[bytes]) -> Iterator[Frame]:
        while True:
            line = stdout.readline(protocol.LINE_BYTES + 1)
            data = self._read(op, line)
            if data == protocol.END:
                return
            count = data.get("bytes", 0)
            if type(count) is not int or not 0 <= count <= _FRAME_BYTES:
                raise HostError(f"{self.name}: {op}: not a message of taco-launch: bytes: {str(count)[:40]}")
            try:
                if "error" in data:
                    raise self._error(**data["error"])
                for key in ("job", "began"):
                    if key in data:
                        self._complete(data[key])
            except (TypeError, AttributeError, KeyError, ValueError) as error:
                raise HostError(f"{self.name}: {op}: not a message of taco-launch: {error!r:.200}") from None
            raw = stdout.read(count) if count else b""
            if len(raw) < count:
                raise self._broken_off(op)
            yield Frame(Answer(self.name, op, data), raw, len(line), protocol.values(line))

    def _error(self, message: str, hint: str | None, exit_code: int) -> AgentError:
        # What is wrong with its host the agent says without a name: it knows none.
        if type(exit_code) is not int or not isinstance(message, str) or not isinstance(hint, (str, type(None))):
            raise TypeError("an error of the wrong types")
        host = f"{self.name}: " if exit_code == HOST_FAILED and self.seat.inherit else ""
        failed = exit_code if 0 < exit_code < 256 else HOST_FAILED  # an error never ends in success
        return AgentError(f"{host}{message}", hint and as_typed(hint, self.typed), failed)

    def _complete(self, job: dict[str, Any]) -> None:
        """Have a job's hints and warnings say what to type here."""
        record = job["record"]
        for entry in (record, *job.get("events", ())):
            if entry.get("hint"):
                entry["hint"] = as_typed(entry["hint"], self.typed)
        if record.get("warnings"):
            record["warnings"] = [as_typed(warning, self.typed) for warning in record["warnings"]]

    def _read(self, op: str, line: bytes) -> dict[str, Any]:
        try:
            data = protocol.message(line)
        except UsageError as error:
            raise HostError(f"{self.name}: {op}: {error.message}") from None
        if data is None:
            raise self._broken_off(op)
        return data

    def _broken_off(self, op: str) -> HostError:
        hint = "is the host up, and the network whole? what the agent said, if anything, stands above"
        return HostError(f"{self.name}: the answer to {op} broke off", hint)


def _unready(line: bytes) -> tuple[str, str]:
    """Return what is in the way, and the words on it, as they may be shown."""
    what, _, words = line[len(agent_location.UNREADY) :].decode("utf-8", "replace").strip().partition(" ")
    return what, words


@contextmanager
def reach(inventory: Inventory, access: Access, environ: Mapping[str, str], typed: str) -> Iterator[Head]:
    """Return the head of an inventory, which the first call connects to; `typed` as in `Head`.

    Raises:
        SpecError: ~/.ssh/config cannot be read.
    """
    from taco_launch.remote.fanout import connect  # noqa: PLC0415 - without an inventory nobody needs it

    host = next(host for host in inventory.hosts if host.name == inventory.head)
    with connect(inventory, (host,), access) as fanout:
        (transport,) = fanout.transports
        yield Head(transport, agent_location.of(inventory, environ, os.geteuid()), typed)
