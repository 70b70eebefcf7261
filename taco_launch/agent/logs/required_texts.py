"""Texts of which a line must contain one to match a regular expression: lines without them need no search.

Python reads the pattern itself (`re`'s own parser). Only what is certain counts: a pattern that ignores case has no such texts.
"""

import re
from typing import Any, FrozenSet, List, Sequence, Tuple

try:
    from re import _constants as constants  # type: ignore[attr-defined]
    from re import _parser as parser  # type: ignore[attr-defined]
except ImportError:  # before Python 3.11
    import sre_constants as constants
    import sre_parse as parser

# A shorter text is in too many lines.
_LEAST = 3
# A line contains one text of each of these.
_Required = List[FrozenSet[bytes]]


def required_texts(pattern: str) -> Tuple[FrozenSet[bytes], ...]:
    """Return sets of texts: each line that matches `pattern` contains at least one text of each set; () where none are known."""
    parsed = parser.parse(pattern)
    return () if parsed.state.flags & re.IGNORECASE else tuple(_of_sequence(parsed))


def _of_sequence(items: Sequence[Tuple[Any, Any]]) -> _Required:
    """Return what a sequence of parts requires, all of which match one behind the other."""
    found: _Required = []
    run = ""
    for kind, value in (*items, (None, None)):
        if kind is constants.LITERAL and value not in (10, 13, 0xFFFD) and not 0xD800 <= value < 0xE000:
            run += chr(value)
            continue
        found += [frozenset((run.encode(),))] if len(run) >= _LEAST else []
        run = ""
        found += _of_part(kind, value)
    return found


def _of_part(kind: Any, value: Any) -> _Required:
    if kind is constants.SUBPATTERN:
        _group, added, _removed, inner = value
        return [] if added & re.IGNORECASE else _of_sequence(inner)
    if kind is constants.BRANCH:
        of_each = [_of_sequence(each) for each in value[1]]
        return [frozenset(text for sets in of_each for text in sets[0])] if all(of_each) else []
    if kind in (constants.MAX_REPEAT, constants.MIN_REPEAT) and value[0] > 0:
        return _of_sequence(value[2])
    return []
