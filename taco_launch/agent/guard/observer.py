"""Watches whether the ranks of this host make progress, by their logs and, while nothing is written, by their processes.

What reads processes and stacks is loaded some seconds after a job has started, not while it does.
"""

from typing import TYPE_CHECKING, Callable, Collection, Dict, Optional, Sequence

from taco_launch.agent.logs import segments
from taco_launch.agent.logs.bars import last_state
from taco_launch.agent.store.folders import JobFolder
from taco_launch.core.model.stalls import RankLook, look_every
from taco_launch.core.protocol.message import Message
from taco_launch.core.protocol.stall_messages import SeenRanks, StallReport

if TYPE_CHECKING:
    from taco_launch.agent.counters.process_trees import Key
    from taco_launch.agent.guard.quiet_ranks import QuietRanks

# When looks are further apart than planned it was us who were away (a suspended machine): that time tells nothing.
_LONGEST_LOOKS = 2.0
# Of ranks that write, processes are looked at once in so many looks: only for what they usually exchange.
_SPARED_LOOKS = 6
_LAST_LINE_BYTES, _LAST_LINE_CHARACTERS = 1 << 12, 200
# What a program writes while it hangs is less between two looks.
_MOST_OF_STALLS = 1 << 16


class ProgressWatcher:
    """Watches the ranks of this host: for how long they have made no progress, and what they do."""

    def __init__(self, job: JobFolder) -> None:
        """Know no rank yet."""
        self._job = job
        self._folder: Optional[JobFolder] = None
        self._after = self._every = 0.0
        self._roots: Dict[int, Key] = {}
        self._ranks: Optional[QuietRanks] = None
        self._sizes: Dict[int, int] = {}
        self._output: Dict[int, int] = {}
        self._wrote: Dict[int, float] = {}
        self._now = 0.0  # the time that we were there
        self._looked: Optional[float] = None
        self._spared = 0
        self._told = self._ever_told = self._asked = False

    def begin(self, folder: JobFolder, after: float) -> None:
        """Look at the logs in the folder of an attempt; tell when no progress was made for `after` seconds."""
        self._folder, self._after, self._every = folder, after, look_every(after)

    def add(self, rank: int, roots: Sequence[Sequence[int]]) -> None:
        """Look at a rank; the first of its `roots` is the (pid, start) of its wrapper."""
        for pid, start in roots[:1]:
            self._roots[rank] = (pid, start)

    def close(self) -> None:
        """End a reading of stacks."""
        if self._ranks is not None:
            self._ranks.close()

    def repeat_report(self) -> None:
        """Report again at the next check: the last report may be lost."""
        self._told = self._ever_told

    def running(self, running: Collection[int]) -> "Dict[int, Key]":
        """Return the wrappers of the ranks that have not ended."""
        return {rank: root for rank, root in self._roots.items() if rank in running}

    def read(self) -> None:
        """Read the stacks now, and tell what each rank does."""
        self._asked = True
        self._quiet_ranks().start_reading()

    def check(self, now: float, running: Collection[int], tell: Callable[[Message], None]) -> None:
        """Report, if a check is due at this monotonic time, that no rank makes progress, or that they do again.

        `running` are the ranks that have not ended.
        """
        if self._folder is None or (self._looked is None and not self._roots):
            return
        if self._ranks is not None and self._reads(self._ranks, tell):
            return  # a process that is traced is in a state of its own
        if self._looked is not None and now < self._looked + self._every:
            return
        span = 0.0 if self._looked is None else min(now - self._looked, _LONGEST_LOOKS * self._every)
        self._looked = now
        self._now += span
        self._roots = {rank: root for rank, root in self._roots.items() if rank in running}
        silent = self._silent()
        if silent < self._after or not self._quiet_ranks().is_known:
            told, self._told = self._told, False
            if told:
                tell(StallReport(silent=0.0, ranks=()))
            return
        self._told = self._ever_told = True
        ranks = self._quiet_ranks()
        tell(StallReport(silent=silent, ranks=[ranks.standing(self._seen(rank)) for rank in sorted(self._roots)]))

    def _silent(self) -> float:
        """Look at the ranks; return for how many seconds none has made progress."""
        wrote = [rank for rank in self._roots if self._has_written(rank)]
        self._spared = self._spared + 1 if wrote and self._spared < _SPARED_LOOKS else 0
        if self._spared and (self._ranks is None or not self._ranks.silent):
            return 0.0
        return self._quiet_ranks().look(self._now, self._roots, self._output)

    def _reads(self, ranks: "QuietRanks", tell: Callable[[Message], None]) -> bool:
        """Take stacks that were read; return whether they are being read."""
        found = ranks.take_stacks()
        if found is not None and self._asked:
            self._asked = False
            tell(SeenRanks(ranks=[ranks.with_stack(self._seen(rank), told) for rank, told in sorted(found.items())]))
        return ranks.reads

    def _quiet_ranks(self) -> "QuietRanks":
        if self._ranks is None:
            from taco_launch.agent.guard.quiet_ranks import QuietRanks  # noqa: PLC0415 - see above

            self._ranks = QuietRanks(self._job, self._after)
        return self._ranks

    def _has_written(self, rank: int) -> bool:
        """Return whether a rank has written since the last look; what only tells that it hangs is no output."""
        assert self._folder is not None
        stem = self._folder.rank(rank)
        size, before = segments.size(stem), self._sizes.get(rank)
        self._sizes[rank] = size
        if before == size:
            return False
        if before is not None and size - before < _MOST_OF_STALLS:
            from taco_launch.core.stalls.judge import is_stall  # noqa: PLC0415 - see above

            lines = segments.last_words(stem, size - before).splitlines()
            if all(is_stall(line) for line in lines if line.strip()):
                return False
        self._output[rank], self._wrote[rank] = size, self._now
        return True

    def _seen(self, rank: int) -> RankLook:
        assert self._folder is not None
        last = _last_line(segments.last_words(self._folder.rank(rank), _LAST_LINE_BYTES))
        return self._quiet_ranks().seen(rank, self._now - self._wrote.get(rank, 0.0), last)


def _last_line(text: str) -> str:
    return last_state(text.rstrip().rpartition("\n")[2]).strip()[:_LAST_LINE_CHARACTERS]
