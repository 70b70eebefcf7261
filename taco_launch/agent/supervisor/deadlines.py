"""Ends a job that runs, by its policy: because its time is over, or because it hangs and no rank on any host makes progress.

Before it is ended its ranks may be told to save their state (--signal).
"""

import signal
import time
from dataclasses import replace
from typing import Callable, Dict, List, NamedTuple, Optional, Sequence

from taco_launch.agent.gang.guard_pool import GuardPool
from taco_launch.agent.store import records
from taco_launch.agent.store.folders import JobFolder
from taco_launch.agent.supervisor.ranks import Ranks
from taco_launch.core.errors import JobEnd
from taco_launch.core.lifecycle import state
from taco_launch.core.model.codec import to_json
from taco_launch.core.model.jobs import JobState, Policy
from taco_launch.core.model.stalls import LOOK_SECONDS, RankLook, shown_time, stall_report_delay, telling
from taco_launch.core.protocol.message import Message
from taco_launch.core.protocol.rank_messages import Signalled, SignalRanks
from taco_launch.core.protocol.stall_messages import ReadStacks, SeenRanks, StallReport

# How often the output is read for a loss that is not a number.
_LOSS_SECONDS = 20.0
# So long a launcher may take to end when all ranks have, as mpirun ends its daemons on other hosts.
LINGER_SECONDS = 10.0
# Ranks of a job end together, except for what a few of them still write. After so many seconds an event says that others continue.
_MOST_RECORDED = 1024
_SOME_ENDED_SECONDS, _MOST_NAMED = 5.0, 8
# A job that has not started after so many seconds says what it waits for.
_SLOW_START_SECONDS = 60.0

# What a guard said that has not been heard since may be true no more.
_FRESH_SECONDS = 3 * LOOK_SECONDS
# Ranks that have not told by then whether they have caught the signal are told of with the others.
_ANSWER_SECONDS = 5.0
# How long a job that has reached its timeout continues until its stacks are read.
_STACKS_SECONDS = 5.0


class _Word(NamedTuple):
    """The last report of a guard: for how long its ranks have made no progress, what they do, and when it arrived."""

    silent: float
    ranks: List[RankLook]
    heard: float


class SlowStart:
    """Report what a job waits for if its start takes long, as its reason."""

    def __init__(self, events: records.Events) -> None:
        """Count from now on."""
        self._events = events
        self._due: Optional[float] = time.monotonic() + _SLOW_START_SECONDS

    def step(self, missing: Callable[[], str]) -> None:
        """Tell what is missing, once, where that is due; "" where nothing is."""
        if self._due is not None and time.monotonic() > self._due:
            self._due = None
            if words := missing():
                self._events.add(state.SLOW_START, f"waiting for {words}, {_SLOW_START_SECONDS:g} s after its start")


class SomeEnded:
    """Tells which ranks have ended well, where others continue: they may wait for them."""

    def __init__(self, ranks: Ranks, events: records.Events) -> None:
        """Know of none yet."""
        self._ranks, self._events = ranks, events
        self._count, self._due, self._wait = 0, 0.0, _SOME_ENDED_SECONDS

    def step(self, now: float) -> None:
        """Record it at this monotonic time, some seconds after the last rank that ended; more and more seldom."""
        ended = self._ranks.ended
        if len(ended) == self._count or self._ranks.all_ended or any(ended.values()):
            return
        self._due = self._due or now + self._wait
        if now < self._due:
            return
        self._count, self._due, self._wait = len(ended), 0.0, 2 * self._wait
        ranks = sorted(ended)
        names = ", ".join(map(str, ranks[:_MOST_NAMED])) + (" ..." if ranks[_MOST_NAMED:] else "")
        have = f"rank {names} has" if len(ranks) == 1 else f"{len(ranks)} ranks ({names}) have"
        words = f"{have} ended with code 0; {self._ranks.np - len(ranks)} of {self._ranks.np} ranks continue"
        self._events.add(state.SOME_ENDED, words, ranks=ranks[:_MOST_RECORDED])


