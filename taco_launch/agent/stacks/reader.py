"""`agent rank-stacks`: what each rank of a job does on this host, as a line of JSON (HostStacks)."""

import select
import sys
import time
from typing import Dict, Optional

from taco_launch.agent.counters import process_trees
from taco_launch.agent.counters.process_trees import Key
from taco_launch.agent.stacks.py_spy import PySpy, installed, read_ranks
from taco_launch.agent.store.folders import JobFolder
from taco_launch.core.errors import NO_JOB
from taco_launch.core.protocol.connection import JsonConnection
from taco_launch.core.protocol.stack_messages import HostStacks
from taco_launch.core.protocol.stall_messages import AskRanks, RunningRanks

_GUARD_SECONDS = 10.0


def main(folder: JobFolder, agent: str) -> int:
    """Print what each rank does that the guard of the job on this host knows."""
    roots = _ranks(folder)
    if roots is None:
        sys.stderr.write(f"taco-launch: no guard of the job answers in {folder.path}: has it ended?\n")
        return NO_JOB
    members = {rank: process_trees.of_rank(keys) for rank, keys in process_trees.trees(roots).items()}
    ranks = read_ranks(PySpy(installed(agent)), members)
    sys.stdout.buffer.write(HostStacks(ranks=ranks).encode())
    sys.stdout.buffer.flush()
    return 0


def _ranks(folder: JobFolder) -> Optional[Dict[int, Key]]:
    """Ask the guard; None where it is gone, or hangs."""
    try:
        guard = JsonConnection(folder.connect())
    except OSError:
        return None
    guard.send(AskRanks())
    deadline = time.monotonic() + _GUARD_SECONDS
    while select.select([guard], [], [], max(0.0, deadline - time.monotonic()))[0]:
        messages = guard.receive()
        if messages is None:
            return None
        for message in messages:
            if isinstance(message, RunningRanks):
                return {int(rank): (root[0], root[1]) for rank, root in message.ranks.items()}
    return None
