"""A message in words.

A message is a mapping: `name` of the job, cluster or nightly run; `event`; `state`, how it ended, where it is known; `reason`;
`hosts`; `cluster`; `table`, whose first row is the header; `next`, commands to type; `files` on the machine that it is `from`.
"""

from typing import Any, List, Mapping, Sequence

_MOST_CELL = 60
# What is the matter with a job that still runs, by the event; another event is that of a lost host.
_OF_RUNNING = {"stalled": "hangs", "verified": "does not run as planned"}


def title(message: Mapping[str, Any]) -> str:
    """Return what happened, on one line."""
    state = message.get("state") or message["event"]
    return f"{message['name']}: {_OF_RUNNING.get(message['event'], 'lost a host') if state == 'RUNNING' else state}"


def text(message: Mapping[str, Any]) -> str:
    """Return the whole message as plain text."""
    hosts = ", ".join(message.get("hosts") or ())
    lines = [
        title(message),
        str(message.get("reason") or ""),
        f"hosts: {hosts}" if hosts else "",
        f"cluster: {message['cluster']}" if message.get("cluster") else "",
        *aligned(message.get("table") or ()),
        *(message.get("next") or ()),
        *(f"{message['from']}:{file}" for file in message.get("files") or ()),
    ]
    return "\n".join(filter(None, lines))


def aligned(table: Sequence[Sequence[str]]) -> List[str]:
    """Return a table as lines with columns below each other; long cells are cut."""
    rows = [[cell if len(cell) <= _MOST_CELL else f"{cell[: _MOST_CELL - 3]}..." for cell in row] for row in table]
    widths = [max(map(len, column)) for column in zip(*rows)]
    return ["  ".join(cell.ljust(width) for cell, width in zip(row, widths)).rstrip() for row in rows]
