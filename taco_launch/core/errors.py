"""Define the exception tree, all exit codes, and hints that are given in several places.

The exit codes are decided here: of a command by the class of its error, of a job by how it ended, of `run` and `wait` by
both. The command line and the agent apply them.

TacoLaunchError (1)         what failed, where, the evidence; `hint` says what to type next
├── UsageError (2)          the command line is wrong
├── SpecError (2)           an inventory, host string, name or job spec is wrong: all its faults at once
├── PlacementError (4)      the job does not fit the hosts: a reason per host
├── HostError (5)           a host, or the agent on it, failed
│   └── UnusableError (5)   a job is refused: hosts that it needs cannot be used, or lack what it asks for
├── NoJobError (1)          the job was not found
├── OwnerError (2)          the job is another user's, and the caller did not agree to that
└── DamagedRecordError (1)  a job's record cannot be read
"""

import errno
import shlex
from typing import NamedTuple, Optional, Sequence, Tuple

OK = 0
FAILED = 1
USAGE = 2
DRIFT = 3  # `setup --check`: a host is not as the inventory says; set-up: hardware has a fault that it cannot fix
CANNOT_PLACE = 4
HOST_FAILED = 5
REGRESSED = 6  # `nightly run`: something got slower
DEADLINE = 124  # as timeout(1) reports it
NO_JOB = 125  # as env(1), nohup(1) and docker-run(1) say "the command itself never ran"
NOT_EXECUTABLE = 126
NOT_FOUND = 127
SIGNAL_BASE = 128
INTERRUPTED = SIGNAL_BASE + 2
_FREE = "free some space there: taco-launch prune --older-than 1d removes old jobs and copies of code"
_PERMIT = "give this user the right to write there: ls -ld {path}"
# By the error's number; {path} is the file or folder.
_WRITE_STEPS = {
    errno.ENOSPC: _FREE,
    errno.EDQUOT: _FREE,
    errno.EROFS: "mount its file system for writing: findmnt -T {path}",
    errno.EACCES: _PERMIT,
    errno.EPERM: _PERMIT,
    errno.EIO: "check its disk: dmesg",
}


class JobEnd:
    """The exit code of a job by how it ended, where that is not the exit code of a rank or of its launcher."""

    SUCCEEDED = OK
    NEVER_RAN = NO_JOB  # no rank ever ran
    NOT_AS_PLANNED = NO_JOB  # --strict
    DIVERGED = FAILED  # --fail-on nan
    INCOMPLETE = FAILED  # some ranks never started
    LOST = NO_JOB  # a host or its supervisor was lost while it ran
    NO_SLOTS_IN_TIME = CANNOT_PLACE  # --queue-timeout, --no-wait
    OUT_OF_TIME = DEADLINE  # --timeout, --stall-timeout, --silence-timeout
    HOST_NOT_READY = HOST_FAILED  # a host could not be prepared for it


# A program may exit with these codes, too: `run` and `wait` have another for what is not a program's. Usage (2) stays: nothing
# was started, and the caller can fix it.
_HOSTS = (CANNOT_PLACE, HOST_FAILED)
_LAUNCHER = (FAILED, *_HOSTS)


def code_of_launcher(code: int) -> int:
    """Return the exit code of `run` and `wait` for an error with this exit code, as docker-run(1) does."""
    return NO_JOB if code in _LAUNCHER else code


def code_of_ended(code: int, *, started: bool, ran: bool) -> int:
    """Return the exit code of `run` and `wait` for a job that ended with `code`; `ran` says whether a rank ran."""
    refused = code in _HOSTS and not ran if started else code in _LAUNCHER
    return NO_JOB if refused else code


def code_of_process(return_code: int) -> int:
    """Return the exit code that a shell would report for a process: 128 + n for one that signal n ended (-n)."""
    return SIGNAL_BASE - return_code if return_code < 0 else return_code


def quoted(program: str) -> str:
    """Return what to do where a program's name holds blanks, and there is no such program: it was typed in quotes."""
    if "$" in program:  # without the quotes the shell that it is typed into would put the values in
        return "the quotes make it one word; to expand variables in each rank: bash -c '...'"
    return "the quotes make it one word: remove them, or use sh -c '...'"


def last_line(output: bytes) -> str:
    """Return the last line of a program's output that is not blank: printable, at most 300 characters; "" without one."""
    text = output.decode("utf-8", "replace")
    line = next((line.strip() for line in reversed(text.splitlines()) if line.strip()), "")
    return "".join(char if char.isprintable() else "?" for char in line)[:300]


