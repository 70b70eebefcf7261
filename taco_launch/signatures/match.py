"""What a found text is: a failure, a warning, or an error that its program handled or survived; pure."""

import re
from typing import NamedTuple, Set

from taco_launch.model.jobs import Finding
from taco_launch.signatures.entry import FailureText, Signature
from taco_launch.signatures.table import TABLE
from taco_launch.signatures.texts.containers import DOCKER
from taco_launch.signatures.texts.mpirun import LAUNCHER, RANKS
from taco_launch.signatures.texts.nccl import NCCL
from taco_launch.signatures.texts.nccl_devices import NCCL_DEVICES
from taco_launch.signatures.texts.slurm import SLURM
from taco_launch.signatures.texts.ssh import SSH
from taco_launch.signatures.texts.system import SYSTEM

# What ends a program, whatever it says.
RAISED = re.compile(r"(?:[\w.]*(?:Error|Exception): |[^\r\n]*error while loading shared libraries)")
# What says that a program continues.
GOES_ON = re.compile(r"(?i)warning\b|\b(?:re)?trying\b|\bwaiting\b")
ENTRIES = {entry.name: entry for entry in TABLE}
OF_RANKS_ENDS = {entry.name for entry in (*RANKS, *SLURM)}
OF_MPIRUN_AND_SSH = {entry.name for entry in (*LAUNCHER, *SSH)}
SPEAK_LATE = {
    entry.name for entry in (*NCCL, *NCCL_DEVICES, *DOCKER, *SYSTEM, *SLURM) if "CANCELLED" not in entry.pattern
}
# What says that a rank failed, and not why.
_SAY_NO_REASON = ("rank-exited", "rank-exited-255", "rank-failed", "slurm-task-exited", "torchrun-child-failed")
SPEAK_LATE.add("ucx-cuda-context")  # said by the threads that a crash has not ended yet


class SignatureMatch(NamedTuple):
    """A finding, what kind of text it is, the line it was found in without the prefixes, and what labels its rank."""

    finding: Finding
    kind: FailureText
    text: str
    label: str = ""


def goes_with(entry: Signature, names: Set[str]) -> bool:
    """Return whether a text is to be told beside what else is found."""
    return not names.intersection(entry.unless) and (not entry.only_with or bool(names.intersection(entry.only_with)))


def is_warning(match: SignatureMatch) -> bool:
    """Return whether a program only ends with this text: elsewhere it is a warning."""
    return bool(ENTRIES[match.finding.signature].at_end)


def is_handled(match: SignatureMatch) -> bool:
    """Return whether programs may handle this error and continue."""
    return ENTRIES[match.finding.signature].handled


def is_cause(entry: Signature, text: str) -> bool:
    """Return whether a text is the cause that an entry knows."""
    return (
        entry.kind is FailureText.CAUSE
        and any(key in text for key in entry.keys)
        and bool(re.search(entry.pattern, text))
    )


def is_reason(match: SignatureMatch) -> bool:
    """Return whether a text says why something failed."""
    return match.kind < FailureText.NOTE and match.finding.signature not in _SAY_NO_REASON


def is_failure(match: SignatureMatch) -> bool:
    """Return whether a text says that something failed for good."""
    return match.kind < FailureText.NOTE and not is_warning(match) and not is_survived(match)


def is_survived(match: SignatureMatch) -> bool:
    """Return whether programs survive this error, unless it is what they raised."""
    return ENTRIES[match.finding.signature].survived and not RAISED.match(match.text)
