"""Find the ranks on this host, of any launcher, watch them for some seconds, and read their stacks. Nothing is written.

The controller starts this from memory (jobs/any_ranks.py): no agent is installed for it, and there is no job folder.
"""

import os
import socket
import sys
import time
from dataclasses import replace
from typing import Dict, Iterator, List, Mapping, NamedTuple, Optional, Sequence, Set, Tuple

from taco_launch.agent.counters import process_trees
from taco_launch.agent.counters.process_trees import Key, RankProcess
from taco_launch.agent.counters.rank_sample import infiniband_bytes, rank_sample
from taco_launch.agent.host import processes
from taco_launch.agent.stacks import ras
from taco_launch.agent.stacks.py_spy import PySpy, read_ranks
from taco_launch.core.model.run.host_jobs import HostJob
from taco_launch.core.model.run.rank_samples import RankStack
from taco_launch.core.protocol.stack_messages import COMMAND_CHARACTERS, HostJobs
from taco_launch.core.stalls.quiet import LEAST_STACKS, QuietHost
from taco_launch.core.stalls.rank_roots import (
    RAS_ADDRESS,
    VARIABLES,
    ProcessSeen,
    RankRoot,
    matching_roots,
    rank_roots,
)
from taco_launch.core.stalls.waits import waits_for_children

# Between two looks at the counters. Stacks are read as often as is needed to see whether they move, and once more.
_LOOK_SECONDS = 1.0
_STACKS = LEAST_STACKS + 1
_MOST_BYTES = 1 << 20
# A helper of multiprocessing, beside the workers.
_TRACKER = "multiprocessing.resource_tracker"


def main(seconds: float, match: str, program: Optional[bytes]) -> None:
    """Print a line of JSON (HostJobs); `program` is py-spy's, None to use the one on PATH."""
    sys.stdout.buffer.write(host_jobs(seconds, match, PySpy(program)).encode())
    sys.stdout.buffer.flush()


def host_jobs(seconds: float, match: str, spy: PySpy) -> HostJobs:
    """Return the jobs of this host, watched for so many seconds; with `match` those with that text in a command line.

    Where no rank of any launcher has it, the Python programs that have it are returned as one job without a launcher.
    """
    seen = look()
    roots = [root for root in rank_roots(seen.processes, socket.gethostname()) if _matches(seen.processes, root, match)]
    if match and not roots:
        roots = list(_python_programs(seen.processes, matching_roots(seen.processes, match), spy))
    jobs: Dict[Tuple[str, str, int, int], List[RankRoot]] = {}
    for root in roots:
        jobs.setdefault((root.launcher, root.job, root.parent, root.size), []).append(root)
    watched = [_WatchedJob(members, seen.processes, seconds) for members in jobs.values()]
    _watch(watched, seconds, spy)
    addresses = {seen.processes[root.pid].variables.get(RAS_ADDRESS, ras.ADDRESS) for root in roots}
    hidden = sum(1 for pid in seen.hidden if match in _command(pid))
    return HostJobs(
        jobs=[job.result() for job in watched], hidden=hidden, ras=ras.status(min(addresses)) if addresses else ""
    )


class Seen(NamedTuple):
    """The processes of this host but for those that look, and Python programs whose environment cannot be read."""

    processes: Dict[int, ProcessSeen]
    hidden: List[int]


def look() -> Seen:
    """Read /proc."""
    entries = {entry.pid: entry for entry in filter(None, map(processes.identify, processes.pids()))}
    own: Set[int] = set()  # this process and those above it: their command lines have the text that is looked for
    pid = os.getpid()
    while pid in entries and pid not in own:
        own.add(pid)
        pid = entries[pid].parent
    seen = Seen({}, [])
    for entry in entries.values():
        if entry.pid in own or entry.state == "Z":
            continue
        try:
            variables = _variables(entry.pid)
        except PermissionError:
            if process_trees.word(entry.pid, "comm").startswith("python"):
                seen.hidden.append(entry.pid)
            continue
        except OSError:  # it has ended
            continue
        seen.processes[entry.pid] = ProcessSeen(entry.parent, entry.start, variables, _command(entry.pid))
    return seen


def _variables(pid: int) -> Dict[str, str]:
    with open(f"/proc/{pid}/environ", "rb") as file:
        pairs = (item.decode("utf-8", "replace").partition("=") for item in file.read(_MOST_BYTES).split(b"\0"))
        return {name: value for name, _, value in pairs if name in VARIABLES}


