"""A rank that a signal ended, in the table's words: what mpirun says of it in its log other launchers leave to us; pure."""

import signal
from typing import Optional

from taco_launch.core.errors import SIGNAL_BASE
from taco_launch.core.model.jobs import Finding
from taco_launch.core.signatures.filling import filled
from taco_launch.core.signatures.known.mpirun import RANKS

# Each signal of which the table knows more than its number.
_KNOWN = {
    signal.SIGKILL: "rank-killed",
    signal.SIGBUS: "rank-bus-error",
    signal.SIGILL: "rank-crashed",
    signal.SIGABRT: "rank-crashed",
    signal.SIGFPE: "rank-crashed",
    signal.SIGSEGV: "rank-crashed",
    signal.SIGTERM: "rank-terminated",
}
_ENTRIES = {entry.name: entry for entry in RANKS}
# After these nothing that the rank said before is why it ended: it could not know.
UNFORESEEN = ("rank-killed", "rank-bus-error")


def by_signal(rank: str, host: str, exit_code: int, killed: str = "") -> Optional[Finding]:
    """Return what is known of a rank's end by its exit code, 128 + n for signal n; None where that tells nothing.

    `killed` tells who sent signal 9, where that is known.
    """
    name = _KNOWN.get(exit_code - SIGNAL_BASE)  # type: ignore[call-overload]
    if name is None:
        return None
    number = signal.Signals(exit_code - SIGNAL_BASE)
    values = {"rank": rank, "host": host, "why": number.name, "signal": f"{number.value} ({number.name})"}
    values.update({"killed": killed} if killed else {})
    values.update({"other": killed} if killed.startswith("by a process") else {})
    entry = _ENTRIES[name]
    return Finding(name, filled(entry.cause, values, host), filled(entry.next, values, host), host, 0)
