"""Whether the ranks of this host do anything: the guard looks at their logs and, where these rest, at their CPU time.

Doing something is to write, to start or end a process, or to use more than a hundredth of one core. A rank that waits by
asking again and again (MPI and NCCL do so) uses CPU time: that is no sign of a hang, and none that there is no hang.
"""

import os
from typing import Callable, Collection, Dict, FrozenSet, List, NamedTuple, Optional, Sequence, Set, Tuple

from taco_launch.agent.host import processes
from taco_launch.agent.logs import segments
from taco_launch.agent.logs.bars import last_state
from taco_launch.agent.store.folders import JobFolder
from taco_launch.model.stalls import RankLook, look_every
from taco_launch.protocol.guard_messages import StallReport

# Threads that look after others (NCCL's watchdog asks ten times a second) use less.
_SHARE = 0.01
_LEAST_TICKS = 1
# When looks are further apart than planned it was us who were away (a suspended machine): that time says nothing.
_LONGEST_LOOKS = 2.0
_LAST_LINE_BYTES, _LAST_LINE_CHARACTERS = 1 << 12, 200

Key = Tuple[int, int]  # pid, start


class CpuTime(NamedTuple):
    """The CPU time of a process, in clock ticks: its own, and that of its children that have ended."""

    own: int
    children: int


class ProcessTree(NamedTuple):
    """The processes of one rank, each with its CPU time."""

    members: Dict[Key, CpuTime]

    @property
    def ticks(self) -> int:
        """All the CPU time that the processes of the rank have ever used."""
        return sum(used.own + used.children for used in self.members.values())


class StallMonitor:
    """How long the ranks of this host have been doing nothing."""

    def __init__(self) -> None:
        """Know no rank yet."""
        self._folder: Optional[JobFolder] = None
        self._after = self._every = 0.0
        self._roots: Dict[int, Key] = {}
        self._sizes: Dict[int, int] = {}
        self._quiet: Dict[int, float] = {}  # for how long each has written nothing
        self._trees: Optional[Dict[int, ProcessTree]] = None  # nothing to compare with
        self._silent = 0.0
        self._looked: Optional[float] = None
        self._told = self._ever_told = False

    def begin(self, folder: JobFolder, after: float) -> None:
        """Look at the logs in the folder of an attempt; tell when nothing was done for `after` seconds."""
        self._folder, self._after, self._every = folder, after, look_every(after)

    def add(self, rank: int, roots: Sequence[Sequence[int]]) -> None:
        """Look at a rank; the first of its `roots` is the (pid, start) of its wrapper."""
        for pid, start in roots[:1]:
            self._roots[rank] = (pid, start)
        self._silent = 0.0

    def repeat_report(self) -> None:
        """Report again at the next check: the last report may be lost."""
        self._told = self._ever_told

    def check(self, now: float, running: Collection[int], tell: Callable[[StallReport], None]) -> None:
        """Report, if a check is due at this monotonic time, that no rank works, or that they work again.

        `running` are the ranks that have not ended.
        """
        if self._folder is None or (self._looked is None and not self._roots):
            return
        if self._looked is not None and now < self._looked + self._every:
            return
        span = 0.0 if self._looked is None else min(now - self._looked, _LONGEST_LOOKS * self._every)
        self._looked = now
        live = {rank: root for rank, root in self._roots.items() if rank in running}
        ended = live.keys() != self._roots.keys()
        self._roots = live
        if self._wrote(span) or ended or self._worked(span):
            self._silent = 0.0
        else:
            self._silent += span
        if self._silent < self._after:
            told, self._told = self._told, False
            if told:
                tell(StallReport(silent=0.0, ranks=()))
            return
        self._told = self._ever_told = True
        tell(StallReport(silent=self._silent, ranks=self._seen()))

    def _wrote(self, span: float) -> bool:
        """Return whether any rank has written since the last look, or is new."""
        assert self._folder is not None
        wrote = False
        for rank in self._roots:
            size = segments.size(self._folder.rank(rank))
            if self._sizes.get(rank) == size:
                self._quiet[rank] += span
            else:
                self._sizes[rank], self._quiet[rank], wrote = size, 0.0, True
        return wrote

    def _worked(self, span: float) -> bool:
        """Return whether the processes of any rank have used CPU time since the last look, or are others now."""
        before = self._trees
        most = max(_LEAST_TICKS, _SHARE * span * os.sysconf("SC_CLK_TCK"))
        # What is known is looked at first: that is cheap, and for ranks that work it is enough.
        if before is not None:
            known = {rank: ProcessTree(_alive(tree.members)) for rank, tree in before.items()}
            if any(_differs(before[rank], known[rank], most) for rank in before):
                self._trees = known
                return True
        self._trees = trees(self._roots)
        return before is None or any(_differs(before.get(rank), tree, most) for rank, tree in self._trees.items())

    def _seen(self) -> List[RankLook]:
        assert self._folder is not None
        assert self._trees is not None
        found = []
        for rank in sorted(self._roots):
            members = {key: used for key, used in self._trees[rank].members.items() if key != self._roots[rank]}
            last = _last_line(segments.last_words(self._folder.rank(rank), _LAST_LINE_BYTES))
            quiet = self._quiet[rank]
            seen = [(key, now.state) for key in members for now in [processes.identify(key[0])] if now is not None]
            if not seen:
                found.append(RankLook(rank, silent=quiet, last_line=last))
                continue
            # The others may wait for one that is stopped; of what merely waits, that which did the work tells most.
            (pid, _start), letter = max(
                seen, key=lambda one: (one[1] in "TtD", one[1] != "Z", members[one[0]].own, one[0][1], one[0][0])
            )
            found.append(RankLook(rank, pid, _word(pid, "comm"), letter, where(pid), quiet, last))
        return found


