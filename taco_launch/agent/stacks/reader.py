"""`agent stacks`: what each rank of a job does on this host, as a line of JSON (HostStacks)."""

import select
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Dict, List, Optional

from taco_launch.agent.counters import process_trees
from taco_launch.agent.counters.process_trees import Key
from taco_launch.agent.stacks.py_spy import PySpy
from taco_launch.agent.store.folders import JobFolder
from taco_launch.errors import NO_JOB
from taco_launch.model.run.looks import RankStack
from taco_launch.model.stalls import RankLook
from taco_launch.protocol.connection import JsonConnection
from taco_launch.protocol.stack_messages import WHY_CHARACTERS, HostStacks
from taco_launch.protocol.stall_messages import AskRanks, RunningRanks
from taco_launch.stalls import groups
from taco_launch.stalls.waits import place

_GUARD_SECONDS = 10.0
# py-spy needs a core; those that the ranks poll on are theirs.
_AT_ONCE = 4
_NO_PYTHON = "the rank runs no Python program"


def main(folder: JobFolder, agent: str) -> int:
    """Print what each rank does that the guard of the job on this host knows."""
    roots = _ranks(folder)
    if roots is None:
        sys.stderr.write(f"taco-launch: no guard of the job answers in {folder.path}: has it ended?\n")
        return NO_JOB
    found = process_trees.trees(roots)
    spy = PySpy(agent)
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        ranks = list(pool.map(lambda rank: _read(spy, rank, found[rank]), sorted(found)))
    sys.stdout.buffer.write(HostStacks(ranks=ranks).encode())
    sys.stdout.buffer.flush()
    return 0


def _read(spy: PySpy, rank: int, keys: List[Key]) -> RankStack:
    present = process_trees.of_rank(keys)
    shown, python = process_trees.most_telling(present), process_trees.of_python(present)
    if python is None or (shown is not None and shown.state == "T"):
        look = RankLook(rank) if shown is None else _look(rank, shown)
        return RankStack(look, why=_NO_PYTHON if python is None else "")
    look = _look(rank, python)  # before it is traced, which is a state of its own
    reading = spy.read(python.pid)
    if reading.stack is None:
        return RankStack(look, why=reading.why[:WHY_CHARACTERS])
    where = place(reading.stack)
    told = replace(look, does=groups.does(where)[:WHY_CHARACTERS], waits=where.waits, gpu=where.gpu)
    return RankStack(told, reading.stack)


def _look(rank: int, shown: process_trees.RankProcess) -> RankLook:
    pid = shown.pid
    return RankLook(rank, pid, process_trees.word(pid, "comm"), shown.state, process_trees.where(pid))


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
