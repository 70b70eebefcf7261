"""What taco-launch decides, and the messages that it sends and receives: for whoever debugs it.

It is off until `start`, and costs a comparison then. The controller shows it with -v and -vv; the agent keeps it in a job's
agent log. The standard library's logging is not used: loading it takes longer than a rank's start may.
"""

import time
from typing import Any, Callable, Mapping, Optional

OFF, DECISIONS, MESSAGES = 0, 1, 2
# Takes when something was (RFC 3339) and what it was, one line.
Write = Callable[[str, str], None]

level = OFF
_write: Optional[Write] = None

# Of one line, of its time, and of one value in it: a message may be megabytes long.
LINE_CHARACTERS, TIME_CHARACTERS, _VALUE_CHARACTERS = 300, 24, 100
# Fields that may hold a secret: variables, command lines with variables in them, what a command is ended by. Only their
# size is shown.
_HIDDEN = frozenset(("argv", "caller", "command", "environment", "token"))
# A job's specification has its variables.
_RECORDS_WITH_VARIABLES = ("JobSpec", "JobView")
# How a line starts that was taken for no message: it may be one that is damaged, with all that it holds.
_DAMAGED = ("b'{", 'b"{')
# Messages that come all the time, and those that carry the trace itself.
_LEFT_OUT = frozenset(
    (
        "beat",
        "ack",
        "log",
        "piece",
        "trace",
        "alive",
        "input",
        "output",
        "send",
        "stream",
        "send-credit",
        "stream-credit",
    )
)


def start(at: int, write: Write) -> None:
    """Write what is traced at this level: DECISIONS, or MESSAGES for both."""
    global level, _write
    level, _write = at, write


def decision(text: str, *values: object) -> None:
    """Trace what was decided, or happened; `values` take the places of %s in the text, only where it is traced."""
    if level >= DECISIONS and _write is not None:
        _write(stamp(), _bounded(text % values if values else text, LINE_CHARACTERS))


def message(way: str, found: Any, peer: str = "") -> None:
    """Trace a message (protocol.message.Message); `way` is "sent" or "received"."""
    if level >= MESSAGES and _write is not None and found.op not in _LEFT_OUT:
        text = f"{way} {found.op}{f' ({peer})' if peer else ''}: {_fields(vars(found))}"
        _write(stamp(), _bounded(text, LINE_CHARACTERS))


def stamp() -> str:
    """Return the present time: UTC, to the millisecond (RFC 3339)."""
    now = time.time()
    return f"{time.strftime('%Y-%m-%dT%H:%M:%S', time.gmtime(now))}.{int(now * 1000) % 1000:03}Z"


def _fields(values: Mapping[str, Any]) -> str:
    return ", ".join(f"{name}={_value(name, value)}" for name, value in values.items())


def _value(name: str, value: Any) -> str:
    if hasattr(value, "to_wire"):
        return f"({_fields(vars(value))})"
    if isinstance(value, bytes):
        return f"{len(value)} bytes"
    if value is not None and (name in _HIDDEN or (isinstance(value, str) and value.startswith(_DAMAGED))):
        return f"({len(value)} not shown)"
    if type(value).__name__ in _RECORDS_WITH_VARIABLES:
        return type(value).__name__
    return _bounded(repr(value), _VALUE_CHARACTERS)


def _bounded(text: str, most: int) -> str:
    text = text if text.isprintable() else repr(text)[1:-1]
    return text if len(text) <= most else f"{text[: most - 4]} ..."
