"""A host that does nothing."""

import contextlib
import threading
from collections.abc import Iterator
from typing import IO

from taco_launch.core.command import Command, Result
from taco_launch.hosts.remote.transport import Conversation


class Fake:
    """A host that does nothing, and notes that it was closed."""

    def __init__(self, number: int) -> None:
        self.name = f"gpu{number}"
        self.number = number
        self.closed = threading.Event()

    def run(self, command: Command) -> Result:
        return Result(self.name, command, 0, str(self.number).encode(), b"", 0.0)

    def put(self, data: bytes, path: str, mode: int = 0o600, *, sudo: bool = False) -> None:
        raise NotImplementedError

    @contextlib.contextmanager
    def tail(self, command: Command) -> Iterator[IO[bytes]]:
        raise NotImplementedError

    @contextlib.contextmanager
    def converse(self, command: Command) -> Iterator[Conversation]:
        raise NotImplementedError

    def close(self) -> None:
        self.closed.set()
