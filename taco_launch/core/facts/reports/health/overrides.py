"""Remember the faults in spite of which a person opened a host: the policy does not drain the host for the same ones again."""

import re
from typing import Optional, Sequence, Tuple

from taco_launch.core.facts.reports.health.verdict import FAULT, NOT_POSSIBLE, HealthVerdict, without_age
from taco_launch.core.model.slots import Override

# What changes in the words of a fault that stays the same, besides its age: sizes, rates, temperatures.
_AMOUNT = re.compile(r"[0-9.]+ (?:[KMGT]?i?B|[KMG]B/s|[KMG]bit/s|[KMG]b/s|C|%)")
_MOST_LETTERS = 400


def override_of(verdicts: Sequence[HealthVerdict], by: str, since: float) -> Optional[Override]:
    """Return the record of a host that `by` opens in spite of its faults, None where it has none."""
    names = dict.fromkeys(each.name for each in verdicts if each.level == FAULT)
    return Override(by, since, tuple((name, _same(name, verdicts)) for name in names)) if names else None


def remaining(override: Override, verdicts: Sequence[HealthVerdict]) -> Optional[Override]:
    """Return what still holds of an override, None for nothing: a check that is ok, or finds another fault, ends its part."""
    kept_open = tuple(each for each in override.faults if _holds(*each, verdicts))
    return Override(override.by, override.since, kept_open) if kept_open else None


def without_overridden(override: Optional[Override], verdicts: Sequence[HealthVerdict]) -> Tuple[HealthVerdict, ...]:
    """Return verdicts without the faults that are overridden."""
    same = {} if override is None else dict(override.faults)
    return tuple(each for each in verdicts if each.level != FAULT or same.get(each.name) != _same(each.name, verdicts))


def _holds(name: str, words: str, verdicts: Sequence[HealthVerdict]) -> bool:
    levels = {each.level for each in verdicts if each.name == name}
    if FAULT in levels:
        return _same(name, verdicts) == words
    return not levels or NOT_POSSIBLE in levels  # it may still be there


def _same(name: str, verdicts: Sequence[HealthVerdict]) -> str:
    """Return the words of a check's faults as they are each time that it finds the same ones."""
    texts = sorted(each.text for each in verdicts if each.name == name and each.level == FAULT)
    return _AMOUNT.sub("N", without_age("; ".join(texts)))[:_MOST_LETTERS]
