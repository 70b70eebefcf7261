"""Who has the slots of this host, as a guard would see it."""

import os
from pathlib import Path

from taco_launch.agent.host.occupancy import Slots
from taco_launch.agent.store.folders import lease_folder, state_folder
from taco_launch.core.model.slots import Occupancy


def slots_here(size: int, gpus: str = "auto") -> Occupancy:
    """Look once; what the environment says is where leases and jobs lie."""
    state = state_folder(os.environ, os.geteuid())
    folder: Path = lease_folder(os.environ, state, root=os.geteuid() == 0)
    return Slots(folder, state / "jobs", str(size), gpus).read_thoroughly()
