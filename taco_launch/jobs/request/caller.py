"""Who asks for a job, and from where, as this machine and its environment tell."""

import getpass
import os
import socket
from collections.abc import Callable, Mapping
from pathlib import Path

from taco_launch.agent.store import untrusted
from taco_launch.core.errors import UsageError
from taco_launch.core.frozen import dataclass

_MOST_OF_SCRIPT = 1 << 20


@dataclass(frozen=True)
class Caller:
    """Who asks for a job."""

    # The folder that the ranks start in.
    folder: str
    environ: Mapping[str, str]
    # The owner of the job.
    user: str
    # Returns this machine's names, which may take seconds (DNS).
    local_names: Callable[[], frozenset[str]]
    # Returns whether a word names a program on PATH here, and a file in the folder.
    is_program: Callable[[str], bool]
    is_file: Callable[[str], bool]
    # Returns the text of a small file, "" where it cannot be read.
    read_script: Callable[[str], str] = lambda _path: ""
    # Called with what the user should know of a request that is not wrong.
    note: Callable[[str], None] = lambda _words: None


def here(environ: Mapping[str, str], note: Callable[[str], None] = lambda _words: None) -> Caller:
    """Return the user of this process, in its folder.

    Raises:
        UsageError: the folder is gone.
    """
    try:
        folder = os.getcwd()  # noqa: PTH109 - bytes that are no UTF-8 stay as they are
    except FileNotFoundError:
        raise UsageError("the current folder is gone", hint="cd to one that exists") from None
    return Caller(folder, environ, person(), local_names, _is_program, os.path.isfile, _read_script, note)


def person() -> str:
    """Return the user who typed the command; for root by sudo that is who called sudo (sudo(8): SUDO_USER)."""
    behind = os.environ.get("SUDO_USER") if os.geteuid() == 0 else None
    return behind or getpass.getuser()


def local_names() -> frozenset[str]:
    """Return this machine's names; asking for the whole one may take seconds (DNS)."""
    return frozenset((socket.gethostname(), socket.getfqdn()))


def _is_program(word: str) -> bool:
    # Path's methods raise where no file can have such a name: a line in quotes may be longer than any.
    return any(os.access(os.path.join(folder, word), os.X_OK) for folder in os.get_exec_path())  # noqa: PTH118


def _read_script(path: str) -> str:
    try:
        return untrusted.read_named(Path(path), _MOST_OF_SCRIPT).decode("utf-8", "replace")
    except (OSError, ValueError):
        return ""
