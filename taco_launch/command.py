"""Command and Result: what is to be executed, and what came of it. Text for people is made here and nowhere else."""

import shlex
from dataclasses import dataclass
from typing import Optional, Sequence, Tuple


@dataclass(frozen=True)
class Command:
    """One program to execute: `argv` is never read by a shell; `stdin` is fed to it; `timeout` in seconds or None."""

    argv: Tuple[str, ...]
    stdin: bytes = b""
    timeout: Optional[float] = None


@dataclass(frozen=True)
class Result:
    """What came of a Command on a host; a command that was killed by signal n has the exit code -n."""

    host: str
    command: Command
    exit_code: int
    stdout: bytes
    stderr: bytes

    @property
    def evidence(self) -> str:
        """The last lines the command wrote to stderr, for an error message."""
        lines = self.stderr.decode("utf-8", "replace").strip().splitlines()
        return "\n".join(lines[-10:])


def shell(argv: Sequence[str]) -> str:
    """Give one line that a POSIX shell reads back as exactly `argv`."""
    return " ".join(_quote(word) for word in argv)


def _quote(word: str) -> str:
    if word.isprintable():
        return shlex.quote(word)
    # $'...' keeps a newline, a control character or a byte that is no UTF-8 on one visible line (bash, zsh, ksh).
    escaped = "".join(_escape(char) for char in word)
    return f"$'{escaped}'"


def _escape(char: str) -> str:
    if char in "\\'":
        return "\\" + char
    if char.isprintable():
        return char
    return "".join(f"\\{byte:03o}" for byte in char.encode("utf-8", "surrogateescape"))
