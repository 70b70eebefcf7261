"""Times as users write them: 90, 90s, 15m, 3h, 2d -> seconds."""

import re

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
