"""The lines that stand out in a log in which no known failure was found: with words of trouble, and not said again and again; pure."""

import re
from typing import Dict, List, Tuple

from taco_launch.core.signatures.filling import MOST_SHOWN
from taco_launch.core.signatures.lines import LINE, clean, label
from taco_launch.core.signatures.phrases import Phrases

_TROUBLE = Phrases(
    (
        *("error", "fail", "fatal", "abort", "cannot", "can't", "unable", "denied", "refused", "no such", "not found"),
        *("not supported", "timed out", "killed", "invalid", "exception", "panic", "unexpected", "corrupt"),
    )
)
# What differs between two lines of one kind.
_VALUES = re.compile(r"0x[\da-fA-F]+|\d+(?:[.:,]\d+)*")
# A rank that says more lines of a kind than this reports a number, or goes on.
_OFTEN = 2
_MOST_KINDS = 4096
# So many lines of a block are looked at for each word, and so many are shown in the end.
_MOST_OF_WORD, _MOST_LINES = 64, 3


class Unusual:
    """Watches the lines of logs for words of trouble."""

    def __init__(self) -> None:
        """Start with no line."""
        self._kinds: Dict[Tuple[str, str], int] = {}  # how often a rank or host said a line of a kind
        self._first: List[
            Tuple[int, str, str, str]
        ] = []  # the first one: its line, who said it, its kind, what it says

    def look(self, text: str, words: str, number: int) -> None:
        """Note the lines of a text that starts in line `number`; `words` is its vocabulary."""
        possible = _TROUBLE.possible(words.lower())
        if not possible:
            return
        low = text.lower()
        low = low if len(low) == len(text) else text  # where a letter has more than one small one
        starts = set()
        for word in possible:
            at = low.find(word)
            for _line in range(_MOST_OF_WORD):
                if at < 0:
                    break
                starts.add(text.rfind("\n", 0, at) + 1)
                end = low.find("\n", at)
                at = low.find(word, end) if end >= 0 else -1
        before = 0
        for start in sorted(starts):
            number += text.count("\n", before, start)
            before = start
            self._note(text[start : start + LINE].partition("\n")[0], number)

    def _note(self, line: str, number: int) -> None:
        host, says = clean(line)
        who = label(line).replace("<std", "").strip("[]:") or host
        kind = _VALUES.sub("0", says.strip())
        count = self._kinds.get((who, kind))
        if count is None and len(self._kinds) < _MOST_KINDS:
            self._first.append((number, who, kind, says.strip()[:MOST_SHOWN]))
        if count is not None or len(self._kinds) < _MOST_KINDS:
            self._kinds[who, kind] = (count or 0) + 1

    def lines(self) -> List[str]:
        """Return the first lines that stand out, each with its number and who said it."""
        shown: Dict[str, str] = {}
        for number, who, kind, says in self._first:
            if self._kinds[who, kind] <= _OFTEN and len(shown) < _MOST_LINES:
                shown.setdefault(kind, f"  line {number}{who and f', {who}'}: {says}")
        return list(shown.values())
