"""A user's pattern for progress: a regular expression whose named groups are the values of a line."""

import re
from typing import Any, Dict, List, Optional

from taco_launch.core.progress.reading import UNIT, TrainingProgress

GROUPS = ("step", "total", "epoch", "loss", "rate")
MOST_PATTERN, MOST_LINE = 300, 512
_MOST_REPEATS = 12
_UNIT = re.compile(rf"\s?{UNIT}")
_NUMBER = re.compile(r"[+-]?\d{1,15}(?:\.\d{0,15})?(?:[eE][+-]?\d{1,3})?|nan|inf", re.IGNORECASE)
# sre_parse, which 3.11 moved; it reads a pattern as `re` does.
_PARSER: Any = getattr(re, "_parser", None) or re.sre_parse  # type: ignore[attr-defined]
_REPEATS = ("MAX_REPEAT", "MIN_REPEAT", "POSSESSIVE_REPEAT")
_FLAT = ("LITERAL", "NOT_LITERAL", "ANY", "IN", "AT", "CATEGORY")


class PatternError(ValueError):
    """A pattern cannot be used; the text says why, and what to write instead."""


def compiled(text: str) -> "re.Pattern[str]":
    """Return a pattern ready for use.

    Raises:
        PatternError: it is too long, no regular expression, names no value, or could take years on some line.
    """
    if len(text) > MOST_PATTERN:
        raise PatternError(f"longer than {MOST_PATTERN} characters")
    try:
        tree, found = _PARSER.parse(text), re.compile(text)
    except (re.error, RecursionError, OverflowError) as error:
        raise PatternError(f"not a valid regular expression: {error}") from None
    foreign = sorted(set(found.groupindex) - set(GROUPS))
    if foreign:
        raise PatternError(f"the group name {foreign[0]!r} is unknown: use {', '.join(GROUPS)}")
    if not set(found.groupindex) & {"step", "epoch", "loss", "rate"}:
        raise PatternError(r"no group is named step, epoch, loss or rate: write, for example, (?P<step>\d+)")
    if _count_repeats(tree) > _MOST_REPEATS:
        raise PatternError(f"the pattern has more than {_MOST_REPEATS} repetitions (*, +, ?, {{n}})")
    _check(tree, within=False)
    return found


def read(pattern: "re.Pattern[str]", line: str) -> Optional[TrainingProgress]:
    """Return what a line says; None where it does not match, is too long, or a group holds no number."""
    if len(line) > MOST_LINE:
        return None
    match = pattern.search(line)
    if match is None:
        return None
    values: Dict[str, Optional[float]] = {}
    for name in pattern.groupindex:
        text = match[name]
        if text is not None and not _NUMBER.fullmatch(text.replace(",", "")):
            return None
        values[name] = None if text is None else float(text.replace(",", ""))
    return TrainingProgress(
        "--progress",
        "",
        values.get("step"),
        values.get("total"),
        values.get("epoch"),
        values.get("loss"),
        values.get("rate"),
        _unit(line, match) if values.get("rate") is not None else "",
    )


def _unit(line: str, match: "re.Match[str]") -> str:
    """Return the unit that a line has behind the rate."""
    found = _UNIT.match(line, match.end("rate"))
    return found[1] if found else "per second"


def _check(tree: Any, within: bool) -> None:
    """Refuse what can be matched in many ways: a repeat or a choice in a repeat, and what looks back or around.

    Raises:
        PatternError: the pattern contains one of these.
    """
    for operation, argument in tree:
        name = str(operation)
        if name in _REPEATS:
            least, most, body = argument
            is_optional = (int(least), int(most)) == (0, 1)
            if within:
                raise PatternError("nested repeats, such as (a+)+, can take years: repeat single characters only")
            _check(body, within=not is_optional)
        elif name in ("SUBPATTERN", "ATOMIC_GROUP"):
            _check(argument[-1] if name == "SUBPATTERN" else argument, within)
        elif name == "BRANCH":
            if within:
                raise PatternError("a choice inside a repeat, such as (a|b)+, can take years: write [ab]+")
            for each in argument[1]:
                _check(each, within)
        elif name not in _FLAT:
            raise PatternError(f"{name.lower()} is not allowed: back references and look-around are not supported")


def _count_repeats(tree: Any) -> int:
    count = 0
    left: List[Any] = [tree]
    while left:
        for operation, argument in left.pop():
            name = str(operation)
            if name in _REPEATS:
                count += 1
                left.append(argument[2])
            elif name == "SUBPATTERN":
                left.append(argument[-1])
            elif name == "ATOMIC_GROUP":
                left.append(argument)
            elif name == "BRANCH":
                left.extend(argument[1])
    return count
