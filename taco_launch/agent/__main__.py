"""The agent's command line, as the zipapp runs it: `agent OP` for the controller, the rest for itself."""

import os
import sys
from pathlib import Path
from typing import List

from taco_launch.agent.folders import JobFolder


def main(agent: str, arguments: List[str]) -> int:  # noqa: PLR0911 - one for each kind of process
    """Run one agent process; `agent` is the file it runs from. Imports follow the work, since every rank starts one."""
    op, *rest = arguments
    if op == "rank":
        from taco_launch.agent import rank

        return rank.main(JobFolder(Path(rest[0])), rest[2:])
    if op == "start":
        from taco_launch.agent import starter

        return starter.main(JobFolder(Path(rest[0])), rest[1:6], rest[7:])
    if op == "daemon":
        from taco_launch.agent import daemon

        return daemon.main(JobFolder(Path(rest[0])), rest[2:])
    if op == "visit":
        from taco_launch.agent import visit

        return visit.main(JobFolder(Path(rest[0])), int(rest[1]), rest[3:])
    os.umask(0o077)  # a rank keeps its caller's
    if op == "guard":
        from taco_launch.agent import guard

        return guard.main(JobFolder(Path(rest[0])), rest[1] if len(rest) > 1 else "")
    if op in ("guard-start", "attach", "clear", "remove"):
        from taco_launch.agent import attach

        return attach.main(op, agent, rest)
    if op in ("slots", "watch"):
        from taco_launch.agent import occupancy

        return occupancy.main(op, rest)
    if op == "schedule":
        from taco_launch.agent import schedule

        return schedule.main(agent, rest)
    if op == "run":
        from taco_launch.agent import program

        folder = JobFolder(Path(rest[0]))
        # Started before the supervisor's own imports, which take as long as the guard's.
        guard_process = program.start(agent, "guard", str(folder.path))
        from taco_launch.agent import supervisor

        return supervisor.main(folder, agent, guard_process, int(rest[1]))
    from taco_launch.agent import serve

    return serve.serve(op, agent, sys.stdin.buffer, sys.stdout.buffer)
