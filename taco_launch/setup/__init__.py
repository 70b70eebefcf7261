"""Facts and an inventory in, a plan of set-up out: pure, one file per stage.

To add a stage, write a file of its name with a STAGE (stages/), and name it below.
"""

from typing import Literal, get_args

# In the order in which they are applied: each builds on what those before it leave.
Stage = Literal["docker", "toolkit", "peermem", "image", "container", "ssh_mesh", "agent"]
STAGES: tuple[Stage, ...] = get_args(Stage)
