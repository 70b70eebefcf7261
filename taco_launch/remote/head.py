"""The head as the controller sees it: operations of its agent, answered in frames."""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import IO, Any

from taco_launch.agent import protocol
from taco_launch.agent.folders import state_folder
from taco_launch.command import Command
from taco_launch.errors import HostError, TacoLaunchError, UsageError
from taco_launch.remote import bundle
from taco_launch.remote.local import Local


@dataclass(frozen=True)
class Frame:
    """One frame of an answer: a JSON mapping, and the raw bytes that follow it."""

    data: dict[str, Any]
    raw: bytes = b""


class AgentError(TacoLaunchError):
    """An error that the agent answered with; it keeps the exit code it had there."""

    def __init__(self, message: str, hint: str | None, exit_code: int) -> None:
        """Keep what the agent said."""
        super().__init__(message, hint)
        self.exit_code = exit_code


class Head:
    """An agent on a host; it is installed there by the first call."""

    def __init__(self, remote: Local) -> None:
        """Speak to the agent by way of `remote`."""
        self._remote = remote
        self._agent = ""

    def call(self, op: str, **request: Any) -> list[dict[str, Any]]:
        """Give all frames of an answer.

        Raises:
            AgentError: the agent answered with an error.
            HostError: it gave no whole answer.
        """
        with self.stream(op, **request) as frames:
            return [frame.data for frame in frames]

    @contextmanager
    def stream(self, op: str, **request: Any) -> Iterator[Iterator[Frame]]:
        """Give the frames of an answer as they come; leaving the block ends the call. Raises as `call` does."""
        stdin = protocol.dump(protocol.header(op, "")) + protocol.dump(request)
        # No timeout: the answer may be a log that is followed for days.
        command = Command((sys.executable, "-I", "-S", self._installed(), op), stdin)
        with self._remote.tail(command) as stdout:
            yield self._frames(op, stdout)

    def _frames(self, op: str, stdout: IO[bytes]) -> Iterator[Frame]:
        protocol.check(self._read(op, stdout), "the controller", self._remote.name)
        while True:
            data = self._read(op, stdout)
            if data == protocol.END:
                return
            if "error" in data:
                error = data["error"]
                raise AgentError(error["message"], error["hint"], error["exit_code"])
            raw = stdout.read(data["bytes"]) if "bytes" in data else b""
            if len(raw) < data.get("bytes", 0):
                raise self._broken_off(op)
            yield Frame(data, raw)

    def _read(self, op: str, stdout: IO[bytes]) -> dict[str, Any]:
        try:
            data = protocol.read(stdout)
        except UsageError as error:
            raise HostError(f"{self._remote.name}: {op}: {error.message}") from None
        if data is None:
            raise self._broken_off(op)
        return data

    def _broken_off(self, op: str) -> HostError:
        return HostError(
            f"{self._remote.name}: the agent gave no whole answer to {op}", hint="what it said stands above"
        )

    def _installed(self) -> str:
        """Put the agent where it belongs, once, and give its path."""
        if not self._agent:
            contents = bundle.sources()
            path = state_folder(os.environ, os.geteuid()) / "agent" / bundle.name(contents)
            if not path.exists():
                self._remote.put(bundle.build(contents), str(path))
            self._agent = str(path)
        return self._agent