def write_hint(error: OSError, path: str, elsewhere: str = "") -> str:
    """Return what to do where `path` cannot be written; `elsewhere` is how another folder is named."""
    quoted = shlex.quote(path)
    step = _WRITE_STEPS.get(error.errno or 0, "").format(path=quoted)
    return ", or ".join(filter(None, (step, elsewhere))) or f"look at it: ls -ld {quoted}"


class TacoLaunchError(Exception):
    """What failed, and in `hint` what to type next.

    `hint` is None where there is nothing useful to say.
    """

    exit_code = FAILED
    # That of a job which it ends.
    job_exit_code = JobEnd.NEVER_RAN
    # What programs tell errors apart by: `error.kind` of --json.
    kind = "failed"

    def __init__(self, message: str, hint: Optional[str] = None) -> None:
        """Keep the message for `str()` and the hint beside it."""
        super().__init__(message)
        self.message = message
        self.hint = hint


def no_lab(error: ImportError) -> TacoLaunchError:
    """Return the error of what needs the lab where it is not installed: it has a wheel of its own."""
    return TacoLaunchError(
        f"the lab is not installed: {error}",
        hint="in a checkout: pip install -e '.[bench]'; with wheels: pip install 'taco-launch[lab]'",
    )


class UsageError(TacoLaunchError):
    """The command line asks for something that cannot be."""

    exit_code = USAGE
    kind = "usage"


class Fault(NamedTuple):
    """One thing that is wrong with what a user wrote.

    `path` is where (`hosts.gpu1.slots`, `line 3 column 7`), `value` what stands there (already shortened and
    escaped), `problem` what is wrong and what is allowed, `hint` a "did you mean" where there is one.
    """

    path: str
    value: str
    problem: str
    hint: str = ""

    def __str__(self) -> str:
        """Return one line: path, value, problem, hint."""
        shown = ": ".join(part for part in (self.path, self.value, self.problem) if part)
        return f"{shown} ({self.hint})" if self.hint else shown


class SpecError(TacoLaunchError):
    """Something a user wrote is wrong; `faults` holds all that was found, `source` the file or option that has it."""

    exit_code = USAGE
    kind = "invalid"

    def __init__(
        self, source: str, faults: Tuple[Fault, ...], hint: Optional[str] = None, *, short: Optional[str] = None
    ) -> None:
        """Build the message from all faults; `short` replaces it where one fault has no place worth naming."""
        self.source = source
        self.faults = faults
        self.short = short
        lines = "\n".join(f"  {fault}" for fault in faults)
        count = f"{len(faults)} errors" if len(faults) != 1 else "1 error"
        super().__init__(short or f"{source}: {count}\n{lines}", hint)


class PlacementError(TacoLaunchError):
    """The job does not fit; `reasons` holds (host, why not), in inventory order.

    `never` tells that it would not fit if all slots were free either.
    """

    exit_code = CANNOT_PLACE
    job_exit_code = CANNOT_PLACE
    kind = "does-not-fit"

    def __init__(
        self, message: str, reasons: Tuple[Tuple[str, str], ...], hint: Optional[str] = None, *, never: bool = False
    ) -> None:
        """Build the message from the reason of each host."""
        self.reasons = reasons
        self.never = never
        super().__init__("\n".join([message, *(f"  {host}: {why}" for host, why in reasons)]), hint)


class HostError(TacoLaunchError):
    """A host, or the agent on it, did not do what it was asked."""

    exit_code = HOST_FAILED
    kind = "host-failed"


class UnusableError(HostError):
    """A job is refused for its hosts, and nobody's job is why.

    They cannot be used, with (host, why) in `reasons`; or they lack what it asks for, without any.
    """

    job_exit_code = HOST_FAILED
    kind = "hosts-unusable"

    def __init__(self, message: str, hint: Optional[str] = None, reasons: Sequence[Tuple[str, str]] = ()) -> None:
        """Keep the reasons."""
        super().__init__(message, hint)
        self.reasons = tuple(reasons)


class NoJobError(TacoLaunchError):
    """The job was not found."""

    kind = "job-not-found"


class DamagedRecordError(TacoLaunchError):
    """A job's record cannot be read, or this version does not understand it."""

    kind = "record-damaged"


class OwnerError(TacoLaunchError):
    """The job is another user's, and the caller did not agree to change it."""

    exit_code = USAGE
    kind = "not-the-owner"


KINDS = frozenset(
    error.kind
    for error in (
        TacoLaunchError,
        UsageError,
        SpecError,
        PlacementError,
        HostError,
        UnusableError,
        NoJobError,
        DamagedRecordError,
        OwnerError,
    )
)
