"""Times as users write them: 90, 90s, 15m, 3h, 2d -> seconds; and a signal at such a time."""

import re
from typing import NamedTuple

FORM = "seconds, or a number and s, m, h or d: 90, 90s, 15m, 3h, 2d"
PATTERN = r"[0-9]{1,10}(\.[0-9]{1,6})?[smhd]?"
# Some thirty years.
MOST_SECONDS = 1e9
_UNITS = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}


def parse_duration(text: str) -> float:
    """Return the seconds that a text stands for.

    Raises:
        ValueError: it stands for none, or for more than MOST_SECONDS; says what is allowed.
    """
    if not re.fullmatch(PATTERN, text):
        raise ValueError(f"must be {FORM}")
    unit = text[-1] if text[-1] in _UNITS else ""
    seconds = float(text.removesuffix(unit)) * _UNITS.get(unit, 1.0)
    if seconds > MOST_SECONDS:
        raise ValueError(f"must be at most {MOST_SECONDS:.0f} seconds")
    return seconds


# Those that a wrapper passes on anyhow (agent/rank/wrapper.py): none of them stops a process or cannot be caught.
SIGNALS = ("USR1", "USR2", "HUP", "INT", "TERM")
# As Slurm's --signal without a time.
_SIGNAL_SECONDS = 60.0
_SIGNAL = re.compile(r"(?:SIG)?([A-Z0-9]+)", re.IGNORECASE)


class SignalTime(NamedTuple):
    """A signal, such as USR1, and how many seconds before the end of a job it is sent."""

    name: str
    seconds: float


def parse_early_signal(text: str) -> SignalTime:
    """Return the signal and the time that a text stands for: USR1, USR1@120, USR1@2m.

    Raises:
        ValueError: it stands for none; says what is wrong.
    """
    signal, at, time = text.partition("@")
    seconds = parse_duration(time) if at else _SIGNAL_SECONDS
    if seconds <= 0:
        raise ValueError("must be more than 0 s before TERM, for example USR1@120")
    found = _SIGNAL.fullmatch(signal)
    name = found[1].upper() if found else ""
    if name not in SIGNALS:
        raise ValueError(f"must be one of {', '.join(SIGNALS)}")
    return SignalTime(name, seconds)
