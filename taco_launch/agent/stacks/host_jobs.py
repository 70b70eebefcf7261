"""Find the ranks on this host, of any launcher, watch them for some seconds, and read their stacks. Nothing is written.

The controller starts this from memory (jobs/any_ranks.py): no agent is installed for it, and there is no job folder.
"""

import itertools
import os
import re
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
from taco_launch.core.launch.command_line.nested_launcher import inner
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
# One stack takes up to 0.6 s, and all of them may take so long beside the time of the watch.
_STACK_SECONDS, _STACKS_SECONDS = 5.0, 60.0
_MOST_BYTES = 1 << 20
# Any user may have processes with the variables of ranks.
_MOST_RANKS = 1024
# A helper of multiprocessing, beside the workers.
_TRACKER = "multiprocessing.resource_tracker"
# What looks for ranks has the text that is looked for in its command line, too.
_OWN = (" stacks", "--match")


def main(seconds: float, match: str, program: Optional[bytes]) -> None:
    """Print a line of JSON (HostJobs); `program` is py-spy's, None to use the one on PATH."""
    spy = PySpy(program, _STACK_SECONDS, time.monotonic() + seconds + _STACKS_SECONDS)
    sys.stdout.buffer.write(host_jobs(seconds, match, spy).encode())
    sys.stdout.buffer.flush()


def host_jobs(seconds: float, match: str, spy: PySpy) -> HostJobs:
    """Return the jobs of this host, watched for so many seconds; with `match` those with that text in a command line.

    Where no rank of any launcher has it, the Python programs that have it are returned as one job without a launcher.
    """
    seen = look()
    roots = rank_roots(seen.processes)
    if match:
        trees = _trees(seen.processes, roots)
        roots = [
            root
            for root, keys in zip(roots, trees)
            if any(match in seen.processes[pid].command for pid, _start in keys if pid in seen.processes)
        ]
        roots = roots or list(_programs(seen.processes, matching_roots(seen.processes, match), match, spy))
    left_out = max(0, len(roots) - _MOST_RANKS)
    jobs: Dict[Tuple[str, str, int, int], List[RankRoot]] = {}
    for root in roots[:_MOST_RANKS]:
        jobs.setdefault((root.launcher, root.job, root.parent, root.size), []).append(root)
    watched = [_WatchedJob(members, seen.processes, seconds) for members in jobs.values()]
    _watch(watched, seconds, spy)
    answers = ras.status({seen.processes[root.pid].variables.get(RAS_ADDRESS, "") for root in roots})
    hidden = [pid for pid in seen.hidden if match in _command(pid)]
    why = processes.why_hidden() or (
        f"{len(hidden)} Python programs of other users could not be read" if hidden else ""
    )
    return HostJobs(jobs=[job.result() for job in watched], hidden=why, left_out=left_out, ras=answers)


# What starts a rank of taco-launch: it has the rank's variables, and is no part of the rank.
_STARTER = re.compile(r"\S+ -I -S \S+\.pyz (?:rank|start|guard|run) ")


class Seen(NamedTuple):
    """The processes of this host but for those that look, and Python programs whose environment cannot be read."""

    processes: Dict[int, ProcessSeen]
    hidden: List[int]


def look() -> Seen:
    """Read /proc."""
    entries = {entry.pid: entry for entry in filter(None, map(processes.identify, processes.pids()))}
    own: Set[int] = set()  # this process and those above it
    pid = os.getpid()
    while pid in entries and pid not in own:
        own.add(pid)
        pid = entries[pid].parent
    host = socket.gethostname()
    seen = Seen({}, [])
    for entry in entries.values():
        command = _command(entry.pid)
        if entry.pid in own or entry.state == "Z" or all(word in command for word in _OWN):
            continue
        try:
            variables = {} if _STARTER.match(command) else _variables(entry.pid)
            network = f"{host} {os.readlink(f'/proc/{entry.pid}/ns/net')}" if variables else ""
        except PermissionError:
            if process_trees.word(entry.pid, "comm").startswith("python"):
                seen.hidden.append(entry.pid)
            continue
        except OSError:  # it has ended
            continue
        seen.processes[entry.pid] = ProcessSeen(entry.parent, entry.start, variables, command, network)
    return seen


def _variables(pid: int) -> Dict[str, str]:
    with open(f"/proc/{pid}/environ", "rb") as file:
        pairs = (item.decode("utf-8", "replace").partition("=") for item in file.read(_MOST_BYTES).split(b"\0"))
        return {name: value for name, _, value in pairs if name in VARIABLES}


