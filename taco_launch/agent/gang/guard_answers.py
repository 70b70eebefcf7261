"""The answers of a guard to its orders."""

from typing import Optional

from taco_launch.core.protocol.guard_messages import (
    CodeFetched,
    Ended,
    HostReport,
    LauncherEnded,
    Leased,
    Probed,
    Reached,
    SlotsReleased,
)
from taco_launch.core.protocol.message import Message


class Answers:
    """The last answer of each kind; None until the guard gives one."""

    def __init__(self) -> None:
        """Know nothing yet."""
        self.facts: Optional[HostReport] = None
        self.leased: Optional[Leased] = None
        self.unleased: Optional[SlotsReleased] = None
        self.reached: Optional[Reached] = None
        self.probed: Optional[Probed] = None
        self.fetched: Optional[CodeFetched] = None
        self.done: Optional[LauncherEnded] = None
        self.ended: Optional[Ended] = None

    def note(self, message: Message) -> None:
        """Keep an answer."""
        if isinstance(message, (HostReport, Leased, SlotsReleased, Reached, Probed, CodeFetched, LauncherEnded, Ended)):
            setattr(self, message.op, message)
