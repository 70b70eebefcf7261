"""Command: what is to be executed, and its result. Text for people, and text for shells, is made here and nowhere else.

How a command travels to a host: the login shell there, whichever it is, gets one line (`login_line`) that all shells
read alike and that holds nothing of the command. It starts /bin/sh, which prints a marker and then reads one line of
ASCII (`start_line`) from its input: our own quoting, which sets the environment and executes the program with the rest
of the input. So no login shell sees an argument or a variable's value, and no process list shows them but for the
program itself.
"""

import re
import shlex
from typing import Dict, Mapping, Optional, Sequence, Tuple

from taco_launch.core.errors import UsageError
from taco_launch.core.frozen import dataclass

# What a login shell must not find in the constant line: csh reads `!` and newlines even between single quotes.
_SCRIPT = (
    "taco_m={marker}; read -r taco_x taco_x taco_x taco_x taco_g taco_x </proc/$$/stat; "
    'echo $taco_m:start $taco_g; {errors}IFS= read -r taco_l; eval "$taco_l"'
)
_KILL = """kill -s TERM -- "-$1" || exit 0
for _ in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20; do
  sleep 0.1
  kill -s 0 -- "-$1" || exit 0
done
kill -s KILL -- "-$1"
"""
# Variables that the controller's git alone is given, neither an agent nor a job.
GIT_SECRETS = ("GIT_SYNC_PASSWORD", "GIT_SYNC_PASSWORD_FILE")
# Where a message names a verb that asks hosts, the inventory belongs to what is typed.
BARE = "taco-launch"
_TYPED = re.compile(
    rf"\b{BARE} (?:-i FILE )?(?=(?:check|cp|delete|exec|facts|forward|get|host|list|logs|prune|resume|run|setup|shell|"
    r"stacks|stop|submit|suspend|teardown|tensorboard|top|wait)\b)"
)
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
# bash, where it is /bin/sh, lets nobody set the first six, and sets `_` itself for every program.
_SHELLS_OWN = frozenset(("BASHOPTS", "BASH_VERSINFO", "EUID", "PPID", "SHELLOPTS", "UID", "_"))
_PLAIN = frozenset(range(0x20, 0x7F)) - frozenset(b"\\'%")


def without_git_secrets(environ: Mapping[str, str]) -> Dict[str, str]:
    """Return an environment without what the controller's git alone is given."""
    return {name: value for name, value in environ.items() if name not in GIT_SECRETS}


@dataclass(frozen=True)
class Command:
    """One program to execute: `argv` is never read by a shell; `stdin` is fed to it.

    `env` is added to the environment it finds there: (name, value). `sudo`: as root, in sudo's environment; `timeout`
    is in seconds; None is an hour for a command whose end is waited for, and no limit for one whose output is followed.
    """

    argv: Tuple[str, ...]
    stdin: bytes = b""
    env: Tuple[Tuple[str, str], ...] = ()
    sudo: bool = False
    timeout: Optional[float] = None


@dataclass(frozen=True)
class Result:
    """How a command ended on a host: its exit code (signal n: 128+n), what it said, and the seconds it took."""

    host: str
    command: Command
    exit_code: int
    stdout: bytes
    stderr: bytes
    seconds: float


def shell(argv: Sequence[str]) -> str:
    """Return one line that bash, zsh or ksh read back as exactly `argv`; without odd characters any POSIX shell does."""
    return " ".join(_quote(word) for word in argv)


def as_typed(text: str, typed: str) -> str:
    """Return a message in which each `taco-launch VERB` or `taco-launch -i FILE VERB` is as it is `typed` here.

    Where no inventory was named, the message stays as it is.
    """
    return text if typed == BARE else _TYPED.sub(lambda _match: f"{typed} ", text)


def words(argv: Sequence[str]) -> str:
    """Return words of a POSIX shell's script that it reads as exactly `argv`; newlines stand in them as they are."""
    return " ".join(map(shlex.quote, argv))


def ssh_line(login: Sequence[str], line: str, *options: str) -> str:
    """Return what a person types to have `line` done on a host.

    `login` is what stands after `ssh` to get there (options, and the host last), empty for this machine; `options` of
    ssh go before it.
    """
    return f"{shell(('ssh', *options, *login))} {line}" if login else line


