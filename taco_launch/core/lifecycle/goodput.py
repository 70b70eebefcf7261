"""Split the time since a job's submission into training, start-up, waiting, restarts and hangs; pure."""

from typing import Dict, List, Optional, Sequence, Tuple

from taco_launch.core.lifecycle import state
from taco_launch.core.model.jobs import Event, JobRecord, JobState

# Steps are counted alone: what came before the first one, such as imports and a rendezvous, is no training.
TRAINED, BEFORE_STEPS, EARLIER, RAN, HUNG = "trained", "until the first step", "in earlier attempts", "ran", "hung"
# The word for each state, in the order of the output.
_WORDS = {
    JobState.QUEUED: "queued",
    JobState.STARTING: "starting",
    JobState.RESTARTING: "before a restart",
    JobState.SUSPENDED: "suspended",
    JobState.RUNNING: RAN,
    JobState.STOPPING: "ending",
}


def time_spent(
    record: JobRecord, events: Sequence[Event], now: float, first_step: Optional[float] = None
) -> Dict[str, float]:
    """Return the seconds that a job has trained since its submission, queued, and so on, each by its word.

    `first_step` is when the last attempt printed its first step, in seconds since the epoch. Without it the time
    of training is unknown: then the job ran. The time in which its ranks hung (as `events` tell) is neither.
    """
    spent = dict.fromkeys((TRAINED, BEFORE_STEPS, EARLIER, *_WORDS.values(), HUNG), 0.0)
    last = max((change.time for change in record.transitions if change.state is JobState.STARTING), default=0.0)
    hangs = _hangs(events, now)
    changes = record.transitions
    ends = [change.time for change in changes[1:]] + [now if record.ended is None else record.ended]
    for change, end in zip(changes, ends):
        word = _WORDS.get(change.state)
        if word is None:
            continue
        begin, hung = change.time, 0.0
        if word == RAN and first_step is not None:
            word = TRAINED if begin >= last else EARLIER
            if word == TRAINED:
                first = min(max(first_step, begin), end)
                spent[BEFORE_STEPS] += first - begin
                begin = first
        if word in (TRAINED, EARLIER, RAN):
            hung = sum(max(0.0, min(end, until) - max(begin, since)) for since, until in hangs)
        spent[word] += end - begin - hung
        spent[HUNG] += hung
    return spent


def trained_share(spent: Dict[str, float]) -> Optional[float]:
    """Return the share of a job's time in which it trained, given `time_spent`; None where no step was printed."""
    total = sum(spent.values())
    return spent[TRAINED] / total if spent[TRAINED] and total else None


def _hangs(events: Sequence[Event], now: float) -> List[Tuple[float, float]]:
    """Return from when to when ranks hung: until they went on, or the attempt was over."""
    found: List[Tuple[float, float]] = []
    since = None
    for event in events:
        if event.kind == state.STALLED:
            since = float(event.data.get("since", event.time)) if since is None else since
        elif since is not None and event.kind in (state.STIRRED, state.RESTARTING, state.SUSPENDED, state.ENDED):
            found.append((since, event.time))
            since = None
    return found if since is None else [*found, (since, now)]
