"""Who has a slot of this host, or had it last, as the slot's file says."""

import os
from typing import Optional

from taco_launch.agent.protocol import parsed
from taco_launch.frozen import dataclass
from taco_launch.model.codec import from_json
from taco_launch.model.slots import SlotHolder

_MOST_BYTES = 1 << 16


@dataclass(frozen=True)
class Holder:
    """A job, as it says of itself.

    `id` is its mark, `since` when it took the slot (seconds since the epoch), `agent` the name of its agent file, `folder`
    its folder on this host. `uid` is the user that its processes run as, `pid` that of its guard, which has the lock;
    both -1 where they are not told.
    """

    job: str
    id: str
    since: float
    agent: str
    folder: str
    cluster: str = ""
    owner: str = ""
    uid: int = -1
    pid: int = -1

    @property
    def shown(self) -> SlotHolder:
        """Give what others are told of it."""
        return SlotHolder(self.job, self.id, self.since, self.cluster, self.owner)

    @property
    def is_ours(self) -> bool:
        """Whether its processes run as the user of this process."""
        return self.uid in (-1, os.geteuid())


def read_holder(file: int) -> Optional[Holder]:
    """Read a slot's file, None where it names nobody."""
    told = parsed(os.pread(file, _MOST_BYTES, 0))
    try:
        return None if told is None else from_json(Holder, told)
    except ValueError:
        return None