class Limits:
    """The limits of an attempt, and what its guards say of ranks that make no progress."""

    def __init__(
        self, policy: Policy, ranks: Ranks, events: records.Events, order: Callable[[Message], object]
    ) -> None:
        """Know of no hang yet; `order` sends all guards an order."""
        self._timeout, self._limit, self._silence = policy.timeout, policy.stall_timeout, policy.silence_timeout
        self.stall_after = stall_report_delay(self._limit)
        self._ranks, self._events = ranks, events
        self._words: Dict[str, _Word] = {}
        self._order = order
        self._seen: Dict[str, List[RankLook]] = {}
        self._asked: Optional[float] = None
        self._told: Optional[float] = None
        self.hung = False  # and that ends the job

    def note(self, host: str, message: Message) -> None:
        """Take what a guard says, if it is about this."""
        if isinstance(message, StallReport):
            looks = self._own(host, message.ranks)
            self._words[host] = _Word(message.silent, looks, time.monotonic())
        elif isinstance(message, SeenRanks):
            self._seen[host] = self._own(host, message.ranks)

    def _own(self, host: str, told: Sequence[RankLook]) -> List[RankLook]:
        """Return what a host tells of its own ranks, once for each: what it says of others' is not believed."""
        looks = {look.rank: look for look in told if self._ranks.started.get(look.rank) == host}
        return [replace(look, host=host) for look in looks.values()]

    def exceeded(self, seconds: float) -> str:
        """Return why the job has to end after `seconds`, "" where it continues; record when it starts to hang and when it stops."""
        if self._timeout is not None and seconds > self._timeout:
            return self._timed_out(f"reached its --timeout of {self._timeout:g} s")
        if self._silence is not None and self._quiet_for(seconds) > self._silence:
            why = f"reached its --silence-timeout: no rank has printed anything for {self._silence:g} s"
            told = self._timed_out(why)
            self.hung = bool(told)
            return told
        if self._asked is not None:  # a rank printed something while the guards read the stacks
            self._asked, self._seen = None, {}
        if not self._words or len(self._ranks.started) < self._ranks.np or self._ranks.all_ended:
            return ""
        words = [self._words.get(host) for host in set(self._ranks.started.values())]
        if self._told is not None and any(word is not None and not word.silent for word in words):
            self._events.add(state.STIRRED, "it makes progress again")
            self._told = None
        fresh = time.monotonic() - _FRESH_SECONDS
        known = [word for word in words if word is not None and word.silent and word.heard >= fresh]
        if len(known) < len(words):
            return ""
        from taco_launch.core.stalls.judge import judge  # noqa: PLC0415 - few jobs get here

        silent = min(word.silent for word in known)
        looks = [look for word in known for look in word.ranks if look.rank not in self._ranks.ended]
        if len(looks) < len(self._ranks.started) - len(self._ranks.ended):
            return ""  # of a rank that was not seen it is not known whether it works
        # A reason stays while time goes on: it says since when.
        since = time.time() - silent if self._told is None else self._told
        verdict = judge(looks, tuple(sorted(self._ranks.ended)), f"since {shown_time(since)}")
        if not verdict.is_hung:
            return ""
        if self._told is None:
            self._told = since
            found = to_json(telling(looks))
            self._events.add(state.STALLED, f"it hangs: {verdict.why}", since=self._told, ranks=found)
        if self._limit is None or silent < self._limit:
            return ""
        self.hung = True
        return f"stalled for --stall-timeout ({self._limit:g} s): {verdict.why}"

    def _quiet_for(self, seconds: float) -> float:
        """Return for how long the ranks have printed nothing, 0 before all have started; the attempt is `seconds` old."""
        if len(self._ranks.started) < self._ranks.np or self._ranks.all_ended:
            return 0.0
        return min(seconds, time.monotonic() - self._ranks.last_output)

    def _timed_out(self, why: str) -> str:
        """Return why the job ends and what its ranks did, once that is known: the guards read it first, "" until then."""
        hosts = {host for rank, host in self._ranks.started.items() if rank not in self._ranks.ended}
        if self._asked is None:
            self._asked = time.monotonic()
            self._order(ReadStacks())
        if not hosts <= self._seen.keys() and time.monotonic() < self._asked + _STACKS_SECONDS:
            return ""
        looks = [look for seen in self._seen.values() for look in seen]
        if self._told is None and looks:
            found = to_json(telling(looks))
            self._events.add(
                state.SEEN, "the stacks of its ranks were read", since=time.time(), ranks=found, hung=False
            )
        from taco_launch.core.stalls import groups  # noqa: PLC0415 - see above

        told = groups.sentence(groups.groups([look for look in looks if look.does]))
        return f"{why}: {told}" if told else why


class Divergence:
    """Watches the loss of a job that fails where that is not a number (--fail-on nan)."""

    def __init__(self, folder: JobFolder, policy: Policy) -> None:
        """Look at nothing yet."""
        self._folder, self._policy = folder, policy
        self._look_at = time.monotonic() + _LOSS_SECONDS

    def step(self) -> Optional[state.JobOutcome]:
        """Return how the job ends if its loss is not a number, looking now and then; None where it goes on."""
        if not self._policy.fail_on or time.monotonic() < self._look_at:
            return None
        self._look_at = time.monotonic() + _LOSS_SECONDS
        return diverged(self._folder, self._policy)


