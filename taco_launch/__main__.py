"""`python -m taco_launch` is `taco-launch`."""

from taco_launch.cli.main import script

script()
