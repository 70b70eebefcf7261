"""The agent: standard library only, Python 3.8 or newer, shipped as one zipapp to where jobs run."""

from typing import Callable, List, Optional

# `main` of __main__.py in a process that runs the agent: what a process forked from it runs, with arguments of its own.
process_main: Optional[Callable[[str, List[str]], int]] = None
