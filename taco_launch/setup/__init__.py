"""Facts and an inventory in, a plan of set-up out: pure, one file per stage."""

from typing import Literal

Stage = Literal["docker", "toolkit", "peermem", "image", "container", "ssh_mesh", "agent"]
# In the order in which they are applied: each builds on what those before it leave.
STAGES: tuple[Stage, ...] = ("docker", "toolkit", "peermem", "image", "container", "ssh_mesh", "agent")
