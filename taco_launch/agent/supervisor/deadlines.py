"""What ends a job that runs, by its policy: its time is over, or it hangs, the ranks of all hosts doing nothing at once."""

import time
from dataclasses import replace
from typing import Dict, List, NamedTuple, Optional

from taco_launch import state
from taco_launch.agent.store import records
from taco_launch.agent.supervisor.ranks import Ranks
from taco_launch.model.codec import to_json
from taco_launch.model.jobs import Policy
from taco_launch.model.stalls import LOOK_SECONDS, RankLook, reason, stall_report_delay, telling
from taco_launch.protocol.guard_messages import StallReport
from taco_launch.protocol.message import Message

# What a guard said that has not been heard since may be true no more.
_FRESH_SECONDS = 3 * LOOK_SECONDS


class _Word(NamedTuple):
    """What a guard said last: how long its ranks do nothing, what they were seen doing, and when it was heard."""

    silent: float
    ranks: List[RankLook]
    heard: float


class Limits:
    """The limits of an attempt, and what its guards say of ranks that do nothing."""

    def __init__(self, policy: Policy, ranks: Ranks, events: records.Events) -> None:
        """Know of no hang yet."""
        self._timeout, self._limit = policy.timeout, policy.stall_timeout
        self.stall_after = stall_report_delay(self._limit)
        self._ranks, self._events = ranks, events
        self._words: Dict[str, _Word] = {}
        self._told: Optional[float] = None
        self.hung = False  # and that ends the job

    def note(self, host: str, message: Message) -> None:
        """Take what a guard says, if it is about this."""
        if isinstance(message, StallReport):
            looks = [replace(look, host=host) for look in message.ranks]
            self._words[host] = _Word(message.silent, looks, time.monotonic())

    def exceeded(self, seconds: float) -> str:
        """Return why the job has to end after `seconds`, "" where it continues; record when it starts to hang and when it stops."""
        if self._timeout is not None and seconds > self._timeout:
            return f"ran longer than the {self._timeout:g} s that it was given"
        if not self._words or len(self._ranks.started) < self._ranks.np or self._ranks.all_ended:
            return ""
        words = [self._words.get(host) for host in set(self._ranks.started.values())]
        if self._told is not None and any(word is not None and not word.silent for word in words):
            self._events.add(state.STIRRED, "there is output or CPU use again")
            self._told = None
        since = time.monotonic() - _FRESH_SECONDS
        known = [word for word in words if word is not None and word.silent and word.heard >= since]
        if len(known) < len(words):
            return ""
        silent = min(word.silent for word in known)
        looks = [look for word in known for look in word.ranks]
        found = telling(looks)
        if self._told is None:
            self._told = time.time() - silent
            words_of = f"it hangs: {reason(silent, len(looks), found)}"
            self._events.add(state.STALLED, words_of, since=self._told, ranks=to_json(found))
        if self._limit is None or silent < self._limit:
            return ""
        self.hung = True
        return f"hung for the {self._limit:g} s that it was given: {reason(silent, len(looks), found)}"
