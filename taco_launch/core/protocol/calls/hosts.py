"""The call `top`: who has which slots of each host."""

from typing import Optional, Sequence

from taco_launch.core.model.job_view import Usage, check_usage
from taco_launch.core.model.slots import Occupancy, check_occupancy
from taco_launch.core.protocol.calls import Reply, Request
from taco_launch.core.protocol.message import Message


class HostSize(Message):
    """A host's slots in the inventory: Host.slots and Host.gpus."""

    name: str
    slots: Optional[int]
    gpus: str


class Top(Request):
    """Return who has which slots of these hosts; `here` is the name of the agent's own. Reply: SlotsReply for each."""

    op = "top"
    hosts: Sequence[HostSize]
    here: str


class SlotsReply(Reply):
    """The holders of a host's slots. If they are not known, `problem` is the reason and `occupancy` is None.

    `usage` is how much of the host's hardware was in use while it was asked, None where that was not measured.
    """

    op = "slots"
    host: str
    occupancy: Optional[Occupancy] = None
    problem: str = ""
    usage: Optional[Usage] = None

    def check(self) -> None:
        """Check that no more slots are GPUs than there are, and that one of the two is given."""
        if self.occupancy is not None:
            check_occupancy(self.occupancy)
        if self.usage is not None:
            check_usage(self.usage)
        if (self.occupancy is None) != bool(self.problem):
            raise ValueError("either its slots or a problem is needed")
