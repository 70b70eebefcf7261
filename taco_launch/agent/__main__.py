"""The agent's command line, as the zipapp runs it: `agent OP` for the controller, the rest for itself."""

import os
import sys
from pathlib import Path
from typing import List

from taco_launch import agent as package
from taco_launch.agent.store.folders import JobFolder


def main(agent: str, arguments: List[str]) -> int:  # noqa: C901, PLR0911, PLR0912 - one for each kind of process
    """Run one agent process; `agent` is the file it runs from. Imports follow the work, since every rank starts one."""
    package.process_main = main
    op, *rest = arguments
    if op == "rank":
        from taco_launch.agent.rank import wrapper

        return wrapper.main(JobFolder(Path(rest[0])), rest[2:])
    if op == "start":
        from taco_launch.agent.rank import spawner

        return spawner.main(JobFolder(Path(rest[0])), rest[1:6], rest[7:])
    if op in ("daemon", "proxy"):
        from taco_launch.agent.rank import orted_wrapper

        return orted_wrapper.main(JobFolder(Path(rest[0])), rest[2:], is_proxy=op == "proxy")
    if op == "enter":
        from taco_launch.agent.rank import exec_process

        return exec_process.main(JobFolder(Path(rest[0])), int(rest[1]), rest[2], agent, rest[4:])
    if op in ("pack", "unpack"):
        return _of_files(op, rest)
    os.umask(0o077)  # a rank keeps its caller's
    if op == "tensorboard":
        from taco_launch.agent.tensorboard import keeper

        return keeper.main(JobFolder(Path(rest[0])))
    if op == "guard":
        from taco_launch.agent.guard import guard

        return guard.main(JobFolder(Path(rest[0])), rest[1] if len(rest) > 1 else "")
    if op == "stacks" and rest:  # without words it is the controller's call
        from taco_launch.agent.stacks import reader

        return reader.main(JobFolder(Path(rest[0])), agent)
    if op in ("guard-start", "attach", "clear", "remove"):
        from taco_launch.agent.guard import relay

        return relay.main(op, agent, rest)
    if op in ("code", "snapshot-serve", "snapshot-prune") and rest:  # without words the last one is the controller's
        return _of_snapshots(op, rest)
    if op in ("slots", "watch"):
        from taco_launch.agent.host import occupancy

        return occupancy.main(op, rest)
    if op == "schedule":
        from taco_launch.agent.scheduler import scheduler

        return scheduler.main(agent, rest)
    if op == "begin":
        from taco_launch.agent.scheduler import elsewhere

        return elsewhere.main(agent, JobFolder(Path(rest[0])))
    if op == "wake":
        from taco_launch.agent.upkeep import scheduler_wakeup

        return scheduler_wakeup.main(agent)
    if op == "notify":
        from taco_launch.agent.supervisor import notify

        return notify.main(JobFolder(Path(rest[0])), rest[1:])
    if op == "run":
        from taco_launch.agent.processes import agent_program

        folder = JobFolder(Path(rest[0]))
        # Started before the supervisor's own imports, which take as long as the guard's.
        guard_process = agent_program.start(agent, "guard", str(folder.path))
        from taco_launch.agent.supervisor import supervisor

        return supervisor.main(folder, agent, guard_process, int(rest[1]))
    from taco_launch.agent.api import serve

    return serve.serve(op, agent, sys.stdin.buffer, sys.stdout.buffer)


def _of_snapshots(op: str, rest: List[str]) -> int:
    """Run a process that deals with copies of code, of which few jobs have any."""
    from taco_launch.agent.snapshots import eviction, fetch, serve

    if op == "code":
        return fetch.main(JobFolder(Path(rest[0])), int(rest[1]))
    if op == "snapshot-serve":
        return serve.main(Path(rest[0]), rest[1])
    return eviction.main(Path(rest[0]), float(rest[1]), dry_run="--dry-run" in rest[2:])


def _of_files(op: str, rest: List[str]) -> int:
    """Run a process that copies a rank's files."""
    if op == "pack":
        from taco_launch.agent.rank import tree_pack

        return tree_pack.main(int(rest[0]), rest[1])
    from taco_launch.agent.rank import tree_unpack

    return tree_unpack.main(int(rest[0]), rest[1])
