"""Split the time since a job's submission into training, waiting, restarts and hangs; pure."""

from typing import Dict, List, Sequence, Tuple

from taco_launch.core.lifecycle import state
from taco_launch.core.model.jobs import Event, JobRecord, JobState

TRAINED, HUNG = "trained", "hung"
# The word for each state, in the order of the output.
_WORDS = {
    JobState.QUEUED: "queued",
    JobState.STARTING: "starting",
    JobState.RESTARTING: "before a restart",
    JobState.SUSPENDED: "suspended",
    JobState.RUNNING: TRAINED,
    JobState.STOPPING: "ending",
}


def time_spent(record: JobRecord, events: Sequence[Event], now: float) -> Dict[str, float]:
    """Return the seconds that a job has trained since its submission, queued, and so on, each by its word.

    The time in which its ranks hung (as `events` tell) is not training.
    """
    spent = dict.fromkeys((TRAINED, *_WORDS.values(), HUNG), 0.0)
    hangs = _hangs(events, now)
    changes = record.transitions
    ends = [change.time for change in changes[1:]] + [now if record.ended is None else record.ended]
    for change, end in zip(changes, ends):
        word = _WORDS.get(change.state)
        if word is None:
            continue
        hung = 0.0
        if word == TRAINED:
            hung = sum(max(0.0, min(end, until) - max(change.time, since)) for since, until in hangs)
        spent[word] += end - change.time - hung
        spent[HUNG] += hung
    return spent


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
