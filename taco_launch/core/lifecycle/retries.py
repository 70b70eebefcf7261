"""Decide whether a job whose attempt failed is tried again: by its policy, and by whose fault the failure is.

A fault of the program recurs in each attempt, so it is not retried. A fault of hardware belongs to one host: the job is tried
again, on other hosts first, and these retries have a limit of their own.
"""

import enum
import re
from typing import NamedTuple, Optional, Tuple

from taco_launch.core.errors import CANNOT_PLACE, DEADLINE, NO_JOB, SIGNAL_BASE
from taco_launch.core.model.jobs import JobRecord, JobState, Policy, Restart

_LONGEST_DELAY_SECONDS = 360.0  # as Kubernetes' Job controller waits at most between two tries of a pod: six minutes
MOST_OF_HARDWARE = 5


class Blame(enum.Enum):
    """Whose fault a failure is."""

    PROGRAM = "program"
    HARDWARE = "hardware"
    UNKNOWN = "unknown"


# Signatures of failures that the same program meets on every host.
_OF_PROGRAM = frozenset(
    [
        "arguments-refused",
        "checkpoint-of-other-model",
        "checkpoint-shapes",
        "cuda-assert",
        "cuda-device-assert",
        "cuda-memory-asked",
        "cuda-out-of-memory",
        "deepspeed-batch-size",
        "extension-build-failed",
        "horovod-device-mismatch",
        "horovod-mismatch",
        "input-asked",
        "mpi-not-running",
        "not-divisible",
        "script-is-an-option",
        "slurm-mpi-type",
        "torch-collective-mismatch",
        "torch-collectives-differ",
        "torch-devices-mixed",
        "torch-models-differ",
        "torch-parameters-differ",
        "torch-unused-parameters",
        "torch-variable-missing",
        "windows-line-ends",
    ]
)
# Those of what a host may lack, such as a file server: the program's where the job has no other host to try, or where the
# attempt before has met the same.
_OF_PROGRAM_OR_HOST = frozenset(
    (
        "command-missing",
        "command-no-program",
        "command-not-executable",
        "executable-not-found",
        "folder-missing",
        "module-missing",
        "module-part-missing",
        "script-missing",
    )
)
# Exceptions of files and connections, which may pass.
_PASSING = re.compile(
    r"\braised (?:\w+\.)*(?:OSError|IOError|\w*ConnectionError|Connection\w+|\w*Timeout\w*|BrokenPipeError|BlockingIOError)\b"
)
# Exceptions that tell of a mistake in the program, by Python's own description of them (docs.python.org, "Built-in Exceptions").
_MISTAKES = re.compile(
    r"\braised (?:AssertionError|AttributeError|ImportError|IndentationError|ModuleNotFoundError|NameError|SyntaxError"
    r"|TypeError|UnboundLocalError)\b"
)
# Signatures of failures of one host: its GPUs, links, cards, disks.
_OF_HARDWARE = frozenset(
    [
        "cable-error",
        "disk-fault",
        "gpu-access-lost",
        "gpu-lost",
        "gpu-memory-fault",
        "gpu-nvlink-fault",
        "gpu-reset-required",
        "gpu-start-failed",
        "gpu-xid-contained",
        "gpu-xid-fatal",
        "gpu-xid-nvlink",
        "hardware-error",
        "hca-failed",
        "link-down",
        "nccl-device-event",
        "nccl-ib-fatal",
        "nccl-ib-port-failed",
        "network-card-stuck",
        "pcie-error",
        "slurm-node-failure",
        "slurm-nodes-not-ready",
    ]
)


class AttemptResult(NamedTuple):
    """The end of an attempt, as far as another attempt depends on it."""

    state: JobState
    exit_code: int
    # The host to blame, "" where none is.
    host: str = ""
    # Whether it was ended because it hung.
    hung: bool = False
    # Whether another attempt could only have the same host.
    single_host: bool = False
    # Whether the program raised an exception, by whatever signal it ended then.
    raised: bool = False
    # The first finding in its logs: the signature, and what it means.
    signature: str = ""
    cause: str = ""
    # How often the launcher has started the program again within it.
    restarted: int = 0


class Retry(NamedTuple):
    """Another attempt: after how many seconds, which hosts it had better not have, and whether it counts for `backoff_limit`."""

    delay: float
    left_out: Tuple[str, ...]
    counts: bool = True


class Decision(NamedTuple):
    """The decision after a failure: another attempt or None, and the rule in words, "" if the policy alone decides."""

    retry: Optional[Retry]
    rule: str = ""


def failures(record: JobRecord) -> int:
    """Return how many attempts of a job count as failed: not one that was suspended, and not one that hardware ended."""
    return sum(change.state is JobState.RESTARTING for change in record.transitions) - record.excused


