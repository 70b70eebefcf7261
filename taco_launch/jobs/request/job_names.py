"""What a job is called that nobody names."""

import os
import re
from pathlib import PurePath


def default_name(command: tuple[str, ...]) -> str:
    """Make a name for a job out of its command, and four random letters."""
    return f"{stem(command)}-{os.urandom(2).hex()}"


def stem(command: tuple[str, ...]) -> str:
    """Name a command by its script or else its program, as a job's name may begin."""
    program, *rest = command
    told = program
    if PurePath(program).name.startswith("python"):
        while rest and rest[0].startswith("-") and rest[0] not in ("-c", "-m"):
            rest = rest[1:]
        if rest and rest[0] != "-c":
            told = rest[1] if rest[0] == "-m" and len(rest) > 1 else rest[0]
    letters = re.sub("[^A-Za-z0-9]+", "-", PurePath(told).name.removesuffix(".py")).strip("-")
    return letters[:40] or "job"
