"""Command: what is to be executed. Text for people is made here and nowhere else."""

import shlex
from dataclasses import dataclass
from typing import Sequence, Tuple


@dataclass(frozen=True)
class Command:
    """One program to execute: `argv` is never read by a shell; `stdin` is fed to it."""

    argv: Tuple[str, ...]
    stdin: bytes = b""


def shell(argv: Sequence[str]) -> str:
    """Give one line that a shell reads back as exactly `argv`: bash, zsh or ksh; without odd characters any POSIX one."""
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
    return "".join(
        f"\\{byte:03o}"
        for byte in char.encode("utf-8", "surrogateescape" if "\udc80" <= char <= "\udcff" else "surrogatepass")
    )