def _command(pid: int) -> str:
    return " ".join(process_trees.word(pid, "cmdline").rstrip("\0").split("\0"))


def _trees(seen: Mapping[int, ProcessSeen], roots: Sequence[RankRoot]) -> List[List[Key]]:
    """Return the processes of each root, it first."""
    keys = {number: (root.pid, seen[root.pid].start) for number, root in enumerate(roots)}
    trees = process_trees.trees(keys)
    return [trees[number] for number in keys]


def _programs(seen: Mapping[int, ProcessSeen], roots: Sequence[RankRoot], match: str, spy: PySpy) -> Iterator[RankRoot]:
    """Yield the Python program of each tree, numbered; of one that waits for its children, these; of a launcher, itself."""
    number = 0
    for root, keys in zip(roots, _trees(seen, roots)):
        members = process_trees.look_at(keys)
        program = process_trees.of_python(members)
        starting = _starting(seen, keys, match)
        if starting:
            yield root._replace(pid=(program or root).pid, rank=number, parent=root.pid, starting=starting)
            number += 1
            continue
        if program is None:
            continue  # an editor that shows the script, say
        children = [one.pid for one in members if one.pid in seen and seen[one.pid].parent == program.pid]
        workers = [pid for pid in children if process_trees.runs_python(pid) and _TRACKER not in seen[pid].command]
        stack = spy.read(program.pid).stack if workers else None
        for pid in workers if stack is not None and waits_for_children(stack) else [program.pid]:
            if pid in seen:
                yield root._replace(pid=pid, rank=number, parent=root.pid)
                number += 1


def launcher_in(command: str) -> str:
    """Return the name of the launcher that a process with this command line runs; "" where it runs none."""
    words = command.split()
    launcher = inner(words)
    if launcher is None and words and words[0].rpartition("/")[2].startswith("python"):
        # A launcher written in Python: its interpreter comes first, with options.
        launcher = inner(list(itertools.dropwhile(lambda word: word.startswith("-"), words[1:])))
    return launcher.name if launcher else ""


def _starting(seen: Mapping[int, ProcessSeen], keys: Sequence[Key], match: str) -> str:
    """Return the launcher among some processes that runs no Python program with the text yet; "" for none.

    What it forks for a moment has its own command line.
    """
    launchers = {pid: launcher_in(seen[pid].command) for pid, _start in keys if pid in seen}
    for pid, launcher in launchers.items():
        if not launcher and match in seen[pid].command and process_trees.runs_python(pid):
            return ""
    return next(filter(None, launchers.values()), "")


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

    @property
    def keys(self) -> List[Key]:
        """Return the uppermost process of each rank."""
        return list(self._keys.values())

    def look(self, trees: Mapping[Key, List[Key]], network: Optional[int]) -> None:
        """Look at the counters of its ranks, whose processes these are by the uppermost one."""
        now = time.monotonic()
        self._first = self._first if self._members else now
        members = {rank: trees[key] for rank, key in self._keys.items() if trees[key]}
        for rank, keys in members.items():
            self._changes[rank] += keys != self._members.get(rank, keys)
        self._members, self._last = members, now
        samples = {
            rank: rank_sample(present, now, network=network, changes=self._changes[rank])
            for rank, present in self._ranks().items()
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
            starting=self._root.starting,
        )

    def _ranks(self) -> Dict[int, List[RankProcess]]:
        return {rank: process_trees.look_at(keys) for rank, keys in self._members.items()}


def _watch(jobs: Sequence[_WatchedJob], seconds: float, spy: PySpy) -> None:
    """Look at jobs again and again, side by side; read their stacks at equal distances."""
    begun, taken = time.monotonic(), 0
    while jobs:
        network = infiniband_bytes()
        keys = [key for job in jobs for key in job.keys]
        numbered = process_trees.trees(dict(enumerate(keys)))
        trees = {key: numbered[number] for number, key in enumerate(keys)}
        for job in jobs:
            job.look(trees, network)
        elapsed = time.monotonic() - begun
        if taken < _STACKS and elapsed >= seconds * (taken + 0.5) / _STACKS:
            for job in jobs:
                job.read(spy)
            taken += 1
        elif elapsed >= seconds:
            return
        else:
            time.sleep(_LOOK_SECONDS)