def login_line(marker: str, *, sudo: bool = False, tty: bool = False) -> str:
    """Return the line for a login shell: bash, dash, busybox, csh, tcsh, fish and zsh read it alike.

    `marker` is random hexadecimal text. The shell that it starts prints `MARKER:start GROUP` (its process group) on
    stdout and on stderr, and then waits for `start_line`. With `sudo`, that asks for the password with
    `MARKER:password`. With `tty` (a terminal, where stdout and stderr are one), it makes the terminal carry all bytes.
    """
    errors = "" if tty else "echo $taco_m:start $taco_g >&2; "
    script = ("stty raw -echo; " if tty else "") + _SCRIPT.format(marker=marker, errors=errors)
    asked = f"env LC_ALL=C sudo -S -p {marker}:password -- " if sudo else ""
    return f"exec {asked}/bin/sh -c '{script}'"


def kill(group: int, *, sudo: bool = False) -> Command:
    """Return the command that ends a process group: TERM, and KILL after two seconds; it returns when all have ended."""
    return Command(("/bin/sh", "-c", _KILL, "kill", str(group)), sudo=sudo, timeout=10)


def start_line(command: Command, *, whole: bool, tty: bool = False) -> bytes:
    """Return the line of ASCII that starts the program; what follows it is the program's input.

    With `whole`, `MARKER:end CODE` stands behind its stdout and behind its stderr, so that a part is never taken for
    the whole; with `tty`, stderr and `MARKER:err` follow after the end of stdout. Otherwise the program replaces the
    shell.

    Raises:
        UsageError: a name of `env` is none that every shell can export.
        ValueError: a word or value holds a NUL.
    """
    # Of what a shell of another locale thinks of a value (LC_ALL), nothing may stand in the program's stderr.
    assignments = " ".join(f"{_exportable(name)}={shlex.quote(value)}" for name, value in command.env)
    restored = "unset LC_ALL; " if command.sudo else ""  # it was set for sudo's own messages
    exported = f"{{ export {assignments}; }} 2>/dev/null; " if assignments else ""
    program = f"{restored}{exported}exec {words(command.argv)}"
    # A terminal's input has no end that a program could see: it gets as many bytes as there are.
    given = f"head -c {len(command.stdin)} | "
    if tty and whole:
        # It has one output only: stderr waits in a file without a name.
        script = (
            "taco_t=$(mktemp) || exit; exec 8>$taco_t 9<$taco_t; rm -f $taco_t; "
            f"{given}( {program} ) 2>&8 8>&- 9<&-; "
            'echo "$taco_m:end $?"; cat <&9; echo "$taco_m:err"'
        )
    elif tty:
        script = f"{given}( {program} ) 2>/dev/null"
    elif whole:
        # The shell's own word on a program that a signal ended ("Killed") goes nowhere.
        script = (
            f"exec 7>&2 2>/dev/null; ( {program} ) 2>&7 7>&-; "
            'taco_c=$?; echo "$taco_m:end $taco_c"; echo "$taco_m:end $taco_c" >&7'
        )
    else:
        script = program
    data = _bytes(script)
    if b"\0" in data:
        raise ValueError("a NUL is not allowed in an argument or in the environment")
    encoded = "".join(chr(byte) if byte in _PLAIN else f"\\{byte:03o}" for byte in data)
    return f"eval \"$(printf '{encoded}')\"\n".encode("ascii")


def _exportable(name: str) -> str:
    if not _NAME.fullmatch(name) or name in _SHELLS_OWN:
        raise UsageError(
            f"environment variable {name!r}: no shell can export it",
            hint="use letters, digits and '_', no digit first, and no name that the shell reserves (UID, _)",
        )
    return name


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
    return "".join(f"\\{byte:03o}" for byte in _bytes(char))


def _bytes(text: str) -> bytes:
    """Return the bytes that `text` stands for: those that were no UTF-8 (surrogates) as they were."""
    try:
        return text.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:  # half of a character beyond the 16-bit range, as JavaScript and JSON may have it
        return text.encode("utf-8", "surrogatepass")
