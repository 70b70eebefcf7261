"""Run on hosts as one zipapp: queue, supervisors, guards, rank wrappers; standard library, Python 3.8."""

from typing import Callable, List, Optional

# `main` of __main__.py in a process that runs the agent: what a process forked from it runs, with arguments of its own.
process_main: Optional[Callable[[str, List[str]], int]] = None
