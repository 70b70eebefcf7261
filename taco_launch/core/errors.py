"""The exception tree, the exit codes that go with it, and hints that are given in several places.

TacoLaunchError (1)         what failed, where, the evidence; `hint` says what to type next
├── UsageError (2)          the command line is wrong
├── SpecError (2)           an inventory, host string, name or job spec is wrong: all its faults at once
├── PlacementError (4)      the job does not fit the hosts: a reason per host
├── HostError (5)           a host, or the agent on it, failed
│   └── UnusableError (5)   a job is refused: hosts that it needs cannot be used, or lack what it asks for
└── NoJobError (1)          the job was not found
"""

import errno
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


def free_space(error: OSError) -> str:
    """Return what to do where the agent cannot write a file."""
    full = error.errno in (errno.ENOSPC, errno.EDQUOT)
    return "free some space there" + (
        ": taco-launch prune --older-than 1d removes old jobs and copies of code" if full else ""
    )


class TacoLaunchError(Exception):
    """What failed, and in `hint` what to type next.

    `hint` is None where there is nothing useful to say.
    """

    exit_code = FAILED
    # What programs tell errors apart by: `error.kind` of --json.
    kind = "failed"

    def __init__(self, message: str, hint: Optional[str] = None) -> None:
        """Keep the message for `str()` and the hint beside it."""
        super().__init__(message)
        self.message = message
        self.hint = hint


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

    kind = "hosts-unusable"

    def __init__(self, message: str, hint: Optional[str] = None, reasons: Sequence[Tuple[str, str]] = ()) -> None:
        """Keep the reasons."""
        super().__init__(message, hint)
        self.reasons = tuple(reasons)


class NoJobError(TacoLaunchError):
    """The job was not found."""

    kind = "job-not-found"


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
    )
)
