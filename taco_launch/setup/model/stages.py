"""Name the stages of set-up, in the order in which they are applied."""

from typing import Literal, get_args

# Each builds on what those before it leave.
Stage = Literal["docker", "toolkit", "peermem", "image", "container", "ssh_mesh", "agent"]


STAGES: tuple[Stage, ...] = get_args(Stage)
