"""Read the clock of a host: how far it is from the controller's, and when the host booted."""

import re
from typing import NamedTuple, Optional, Tuple

from taco_launch.core.facts.text.sections import PROBE, Sections
from taco_launch.core.facts.text.strip_terminal import shown
from taco_launch.core.model.host.fact_value import Found, Unknown

_TIME = re.compile(r"([0-9]{1,12})(?:\.([0-9]{9}))?(.*)")


class Clock(NamedTuple):
    """The host's clock less the controller's in seconds, give or take `error`."""

    offset: Found[float]
    error: Found[float]


def parse_clock(sections: Sections, sent: float, received: float) -> Clock:
    """Compare the host's clock with the controller's: when the probe was sent there, when its answer was here.

    The probe started after it was sent and ended before it was received: between these two lies the offset. Of an answer
    without an end only the start is known, and that it lies between both.
    """
    probe = sections.get(PROBE)
    told = dict(line.partition(" ")[::2] for line in probe.stdout.splitlines()) if probe else {}
    began, ended = _instant(told.get("began", "")), _instant(told.get("ended", ""))
    if began is None:
        missing = Unknown("the probe did not report the host's time")
        return Clock(missing, missing)
    least = (ended or began)[0] - received
    most = began[1] - sent
    if most < least:
        wrong = Unknown("a clock was set, on the host or on this machine, during the check")
        return Clock(wrong, wrong)
    return Clock((most + least) / 2, (most - least) / 2)


def booted(sections: Sections, uptime: Found[str]) -> Found[float]:
    """Return when the host booted, in seconds since 1970 by its own clock."""
    probe = sections.get(PROBE)
    began = _instant(probe.stdout.partition("\n")[0].partition(" ")[2]) if probe else None
    if not isinstance(uptime, str) or began is None:
        return Unknown(uptime.reason if not isinstance(uptime, str) else "the probe did not report the host's time")
    match = re.fullmatch(r"([0-9]{1,12}\.[0-9]{2}) [0-9]{1,14}\.[0-9]{2}", uptime.strip())
    return began[0] - float(match[1]) if match else Unknown(f"/proc/uptime: {shown(uptime)} is not understood")


def _instant(text: str) -> Optional[Tuple[float, float]]:
    """Return the earliest and the latest moment that a time means; where date knows no nanoseconds, a whole second."""
    match = _TIME.fullmatch(text)
    if match is None:
        return None
    seconds = float(f"{match[1]}.{match[2] or '0'}")
    return (seconds, seconds) if match[2] and not match[3] else (float(match[1]), float(match[1]) + 1)