def diverged(folder: JobFolder, policy: Policy) -> Optional[state.JobOutcome]:
    """Return the end of a job that fails as the last losses of a rank are not numbers."""
    if not policy.fail_on:
        return None
    from taco_launch.agent.logs import output_end  # noqa: PLC0415 - few jobs ask for it

    progress = output_end.read(folder.merged, policy.progress, folder).progress
    ranks = output_end.ranks_without_a_number(folder.merged, folder)
    if not ranks and progress is not None and progress.diverged:
        ranks = [progress.rank]
    if not ranks:
        return None
    reason = f"the loss of rank {ranks[0]} is not a number (--fail-on nan)"
    return state.JobOutcome(JobState.FAILED, JobEnd.DIVERGED, reason)


class EarlySignal:
    """The signal of one attempt, which is sent once."""

    def __init__(self, policy: Policy, gang: GuardPool, ranks: Ranks, events: records.Events) -> None:
        """Send nothing yet."""
        self._what = policy.signal
        self._timeout = policy.timeout
        self._gang, self._ranks, self._events = gang, ranks, events
        self._sent_at: Optional[float] = None
        self._caught: Dict[int, int] = {}
        self._told = False
        # When TERM follows, where the ranks are to be ended; None otherwise.
        self.term_at: Optional[float] = None
        self.why = ""
        # What the end of a job is to say of it, whose ranks may have stopped early and exited with 0.
        self.remark = ""

    @property
    def is_sent(self) -> bool:
        """Whether it was sent: ranks that end are held back until all have, or TERM comes."""
        return self._sent_at is not None

    def before_end(self, why: str, grace: Optional[float]) -> bool:
        """Have the ranks saved before they are ended; return whether that has to wait, at most `grace` seconds."""
        if self._what is None or not self._ranks.started or self._ranks.all_ended:
            return False
        most = self._what.seconds if grace is None else min(grace, self._what.seconds)
        if self._sent_at is None and most > 0:
            self._send(f"{why}; sent {self._what.name} to its ranks; TERM follows after {most:g} s", stops=True)
        left = most if self._sent_at is None else self._sent_at + most - time.monotonic()
        self.term_at, self.why = time.monotonic() + left, why
        return left > 0

    def hurry(self, grace: Optional[float]) -> None:
        """Wait no longer than `grace` seconds from now on, where that is said."""
        if grace is not None and self.term_at is not None:
            self.term_at = min(self.term_at, time.monotonic() + grace)

    def step(self, seconds: float) -> None:
        """Send it before the deadline of a job that has run for `seconds`; tell which ranks have not caught it."""
        if self._what is None:
            return
        if self._sent_at is None:
            due = self._timeout is not None and seconds > self._timeout - self._what.seconds
            if due and len(self._ranks.started) == self._ranks.np:
                left = f"{max(0.0, (self._timeout or 0.0) - seconds):.0f} s before the end of its --timeout"
                self._send(f"sent {self._what.name} to its ranks, {left}")
                self.remark = f"its ranks got {self._what.name} {left}, so the job may have stopped early"
        elif not self._told:
            self._tell(self._what.name, self._sent_at)

    def note(self, message: Message) -> None:
        """Take what a rank's wrapper says, if it is about this."""
        if isinstance(message, Signalled):
            self._caught[message.rank] = message.caught

    def is_over(self, now: float) -> bool:
        """Return whether the ranks have been waited for: all have ended, or their time is over."""
        return self.term_at is not None and (now > self.term_at or all(map(self._has_ended, self._ranks.started)))

    def _has_ended(self, rank: int) -> bool:
        return rank in self._ranks.ended

    def _send(self, words: str, *, stops: bool = False) -> None:
        assert self._what is not None
        self._sent_at = time.monotonic()
        self._events.add(state.SIGNALLED, words, signal=self._what.name, stops=stops)
        self._gang.order(SignalRanks(number=int(getattr(signal, f"SIG{self._what.name}"))))

    def _tell(self, name: str, sent_at: float) -> None:
        running = [rank for rank in self._ranks.started if not self._has_ended(rank)]
        late = time.monotonic() - sent_at > _ANSWER_SECONDS
        if late or all(rank in self._caught for rank in running):
            self._told = True
            deaf = [rank for rank in sorted(self._ranks.started) if not self._caught.get(rank)]
            deaf = [rank for rank in deaf if rank in self._caught or rank in running]
            if deaf:
                shown = ", ".join(map(str, deaf[:8])) + (f" and {len(deaf) - 8} more" if deaf[8:] else "")
                whose = f"rank {shown} has" if len(deaf) == 1 else f"ranks {shown} have"
                words = f"{whose} no process that catches {name}"
                self._events.add(state.NOT_CAUGHT, words, ranks=deaf[:64])
                if len(deaf) == len(self._ranks.started):
                    self.remark = f"no rank has a process that catches {name}, so it was sent to none"
                else:
                    self.remark = "; ".join(filter(None, (self.remark, words)))
