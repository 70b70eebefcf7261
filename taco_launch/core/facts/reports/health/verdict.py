"""Says what a verdict is: a level, what was found, whose rule it is, and what to do."""

import re
from dataclasses import replace
from typing import Dict, Iterable, Iterator, List, Sequence, Tuple

from taco_launch.core.command import as_typed
from taco_launch.core.frozen import dataclass
from taco_launch.core.model.host.fact_value import Absent, Found, Unknown, was_requested

OK, WARNING, FAULT, NOT_POSSIBLE = "ok", "warning", "fault", "not possible"
# Worst first.
LEVELS = (FAULT, WARNING, NOT_POSSIBLE, OK)
_AGE = re.compile(r" [0-9.]+ (?:d|h|min|s) ago")


@dataclass(frozen=True)
class HealthVerdict:
    """One judgement: `level` is one of LEVELS, `text` what was found, `source` whose rule it is.

    `hint` says what to do; empty where nothing is to be done.
    """

    name: str
    level: str
    text: str
    source: str
    hint: str = ""


def with_typed_hints(verdicts: Iterable[HealthVerdict], typed: str) -> Tuple[HealthVerdict, ...]:
    """Return verdicts in whose hints taco-launch is called as it is `typed`, with the inventory."""
    return tuple(replace(each, hint=as_typed(each.hint, typed)) for each in verdicts)


def without_age(text: str) -> str:
    """Return the text of a verdict as it can be kept: how long ago something was is right only at the time of the check."""
    return _AGE.sub("", text)


# Each different verdict, with the hosts that it is of.
Judged = Tuple[Tuple[HealthVerdict, Tuple[str, ...]], ...]


def folded(values: Iterable[Tuple[str, Iterable[HealthVerdict]]]) -> Judged:
    """Return each different verdict once with the hosts that it is of: faults first, then in the order given."""
    hosts_of: Dict[HealthVerdict, List[str]] = {}
    for host, verdicts in values:
        for verdict in verdicts:
            hosts_of.setdefault(verdict, []).append(host)
    ranked = sorted(hosts_of.items(), key=lambda entry: LEVELS.index(entry[0].level))
    return tuple((verdict, tuple(names)) for verdict, names in ranked)


def plain(name: str, values: Sequence[Found[object]], text: str, source: str) -> Iterator[HealthVerdict]:
    """Yield `ok`, or why it is not known; nothing if it was not requested or no device has it."""
    unknown = [each for each in values if isinstance(each, Unknown) and was_requested(each)]
    if unknown:
        yield HealthVerdict(name, NOT_POSSIBLE, unknown[0].reason, source)
    elif any(not isinstance(each, (Unknown, Absent)) for each in values):
        yield HealthVerdict(name, OK, text, source)


def which(indices: Sequence[int], noun: str = "GPU") -> str:
    """Return `GPU 3`, or `GPUs 0-2, 5`."""
    runs: List[List[int]] = []
    for index in sorted(indices):
        if runs and index == runs[-1][1] + 1:
            runs[-1][1] = index
        else:
            runs.append([index, index])
    text = ", ".join(str(first) if first == last else f"{first}-{last}" for first, last in runs)
    return f"{noun}{'s' if len(indices) > 1 else ''} {text}"
