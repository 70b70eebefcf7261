"""How processes of the agent are started: the same file, isolated from the caller's Python set-up."""

import sys
from typing import Tuple


def argv(agent: str, *arguments: str) -> Tuple[str, ...]:
    """Give the argv of an agent process; -I and -S let nothing but the standard library be imported."""
    return (sys.executable, "-I", "-S", agent, *arguments)
