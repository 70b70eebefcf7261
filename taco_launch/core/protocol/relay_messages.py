"""What brings a supervisor to a guard of another host, or does without one (guard/relay.py): all are for the supervisor."""

from typing import Sequence

from taco_launch.core.protocol.message import Message


class Attached(Message):
    """The relay is connected to the guard: all further messages are the guard's."""

    op = "attached"


class NoAgent(Message):
    """The host has not got the agent, and reads it now: it runs once all of its bytes have come."""

    op = "no-agent"


class NoGuard(Message):
    """No guard answers on that host; `boot` is the host's boot id, `debug` the file of the guard's last output."""

    op = "no-guard"
    boot: str
    debug: str


class Refused(Message):
    """The host does not accept the job, and why."""

    op = "refused"
    reason: str


class Cleared(Message):
    """The job was ended on the host without its guard; the fields are those of Ended."""

    op = "cleared"
    left: Sequence[int] = ()
    unknown: str = ""


class FolderRemoved(Message):
    """The job was ended on the host without its guard, and its folder was removed; the fields are those of Ended."""

    op = "removed"
    left: Sequence[int] = ()
    unknown: str = ""
