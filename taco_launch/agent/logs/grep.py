"""Lines of a log that match a user's regular expression: looked for in a process that is ended when it takes too long.

A pattern such as `(a+)+$` can take years on one line, and cannot be interrupted within this process.
"""

import re
from typing import List, Pattern, Sequence

from taco_launch.agent.logs.required_texts import required_texts
from taco_launch.agent.processes.cpu_limit import bounded
from taco_launch.core.errors import UsageError

MOST_CHARACTERS = 1000
# CPU time for a piece of a log: a simple pattern passes over a hundred times as much.
_SECONDS = 5
# What the merged log has before each line of a rank: HOST/RANK and a bar.
_LABEL = re.compile(rb"[^\s/|]+/[^\s|]+ *\| ")


def compiled(pattern: str) -> "Pattern[str]":
    """Return a pattern ready for use.

    Raises:
        UsageError: it is too long, or no regular expression.
    """
    if len(pattern) > MOST_CHARACTERS:
        raise UsageError(f"--grep: the pattern is longer than {MOST_CHARACTERS} characters")
    try:
        return re.compile(pattern)
    except (re.error, RecursionError, OverflowError) as error:
        raise UsageError(
            f"--grep: {pattern!r} is not a regular expression: {error}",
            hint="put a backslash before each special character that is meant literally",
        ) from None


class Grep:
    """Finds the lines that match anywhere in their text, which is taken for UTF-8."""

    def __init__(self, pattern: str, *, labelled: bool) -> None:
        r"""Look for `pattern`; where lines are `labelled`, behind their labels. A `\n` at a line's end does not count.

        Raises:
            UsageError: it is not a pattern.
        """
        self._pattern = compiled(pattern)
        self._labelled = labelled
        self._texts = required_texts(pattern)

    def may_match(self, text: bytes) -> bool:
        """Return whether some line of a text may match: False is certain, and costs no more than reading the text."""
        return all(any(each in text for each in texts) for texts in self._texts)

    def matching(self, lines: Sequence[bytes]) -> List[bool]:
        """Return for each line whether it matches.

        Raises:
            UsageError: it takes too long.
        """
        if not lines:
            return []
        found = bounded(lambda: [number for number, line in enumerate(lines) if self._matches(line)], _SECONDS)
        if found is None:
            raise UsageError(
                f"--grep: the search took more than {_SECONDS} s on {sum(map(len, lines))} bytes of the log",
                hint="avoid nested repeats such as (a+)+ in the pattern, or pipe the output of `logs` into grep",
            )
        matched = frozenset(found)
        return [number in matched for number in range(len(lines))]

    def _matches(self, line: bytes) -> bool:
        text = line.rstrip(b"\r\n")
        if self._labelled:
            label = _LABEL.match(text)
            text = text[label.end() :] if label else text
        return self._pattern.search(text.decode("utf-8", "replace")) is not None
