"""Lines that programs print while they hang: they are no sign of work."""

import re

_STALLS = re.compile(
    r"One or more tensors were submitted to be reduced|Stalled ranks:|Stalled ops:|missing ranks:|ready ranks:"
    r"|^\s*\d+: \[[\w. ,/:-]+\]\s*$|Watchdog caught collective operation timeout|\[Rank \d+\] .*(?:[Tt]imeout|heartbeat)"
    r"|Heartbeat monitor|still waiting for|failed to connect, retrying|retrying in \d|waiting for (?:all )?workers",
)
MOST_LINE = 4096


def is_stall(line: str) -> bool:
    """Return whether a line of output only says that the program waits."""
    return _STALLS.search(line[:MOST_LINE]) is not None