def _command(pid: int) -> str:
    return " ".join(process_trees.word(pid, "cmdline").rstrip("\0").split("\0"))


def _matches(seen: Mapping[int, ProcessSeen], root: RankRoot, match: str) -> bool:
    key = (root.pid, seen[root.pid].start)
    below = process_trees.trees({0: key})[0]
    return any(match in seen[pid].command for pid, _start in below if pid in seen)


def _python_programs(seen: Mapping[int, ProcessSeen], roots: Sequence[RankRoot], spy: PySpy) -> Iterator[RankRoot]:
    """Yield the Python program of each tree, numbered; of a program that waits for its children, these."""
    trees = process_trees.trees({root.rank: (root.pid, seen[root.pid].start) for root in roots})
    number = 0
    for root in roots:
        members = process_trees.look_at(trees[root.rank])
        program = process_trees.of_python(members)
        if program is None:
            continue  # an editor that shows the script, say
        children = [one.pid for one in members if one.pid in seen and seen[one.pid].parent == program.pid]
        workers = [pid for pid in children if process_trees.runs_python(pid) and _TRACKER not in seen[pid].command]
        stack = spy.read(program.pid).stack if workers else None
        for pid in workers if stack is not None and waits_for_children(stack) else [program.pid]:
            if pid in seen:
                yield root._replace(pid=pid, rank=number, parent=root.pid)
                number += 1


class _WatchedJob:
    """One job of this host while it is watched."""

    def __init__(self, roots: Sequence[RankRoot], seen: Mapping[int, ProcessSeen], seconds: float) -> None:
        self._root = roots[0]
        # The uppermost process has the line that was typed; those of multiprocessing have one of its own.
        self._command = seen[roots[0].pid if roots[0].launcher else roots[0].parent].command
        self._keys: Dict[int, Key] = {root.rank: (root.pid, seen[root.pid].start) for root in roots}
        self._host = QuietHost(2 * seconds)
        self._members: Dict[int, List[Key]] = {}
        self._changes: Dict[int, int] = dict.fromkeys(self._keys, 0)
        self._first = self._last = time.monotonic()
        self._stacks: Dict[int, RankStack] = {}

    def look(self, network: Optional[int]) -> None:
        """Look at the counters of its ranks."""
        now = time.monotonic()
        self._first = self._first if self._members else now
        trees = {rank: keys for rank, keys in process_trees.trees(self._keys).items() if keys}
        for rank, keys in trees.items():
            self._changes[rank] += keys != self._members.get(rank, keys)
        self._members, self._last = trees, now
        samples = {
            rank: rank_sample(members, now, network=network, changes=self._changes[rank])
            for rank, members in self._ranks().items()
        }
        self._host.add(now, samples)

    def read(self, spy: PySpy) -> None:
        """Read the stacks of its ranks."""
        self._stacks = {rank.look.rank: rank for rank in read_ranks(spy, self._ranks())}
        self._host.add_stacks({number: rank.stack for number, rank in self._stacks.items() if rank.stack is not None})

    def result(self) -> HostJob:
        """Return what was seen of it."""
        seconds = self._last - self._first
        works = self._host.silent < seconds - _LOOK_SECONDS / 2
        return HostJob(
            launcher=self._root.launcher,
            name=self._root.job[:COMMAND_CHARACTERS],
            size=self._root.size,
            command=self._command[:COMMAND_CHARACTERS],
            seconds=seconds,
            silent=self._host.silent,
            sign=self._host.sign[:COMMAND_CHARACTERS] if works else "",
            ranks=tuple(
                replace(rank, look=self._host.standing(rank.look)) for _number, rank in sorted(self._stacks.items())
            ),
        )

    def _ranks(self) -> Dict[int, List[RankProcess]]:
        return {rank: process_trees.look_at(keys) for rank, keys in self._members.items()}


def _watch(jobs: Sequence[_WatchedJob], seconds: float, spy: PySpy) -> None:
    """Look at jobs again and again, side by side; read their stacks at equal distances."""
    begun, taken = time.monotonic(), 0
    while jobs:
        network = infiniband_bytes()
        for job in jobs:
            job.look(network)
        elapsed = time.monotonic() - begun
        if taken < _STACKS and elapsed >= seconds * (taken + 0.5) / _STACKS:
            for job in jobs:
                job.read(spy)
            taken += 1
        elif elapsed >= seconds:
            return
        else:
            time.sleep(_LOOK_SECONDS)
