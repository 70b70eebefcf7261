"""Upper limits of waiting in tests: what is plenty on an idle machine grows with the pressure on its CPUs.

A lower bound, or an order of events, is better than any of them. They only keep a test that waits in vain from waiting
for ever, and one that has to be quick from being called slow where many others want the same CPUs.
"""

import os
import re
from collections.abc import Mapping
from pathlib import Path

HANG = 60.0  # seconds after which a test hangs: a limit on a hang costs nothing when the test passes

_PRESSURE = Path("/proc/pressure/cpu")
_MOST = 8.0
_CI = 3.0


def patience(seconds: float) -> float:
    """Return how long to wait at most for what takes less than `seconds` on an idle machine: one to eight times as long.

    The machine counts as being as busy as it is now, or as it was when this process started, whichever is more: others
    come and go while a test waits. Where continuous integration runs (CI=true), it is never taken for an idle one.
    """
    return seconds * highest(_growth_now(), _GROWTH_AT_START, os.environ)


def highest(now: float, at_start: float, environ: Mapping[str, str]) -> float:
    """Return by how much limits grow: the highest of what each reason asks for."""
    return max(now, at_start, _CI if environ.get("CI") == "true" else 1.0)


def growth(pressure: str | None, load: float) -> float:
    """Return by how much limits grow.

    Pressure is the text of /proc/pressure/cpu, whose `some avg10` is the percentage of the last ten seconds in which
    something waited for a CPU; load, for a kernel without it, the number of processes that want each CPU.
    """
    found = pressure and re.search(r"^some avg10=([0-9.]+)", pressure, re.MULTILINE)
    factor = 1 + (_MOST - 1) * float(found[1]) / 100 if found else load
    return min(max(factor, 1.0), _MOST)


def _pressure() -> str | None:
    try:
        return _PRESSURE.read_text("ascii")
    except OSError:
        return None


def _growth_now() -> float:
    return growth(_pressure(), os.getloadavg()[0] / (os.cpu_count() or 1))


_GROWTH_AT_START = _growth_now()
