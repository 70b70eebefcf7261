"""USR1@120, as users write it -> EarlySignal."""

import re

from taco_launch.inventory.durations import parse_duration
from taco_launch.model.jobs import EarlySignal

# Those that a wrapper passes on anyhow (agent/rank/wrapper.py): none of them stops a process or cannot be caught.
NAMES = ("USR1", "USR2", "HUP", "INT", "TERM")
# As Slurm's --signal without a time.
SECONDS = 60.0
_FORM = re.compile(r"(?:SIG)?([A-Z0-9]+)", re.IGNORECASE)


def parse_early_signal(text: str) -> EarlySignal:
    """Return the signal and the time that a text stands for: USR1, USR1@120, USR1@2m.

    Raises:
        ValueError: it stands for none; says what is wrong.
    """
    signal, at, time = text.partition("@")
    seconds = parse_duration(time) if at else SECONDS
    if seconds <= 0:
        raise ValueError("must be more than 0 s before TERM, for example USR1@120")
    found = _FORM.fullmatch(signal)
    name = found[1].upper() if found else ""
    if name not in NAMES:
        raise ValueError(f"must be one of {', '.join(NAMES)}")
    return EarlySignal(name, seconds)
