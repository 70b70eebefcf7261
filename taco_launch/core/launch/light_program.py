"""The program of `--light` where the image has no LightCC: `python -m taco_launch.light`, from the agent's own file."""

import re
from typing import Sequence, Tuple

MODULE = "taco_launch.light"
_PYTHON = re.compile(r"(?:.*/)?python[0-9.]*$", re.DOTALL)
_WITH_VALUE = ("-X", "-W")


def with_light(command: Sequence[str]) -> Tuple[str, ...]:
    """Return a command whose script or module `taco_launch.light` runs; another command as it is."""
    place = 1
    while command[place : place + 1] and command[place].startswith("-") and command[place] not in ("-m", "-c", "-"):
        place += 2 if command[place] in _WITH_VALUE else 1
    runs_file = place < len(command) and command[place] not in ("-c", "-")
    if not (is_python(command[0]) and runs_file) or names_light(command):
        return tuple(command)
    return (*command[:place], "-m", MODULE, *command[place:])


def is_python(word: str) -> bool:
    """Return whether a word names a Python interpreter."""
    return bool(_PYTHON.match(word))


def names_light(command: Sequence[str]) -> bool:
    """Return whether a command runs `taco_launch.light`, in a line for a shell too."""
    return any(MODULE in word for word in command)