def trees(roots: Dict[int, Key]) -> Dict[int, ProcessTree]:
    """Find the processes of each rank, its wrapper among them, whose orphans all come to that."""
    children: Dict[int, List[int]] = {}
    for entry in filter(None, map(processes.identify, _pids())):
        children.setdefault(entry.parent, []).append(entry.pid)
    found = {}
    for rank, (root, _start) in roots.items():
        inside: Set[int] = set()
        more = [root]
        while more:
            pid = more.pop()
            if pid not in inside:
                inside.add(pid)
                more += children.get(pid, [])
        members = {key: used for pid in inside for key, used in _read(pid).items()}
        found[rank] = ProcessTree(members if roots[rank] in members else {})
    return found


def where(pid: int) -> str:
    """Return what a process waits for in the kernel: a function's name, or the number of a system call; "" if not known."""
    function = _word(pid, "wchan")
    if function not in ("", "0"):
        return f"in {function}"
    number = _word(pid, "syscall").partition(" ")[0]
    return f"in system call {number}" if number.isdecimal() else ""


def _differs(before: Optional[ProcessTree], now: ProcessTree, most: float) -> bool:
    same: FrozenSet[Key] = frozenset(now.members)
    return before is None or same != frozenset(before.members) or now.ticks - before.ticks > most


def _alive(members: Dict[Key, CpuTime]) -> Dict[Key, CpuTime]:
    now: Dict[Key, CpuTime] = {}
    for pid, _start in members:
        now.update(_read(pid))
    return {key: used for key, used in now.items() if key in members}


def _read(pid: int) -> Dict[Key, CpuTime]:
    """Read the CPU time of a process (fields 14 to 17 of /proc/PID/stat, proc(5)); nothing where it is gone."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            text = file.read()
    except OSError:
        return {}
    fields = text[text.rindex(b")") + 2 :].split()
    own, ended = int(fields[11]) + int(fields[12]), int(fields[13]) + int(fields[14])
    return {(pid, int(fields[19])): CpuTime(own, ended)}


def _pids() -> Sequence[int]:
    return [int(name) for name in os.listdir("/proc") if name.isdigit()]


def _word(pid: int, name: str) -> str:
    try:
        with open(f"/proc/{pid}/{name}", encoding="utf-8", errors="replace") as file:
            return file.read().strip()
    except OSError:  # gone, or not for our eyes
        return ""


def _last_line(text: str) -> str:
    return last_state(text.rstrip().rpartition("\n")[2]).strip()[:_LAST_LINE_CHARACTERS]
