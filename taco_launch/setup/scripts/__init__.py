"""Hold the shell scripts that run on hosts and in their containers."""

from functools import cache
from importlib import resources


@cache
def text(name: str) -> str:
    """Return a script of this folder: `main.sh`."""
    return resources.files(__name__).joinpath(name).read_text("utf-8")
