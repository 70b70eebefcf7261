"""Tests that failed and passed when they ran again alone: tests/flaky.txt, and which of them the gate leaves out."""

import datetime as dt
from collections import Counter
from pathlib import Path

# Lines of DATE PRESSURE ID: the day, the share of time in which something waited for a CPU, and the test.
FILE = Path(__file__).with_name("flaky.txt")
_MOST_ENTRIES, _DAYS = 3, 14
# More than these at once are no flaky tests: something is broken.
_MOST_LEFT_OUT = 5


def left_out(text: str, today: dt.date) -> frozenset[str]:
    """Return the ids of tests that the gate leaves out until they are fixed: those with three entries in 14 days."""
    since = today - dt.timedelta(days=_DAYS)
    rows = [line.split(" ", 2) for line in text.splitlines() if line and not line.startswith("#")]
    counts = Counter(row[2] for row in rows if len(row) == 3 and dt.date.fromisoformat(row[0]) >= since)
    often = [name for name, count in counts.most_common() if count >= _MOST_ENTRIES]
    return frozenset(often[:_MOST_LEFT_OUT])