def most_attempts(policy: Policy, record: JobRecord) -> int:
    """Return how many attempts of a job there may be as it stands, counted as its log does.

    One that was suspended is none of the failures that `backoff_limit` counts: there may be one more.
    """
    allowed = 0 if policy.restart is Restart.NEVER else policy.backoff_limit
    changes = record.transitions
    stood = changes[-2].state if record.state.is_terminal and len(changes) > 1 else record.state
    return record.attempt + allowed - failures(record) + stood.waits


def blame(record: JobRecord, result: AttemptResult) -> Blame:
    """Return whose fault an end is; the same exception in two attempts, on two hosts if there are others, is the program's."""
    if result.signature in _OF_HARDWARE or (result.state is JobState.LOST and result.host):
        return Blame.HARDWARE
    if result.signature in _OF_PROGRAM or _MISTAKES.search(result.cause):
        return Blame.PROGRAM
    if result.single_host and result.signature in _OF_PROGRAM_OR_HOST:
        return Blame.PROGRAM
    before = record.blamed
    if before is None or (before.signature, before.cause) != (result.signature, result.cause):
        return Blame.UNKNOWN
    alike = result.signature == "python-exception" and not _PASSING.search(result.cause)
    on_another = before.host and result.host and before.host != result.host
    return (
        Blame.PROGRAM
        if result.signature in _OF_PROGRAM_OR_HOST or (alike and (on_another or result.single_host))
        else Blame.UNKNOWN
    )


def decide(policy: Policy, record: JobRecord, result: AttemptResult) -> Decision:
    """Decide whether a job is tried again after the end of an attempt.

    Never where it has no place, no rank could start, or its time is over; a job that was ended because it hung has failed. The hosts that
    earlier attempts failed on stay left out; one that was lost is left out of one attempt, and may be back then.
    """
    # Where it could not be placed, it does not fit, or may not wait: the supervisor has let it wait otherwise.
    no_place = record.state.waits and result.exit_code == CANNOT_PLACE
    refused = "" if no_place else _refused(policy, result)
    if refused is not None:
        return Decision(None, refused if failures(record) < policy.backoff_limit else "")
    whose = Blame.UNKNOWN if policy.restart is Restart.ALWAYS else blame(record, result)
    if whose is Blame.PROGRAM and failures(record) < policy.backoff_limit:
        return Decision(None, _of_program(record, result.signature))
    # Without other hosts to choose from, each retry would meet the same hardware.
    elsewhere = policy.backoff_limit > 0 and policy.retry_on != "same-host"
    if whose is Blame.HARDWARE and elsewhere and record.excused < MOST_OF_HARDWARE:
        others = f", on other hosts than {result.host} first" if result.host else ""
        tries = f"retry {record.excused + 1} of {MOST_OF_HARDWARE} that --backoff-limit does not count{others}"
        return Decision(_again(policy, record, result, counts=False), f"a fault of hardware: {tries}")
    if failures(record) < policy.backoff_limit <= failures(record) + result.restarted:
        return Decision(None, f"not tried again: its ranks were started again {result.restarted} times")
    if failures(record) >= policy.backoff_limit:
        return Decision(None, f"its {record.attempt} attempts are used up" if policy.backoff_limit else "")
    return Decision(_again(policy, record, result, counts=True))


def _of_program(record: JobRecord, signature: str) -> str:
    twice = record.blamed is not None and record.blamed.signature == signature
    met = (
        "two attempts met the same fault of the program"
        if twice
        else "each attempt would meet this fault of the program"
    )
    return f"not tried again: {met} (--restart always retries it)"


def _again(policy: Policy, record: JobRecord, result: AttemptResult, *, counts: bool) -> Retry:
    tried = sum(change.state is JobState.RESTARTING for change in record.transitions)
    delay = min(policy.backoff * 2.0**tried, _LONGEST_DELAY_SECONDS)
    stay = tuple(other for other in record.left_out if other != record.lost)
    blamed = (result.host,) if result.host and result.host not in stay else ()
    return Retry(delay, (*stay, *blamed), counts)


def _refused(policy: Policy, result: AttemptResult) -> Optional[str]:
    """Return why no such end is tried again, "" where that needs no words; None where it may be."""
    if policy.restart is Restart.NEVER:
        return ""
    if result.state is JobState.LOST:
        return None
    if result.state is not JobState.FAILED or (not result.hung and result.exit_code in (DEADLINE, NO_JOB)):
        return ""
    if policy.restart is not Restart.EXIT_CODE or (result.exit_code >= SIGNAL_BASE and not result.raised):
        return None
    if result.hung:
        return ""
    what = "an exception of the program" if result.raised else f"exit code {result.exit_code}"
    return f"not tried again: --restart exit-code retries only after a signal or a lost host, not after {what}"
