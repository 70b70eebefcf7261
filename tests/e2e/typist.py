"""Somebody at a terminal: a program on a pseudo-terminal, what it shows, and what is typed."""

import contextlib
import fcntl
import os
import pty
import re
import select
import struct
import subprocess
import termios
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from tests.support.patience import patience


class Typist:
    """A program that has a terminal of its own."""

    def __init__(self, argv: Sequence[str], env: Mapping[str, str], **more: Any) -> None:
        self.ours, self.theirs = pty.openpty()
        self.before = termios.tcgetattr(self.theirs)
        self.shown = ""
        self.resize(24, 80)
        self.process = subprocess.Popen(
            argv,
            env={**env, "TERM": "xterm"},
            stdin=self.theirs,
            stdout=self.theirs,
            stderr=self.theirs,
            start_new_session=True,
            preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),  # noqa: PLW1509 - the child does nothing else
            **more,
        )

    def resize(self, rows: int, columns: int) -> None:
        fcntl.ioctl(self.ours, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def type(self, text: str) -> None:
        os.write(self.ours, text.encode())

    def sees(self, pattern: str, seconds: float = 20) -> str:
        """Wait until something is shown, and return all that was shown up to then and not returned before."""
        deadline = time.monotonic() + patience(seconds)
        while not (found := re.search(pattern, self.shown)):
            left = max(0.0, deadline - time.monotonic())
            assert select.select([self.ours], [], [], left)[0], f"waited in vain for {pattern}: {self.shown}"
            self.shown += os.read(self.ours, 1 << 16).decode("utf-8", "replace")
        text, self.shown = self.shown[: found.end()], self.shown[found.end() :]
        return text

    def leaves(self, seconds: float = 20) -> int:
        """Return the exit code; its terminal has to be as it was then."""
        deadline = time.monotonic() + patience(seconds)
        while self.process.poll() is None:
            assert time.monotonic() < deadline, f"it does not end: {self.shown}"
            if select.select([self.ours], [], [], 0.05)[0]:
                self.shown += os.read(self.ours, 1 << 16).decode("utf-8", "replace")
        while select.select([self.ours], [], [], 0)[0]:
            self.shown += os.read(self.ours, 1 << 16).decode("utf-8", "replace")
        assert termios.tcgetattr(self.theirs) == self.before, "the terminal was left in another mode"
        return self.process.returncode

    @property
    def is_raw(self) -> bool:
        return not termios.tcgetattr(self.theirs)[3] & (termios.ICANON | termios.ECHO | termios.ISIG)


@contextlib.contextmanager
def typist(argv: Sequence[str], env: Mapping[str, str], **more: Any) -> Iterator[Typist]:
    """Start a program on a terminal; it is ended with the block."""
    found = Typist(argv, env, **more)
    try:
        yield found
    finally:
        found.process.kill()
        found.process.wait()
        os.close(found.ours)
        os.close(found.theirs)


def asked(shell: Typist, line: str) -> str:
    """Type a line, and return what is shown up to the next line of numbers."""
    shell.type(f"{line}\r")
    return shell.sees(r"\d+ \d+\r\n")
