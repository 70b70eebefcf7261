"""Decide whether a program continued after a line of its log; if so, the line only may be the cause of its end. Pure."""

import re
from dataclasses import replace
from itertools import islice
from typing import List, Sequence, Tuple

from taco_launch.core.errors import SIGNAL_BASE
from taco_launch.core.signatures.known import FailureText
from taco_launch.core.signatures.known.cuda import CUDA
from taco_launch.core.signatures.known.frameworks import FRAMEWORKS
from taco_launch.core.signatures.known.torch import TORCH, TORCH_RANKS
from taco_launch.core.signatures.known.training import TRAINING
from taco_launch.core.signatures.lines import clean, ended, says
from taco_launch.core.signatures.match import ENTRIES, RAISED, SignatureMatch

# The last line that the program's own work may follow, by so many lines of it at most: after an error of Python, which exits
# with 1, aborts or is what ssh calls 255, come handlers and the rest of its message; after a signal only what was buffered.
_AFTER_ERROR, _AFTER_SIGNAL = 20, 5
# Before the traceback that ends a log, so many lines. What a program does not say itself may stand further up.
_BEFORE_TRACEBACK, _OF_OTHERS = 2, 200
_ERROR_CODES = (1, SIGNAL_BASE + 6, 255)

_TRACEBACK = "Traceback (most recent call last)"
# A line of a failure, whoever prints it, or of a library's own log: none of the program's work.
_OF_FAILURE = re.compile(
    r"(?i)\s|[*#=~^-]{3}|wandb:|(?:[\w.-]+:\d+:\d+ |\[[\w.-]+:\d+[\]:]|\[[\d.]+\] \[|\[?[EW]\d{4}|\[[EWFC] )"
    r"|.*(?:error|exception|fail|abort|fatal|terminat|kill|signal|dumped|assert|fault|backtrace|frame|stack|what\(\)|exit|traceback|panic"
    r"|refused|denied|cannot|unable|timed? ?out|no such|not found|usage:|interrupt|CUDA_LAUNCH_BLOCKING|TORCH_USE_CUDA_DSA)"
)
_BAR = re.compile(r"\s*(?:[^|]{0,80}: *)?\d{1,3}%\|")
_OF_PROGRAM = {entry.name for entry in (*TRAINING, *CUDA, *TORCH, *TORCH_RANKS, *FRAMEWORKS)}
# The program itself says that it continues, or reports without alarm.
_CONTINUES = re.compile(
    r"(?i)\bfall(?:ing|s)? ?back\b|\bretry|\btrying again\b|\breduc(?:ing|ed)\b|\bhalving\b|\bskipp|\bignor|\bcontinu|\brecover|\binstead\b"
)
_REPORTS = re.compile(r"(?i)\W*(?:[\w.:,/-]+ ){0,4}\W*(?:debug|info|warn(?:ing)?)\b")
# A program's words that it ended well, of which so many lines may follow: what a library or a launcher says while it ends.
_GOOD_END = re.compile(
    r"(?i)(?!.*(?:\bnot?\b|n't\b|fail|error|unsuccess))(?:.*\bsuccessful(?:ly)?\b"
    r"|.*\bexit(?:s|ed|ing)?\b(?: with)?(?: (?:code|status))?[ :=]*0\b"
    r"|.*\btraining (?:is |has )?(?:complete|completed|finished|done|succeeded)\b)"
)
_BELOW_END = 5
_HANDLED = " The log continues after it and ends well, so the program may have handled it."


class Aftermath:
    """The end of a rank's log, by whose lines a text in it counts as the cause or as a line that may explain it."""

    def __init__(self, text: str, first: int, exit_code: int) -> None:
        """Read the end of a log, which starts with line `first`, of a rank that ended with this code, 128 + n for signal n."""
        self._work: List[int] = []  # the lines of the program's work
        self._traceback = 0  # the first of those that end the log
        for number, line in enumerate(text.split("\n"), first):
            words = clean(line)[1]
            if _TRACEBACK in words:
                if not self._traceback or self._since(self._traceback) > _BEFORE_TRACEBACK:
                    self._traceback = number
            elif says(words) and (_BAR.match(words) or not _OF_FAILURE.match(words)):
                self._work.append(number)
        is_error = exit_code in _ERROR_CODES
        if self._traceback and self._since(self._traceback) > (_AFTER_ERROR if is_error else 0):
            self._traceback = 0
        self._most = _AFTER_ERROR if is_error else _AFTER_SIGNAL if exit_code > SIGNAL_BASE else 0
        above = [line for line in self._work if line < self._traceback] if self._traceback else self._work
        most = _BEFORE_TRACEBACK if self._traceback else self._most
        # The first line after which the program did hardly anything.
        self.begin = above[-most - 1] + 1 if len(above) > most else first

    def _since(self, line: int) -> int:
        """Return how many lines of work follow a line: of more than any limit, not all are counted."""
        return sum(1 for _work in islice((work for work in reversed(self._work) if work > line), _OF_OTHERS + 1))

    def explains(self, match: SignatureMatch) -> bool:
        """Return whether a text counts as the cause: the program did hardly anything after it."""
        line, since = match.finding.line, self._since(match.finding.line)
        if match.finding.signature not in _OF_PROGRAM:
            return since <= _OF_OTHERS
        entry = ENTRIES[match.finding.signature]
        if (entry.survived or entry.handled or entry in CUDA) and not RAISED.match(match.text):
            at, key = min(((match.text.find(key), key) for key in entry.keys if key in match.text), default=(0, ""))
            before, after = match.text[:at], match.text[at + len(key) :]
            if _CONTINUES.search(before) or _CONTINUES.search(after):
                return False
            if _REPORTS.match(before):
                return since == 0
        if line < self._traceback:
            return since - self._since(self._traceback) <= _BEFORE_TRACEBACK
        return since <= self._most

    def outlived(self, match: SignatureMatch) -> bool:
        """Return whether a text is an error of a program that did more after it."""
        entry = ENTRIES[match.finding.signature]
        if entry.unknown:
            return self._since(match.finding.line) > 0
        is_error = entry.survived or entry.handled or entry in CUDA or RAISED.match(match.text)
        return bool(is_error) and entry.name in _OF_PROGRAM and not ended(match.label) and not self.explains(match)


def without_handled(matches: Sequence[SignatureMatch], end: str, last: int) -> Tuple[SignatureMatch, ...]:
    """Return the matches; of a log that ends well, the errors that its program has outlived are no failures.

    `end` is the end of the log, up to line `last`. A rank or a launcher that has failed makes no end a good one.
    """
    lines = end.split("\n")
    first = last - len(lines) + 1 + end.endswith("\n")
    said = [at for at, line in enumerate(lines) if says(clean(line)[1])][-_BELOW_END - 1 :]
    good = next((at for at in reversed(said) if _GOOD_END.match(clean(lines[at])[1])), None)
    failures = [match for match in matches if match.kind < FailureText.NOTE]
    if good is None:
        return tuple(matches)
    after = Aftermath("\n".join(lines[:good]), first, 0)
    if not all(match.finding.line < first + good and after.outlived(match) for match in failures):
        return tuple(matches)
    return tuple(match if match.kind is FailureText.NOTE else _as_note(match) for match in matches)


def _as_note(match: SignatureMatch) -> SignatureMatch:
    return match._replace(
        kind=FailureText.NOTE, finding=replace(match.finding, cause=f"{match.finding.cause}{_HANDLED}")
    )
