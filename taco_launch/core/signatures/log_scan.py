"""What a log tells of a failure: the known texts in it, each with cause and next step, pure."""

import functools
import re
from typing import Dict, Iterable, List, Mapping, Optional, Sequence, Set, Tuple

from taco_launch.core.model.jobs import Finding
from taco_launch.core.signatures.filling import MOST_SHOWN, values_of
from taco_launch.core.signatures.known import FailureText, Signature
from taco_launch.core.signatures.lines import (
    LINE,
    NEAR,
    SAID,
    SPEAKER,
    around,
    clean,
    end_of,
    ended,
    host_in,
    label,
    last_said,
    lines_after_failure,
    nearby,
    says,
    with_following,
)
from taco_launch.core.signatures.match import (
    ENTRIES,
    OF_MPIRUN_AND_SSH,
    OF_RANKS_ENDS,
    SPEAK_LATE,
    FirstError,
    SignatureMatch,
    counts_more,
    goes_with,
    is_cause,
    is_evidence,
    is_failure,
    is_handled,
    is_reason,
    is_survived,
    is_warning,
    noted,
    reasons_at,
    without_fallbacks,
)
from taco_launch.core.signatures.phrases import Phrases, vocabulary
from taco_launch.core.signatures.qualifiers import QUALIFIERS
from taco_launch.core.signatures.table import TABLE
from taco_launch.core.signatures.unusual import Unusual
from taco_launch.core.signatures.watchdogs import Watchdogs

# Text is looked through in blocks of about this many characters: large enough that a search costs no more than reading.
_BLOCK = 1 << 18
# A line longer than a block is looked through in pieces that overlap by so many characters: more than any key has.
_OVERLAP = 4096
# A thousand hosts that fail alike need not be listed one by one.
_MOST_HOSTS = 16
_MOST_FINDINGS = 64
# A text of several lines whose key stands in millions of lines without the rest is given up after so many lines.
_MOST_IN_VAIN = 1 << 20
# A text that programs survive is at the end of its log if no more than so many lines follow, or so many at most
# before a failure that is known: mpirun's frame and a short traceback.
_LAST_LINES, _SHORTLY = 2, 20
# A rank whose error ended it says no more than so many lines after it, where something else failed too.
_LAST_OF_RANK = 5
# So many ranks are watched for what they say after an error.
_MOST_RANKS = 4096
# A cause that stands so many lines above the error that ends a rank's log was survived: tracebacks are shorter.
_FAR = 200


@functools.lru_cache(maxsize=1)
def _keys() -> Phrases:
    return Phrases(key for entry in TABLE for key in entry.keys)


class LogScan:
    """Looks through the text of one log or several; memory is bounded however long they are."""

    def __init__(self, names: Optional[Mapping[str, str]] = None, *, failed: bool = False) -> None:
        """Start with a log that no host is known of.

        `names` gives the names that hosts are to be told by, where logs have others (an address, the machine's own
        name). `failed` says that a job is known to have failed, so that its warnings may be why.
        """
        self._names = names or {}
        self._failed = failed
        self.lines = 0  # of the log that is being read, so far
        self.last_words = ""
        self._host = ""
        self._pending: List[str] = []
        self._size = 0
        self._open_line = False
        self._log = 0
        self._found: List[Tuple[int, SignatureMatch]] = []
        self._hosts: Dict[str, Set[str]] = {}
        self._lengths: Dict[int, int] = {}  # the last line of each log that says something
        self._places: Dict[Tuple[int, str, str], int] = {}  # in _found, of texts of which the last counts
        self._after: Dict[Tuple[int, str], Tuple[int, int]] = {}  # a rank's error: its line, the rank's lines since
        self._in_vain: Dict[str, int] = {}
        self._last_of: Dict[str, str] = {}  # what a process of NCCL that is in _found said last
        self._first_error = FirstError()
        self._watchdogs = Watchdogs()
        self.unusual = Unusual()
        self._end = ""  # the last characters of what was looked through

    def begin(self, host: str = "") -> None:
        """Go on with another log, which was written on `host`. What it tells comes after what the others told."""
        self._examine(last=True)
        self.lines, self._host, self._open_line, self._end = 0, host, False, ""
        self._log += 1

    def feed(self, text: str) -> None:
        """Take the next text of the log, which may start and end within a line."""
        self._pending.append(text)
        self._size += len(text)
        if self._size >= _BLOCK:
            self._examine(last=False)

    def skip(self, lines: int) -> None:
        """Go on behind a part of the log that is not looked at, in which so many lines end."""
        self._examine(last=True)
        self.lines, self._end = self.lines + lines, ""

    def matches(self) -> Tuple[SignatureMatch, ...]:
        """Return what was found: failures before what follows from them, before notes; then in the order of the lines."""
        self._examine(last=True)
        found = self._told()
        first = () if self._failed else self._first_error.told(found, self._lengths)
        if first:
            # A text that programs survive may be why this one did not, where it stands shortly above the error.
            survived = self._told(first)
            first, found = ((), survived) if any(is_reason(match) for _log, match in survived) else (first, found)
            reasons = reasons_at(self._found)
            first = tuple((log, reasons.get((log, match.finding.line), match)) for log, match in first)
        return self._first_error.advised((*first, *found))

    def _told(self, first: Tuple[Tuple[int, SignatureMatch], ...] = ()) -> List[Tuple[int, SignatureMatch]]:
        """Return (its log, a match) of what is told, in order; `first` is an error of no known cause that ended a rank."""
        every = [*self._found, *self._watchdogs.compared()]
        logs = {id(match): log for log, match in every}
        hosts: Dict[str, Set[str]] = {}
        for _log, match in every:
            hosts.setdefault(match.finding.signature, set()).add(match.finding.host)
        explained = {
            at for at, one in reasons_at(every).items() if one.kind is FailureText.CAUSE and not is_warning(one)
        }
        known_lines = set(reasons_at([(log, one) for log, one in every if is_failure(one)]))
        ends = self._ended()
        told = [
            match
            for log, match in every
            if (not is_handled(match) or id(match) in ends)
            and goes_with(match, hosts)
            and (match.finding.host or not any(hosts[match.finding.signature]))
            # An error whose text is a known one need not be told twice.
            and not (match.kind is FailureText.OUTCOME and (log, match.finding.line) in explained)
            and not (is_handled(match) and (log, match.finding.line) in known_lines)
            and not (is_handled(match) and any(is_cause(ENTRIES[name], match.text) for name in hosts))
        ]
        failures = [(logs[id(match)], match) for match in told if is_failure(match)]
        known = self._failed or bool(failures)
        told = [
            match
            for match in told
            if not is_survived(match)
            or self._counts(
                logs[id(match)], match, (*failures, *first), known=known or ENTRIES[match.finding.signature].handled
            )
        ]
        if not self._failed and not any(match.kind < FailureText.NOTE and not is_warning(match) for match in told):
            told = [match for match in told if not is_warning(match) or self._ends_with(match)]
        found = without_fallbacks([(logs[id(match)], match) for match in told])
        order = [(*self._ranked(log, match, found), log) for log, match in found]
        order.sort(key=lambda entry: (entry[0].kind, entry[1], entry[2], entry[0].finding.line))
        return [(log, match) for match, _later, log in order[:_MOST_FINDINGS]]

    def findings(self) -> Tuple[Finding, ...]:
        """Return `matches` without the rest."""
        return tuple(match.finding for match in self.matches())

    def _ended(self) -> Set[int]:
        """Return the ids of the errors that ended a rank, which it did not survive: of each host the last, or the first that torch marks."""
        failures = [(log, match) for log, match in self._found if is_failure(match) and not is_handled(match)]
        last: Dict[Tuple[int, str], SignatureMatch] = {}
        for log, match in sorted(self._found, key=lambda entry: (entry[0], entry[1].finding.line)):
            known = last.get((log, match.finding.host))
            # After the first that is known to have ended its rank the others raise because they lost it.
            if not is_handled(match) or (known is not None and ended(known.label)):
                continue
            if match.label:
                counts = self._since(log, match) <= (_LAST_OF_RANK if self._failed or failures else _LAST_LINES)
            else:
                counts = self._counts(log, match, failures, known=True)
            if counts:
                last[log, match.finding.host] = match
        return {id(match) for match in list(last.values())[:_MOST_HOSTS]}

    def _since(self, log: int, match: SignatureMatch) -> int:
        """Return how many lines a rank has said since its error; none where the log does not tell ranks apart, or torch marks it."""
        return self._after.get((log, match.label), (0, 0))[1]

    def _counts(
        self, log: int, match: SignatureMatch, failures: Sequence[Tuple[int, SignatureMatch]], *, known: bool
    ) -> bool:
        """Return whether a text that programs survive stands where one failed: at its log's end, or above a failure."""
        line = match.finding.line
        below = [other.finding.line - line for place, other in failures if place == log]
        last_lines = _LAST_LINES if match.kind is FailureText.CAUSE else 0
        left = self._lengths.get(log, 0) - line
        return left <= (_SHORTLY if known else last_lines) or any(0 <= lines <= _SHORTLY for lines in below)

    def _ranked(
        self, log: int, match: SignatureMatch, found: Sequence[Tuple[int, SignatureMatch]]
    ) -> Tuple[SignatureMatch, bool]:
        """Return a match as what it is among the others, and whether it comes after the outcome that it does not explain.

        What is said after a program's own error follows from it, unless NCCL or the kernel says it: they may speak late.
        What ssh and mpirun say after any outcome never explains it. What a program survived does not explain its end.
        """
        if match.kind > FailureText.OUTCOME:
            return match, False
        name, at = match.finding.signature, (log, match.finding.line)
        outcomes = [
            ((other, one.finding.line), one.finding.signature)
            for other, one in found
            if one.kind is FailureText.OUTCOME
            and not is_survived(one)
            and not self._since(other, one)
            and (other == log or (self._failed and other < log))
        ]
        own = [place for place, other in outcomes if other not in OF_RANKS_ENDS]
        if is_survived(match):
            later = any(place > at for place in own)
        elif match.kind is FailureText.OUTCOME:
            return match, any(self._since(log, match) > self._since(*other) for other in found if is_handled(other[1]))
        elif name in OF_MPIRUN_AND_SSH:
            later = any(place < at for place, _other in outcomes)
        else:
            later = name not in SPEAK_LATE and any(place < at for place in own)
            later = later or (self._failed and any(place[1] - at[1] > _FAR for place in own if place[0] == log))
        return (match._replace(kind=FailureText.OUTCOME), True) if later else (match, False)

    def _ends_with(self, match: SignatureMatch) -> bool:
        """Return whether the log ends where a warning stands: nothing came after it, or only what other processes of NCCL say."""
        speaker = SPEAKER.match(match.text) if SPEAKER.match(self.last_words) else None
        words = self._last_of.get(speaker[0], "") if speaker else ""
        return re.search(ENTRIES[match.finding.signature].at_end, words or self.last_words) is not None

    def _examine(self, *, last: bool) -> None:
        """Look through what has come, but for the end, which what comes next may continue."""
        block = "".join(self._pending)
        cut = len(block) if last else end_of(block, _OVERLAP)
        line_at, number = 0, self.lines + (not self._open_line)
        words = vocabulary(block)
        self._first_error.hear(block)
        for start, entry, position in self._hits(block, cut, words):
            number += block.count("\n", line_at, start)
            line_at = start
            self._match_entry(entry, block, start, position, number)
        rest = block[cut:]
        self._pending, self._size = [rest] if rest else [], len(rest)
        seen = block[:cut]
        if self._first_error.watches(self._log) or any(log == self._log for log, _label in self._after):
            self._listen(seen, self.lines + (not self._open_line))
        if all(match.kind is FailureText.NOTE for _log, match in self._found):
            self.unusual.look(seen, words, self.lines + (not self._open_line))
        if seen:
            # What is cut within a line has counted it already.
            self.lines += seen.count("\n") + (not seen.endswith("\n")) - self._open_line
            self._open_line = not seen.endswith("\n")
            self._end = seen[-NEAR * LINE :]
            self._last_of.update(last_said(seen, [match.text for _log, match in self._found]))
            words = seen[-_BLOCK // 64 :].strip() or seen.strip()
            if words:
                after = lines_after_failure(words) if last else 0
                self._lengths[self._log] = (
                    self.lines - seen.count("\n", len(seen.rstrip())) + seen.endswith("\n") - after
                )
                line = next(filter(says, reversed(words.split("\n"))), "")
                self.last_words = clean(line)[1].strip()[-MOST_SHOWN:] or self.last_words

    def _listen(self, seen: str, number: int) -> None:
        """Count what ranks say after their errors, in a text that starts in line `number`."""
        line_at = 0
        for match in SAID.finditer(seen):
            number += seen.count("\n", line_at, match.start())
            line_at = match.start()
            rank = (self._log, match.group("label") or match.group("tag"))
            self._first_error.said(*rank, number)
            line, count = self._after.get(rank, (number, 0))
            if number > line:
                self._after[rank] = (line, count + 1)

    def _hits(self, block: str, cut: int, words: str) -> List[Tuple[int, Signature, int]]:
        """Return (where its line starts, the signature, where the key stands) of every key before `cut`, in order.

        `words` is the vocabulary of the block.
        """
        hits: Dict[Tuple[int, int], int] = {}
        possible = _keys().possible(words)
        for order, entry in enumerate(TABLE):
            if not entry.handled and len(self._hosts.get(entry.name, ())) >= _MOST_HOSTS:
                continue
            for key in entry.keys:
                if key not in possible:
                    continue
                position = block.find(key, 0, cut + _OVERLAP)
                while 0 <= position < cut:
                    hits.setdefault((block.rfind("\n", 0, position) + 1, order), position)
                    end = block.find("\n", position)
                    position = -1 if end < 0 else block.find(key, end, cut + _OVERLAP)
        return [(start, TABLE[order], hits[start, order]) for start, order in sorted(hits)]

    def _match_entry(self, entry: Signature, block: str, start: int, position: int, number: int) -> None:
        """See whether the text around a key is the one that is known, and note it if it is new."""
        if self._in_vain.get(entry.name, 0) > _MOST_IN_VAIN:
            return
        end = block.find("\n", position)
        end = len(block) if end < 0 else end
        host = self._host or self._named(clean(block[start : min(end, start + LINE)])[0])
        if entry.unknown:
            line = block[start : min(end, start + LINE)]
            self._first_error.look(self._log, number, host, line, around(block, start, position, end))
            return
        if entry.compared:
            line = block[start : min(end, start + LINE)]
            self._watchdogs.look(entry, self._log, number, host, line, around(block, start, position, end))
            return
        told = self._hosts.setdefault(entry.name, set())
        rank = label(block[start : min(end, start + LINE)]) if entry.handled else ""
        last_counts = entry.survived or entry.handled or (self._failed and entry.kind is FailureText.OUTCOME)
        if not last_counts and "(?P<host>" not in entry.pattern and _known(host, told):
            return
        if entry.not_after:
            above = block[max(0, start - LINE) : start] if start else self._end
            if entry.not_after in above[:-1].rpartition("\n")[2]:
                return
        text = with_following(around(block, start, position, end), block, end, entry.lines - 1, rank)
        match = re.search(entry.pattern, text)
        if match is None:
            if entry.lines > 1:
                self._in_vain[entry.name] = self._in_vain.get(entry.name, 0) + entry.lines
            return
        if entry.more and int(match[entry.more[0]]) <= int(match[entry.more[1]]):
            return
        if not is_evidence(entry, text):
            return
        near = nearby(self._end, block, start, end, max(NEAR, entry.lines)) if entry.name in QUALIFIERS else ""
        self._note(entry, match, host, rank, number, near, last_counts=last_counts)

    def _note(
        self, entry: Signature, match: "re.Match[str]", host: str, rank: str, line: int, near: str, *, last_counts: bool
    ) -> None:
        """Note a text of a host, and of a rank if its label is known, that is new or takes the place of another."""
        values, told = values_of(match), self._hosts[entry.name]
        if entry.packages and "package" in values:
            values["package"] = dict(entry.packages).get(values["package"], values["package"])
        host = self._named(host_in(values.pop("host", ""))) or host
        of = (self._log, entry.name, rank or host)
        place = self._places.get(of) if last_counts else None
        many = len(self._after) >= _MOST_RANKS if rank else _known(host, told) or len(told) >= _MOST_HOSTS
        if place is None and many:
            return
        told.add(host)
        values = {name: self._named(value) for name, value in values.items()}
        if host:
            values["host"] = host
        found = (self._log, noted(entry, match, values, host, rank, line, near))
        if rank:
            self._after[self._log, rank] = (found[1].finding.line, 0)
        if place is None:
            self._places[of] = len(self._found)
            self._found.append(found)
        elif not counts_more(self._found[place][1], found[1], _SHORTLY):
            self._found[place] = found

    def _named(self, host: str) -> str:
        return self._names.get(host, host)


def explain(lines: Iterable[str]) -> Tuple[Finding, ...]:
    """Return what a log's lines tell of a failure, the first failure first; lines may have their line ends or not."""
    scan = LogScan()
    for line in lines:
        scan.feed(line.rstrip("\r\n").replace("\n", " ") + "\n")
    return scan.findings()


def is_consequence(last_words: str) -> bool:
    """Return whether the end of a failed rank's log blames another rank, and tells of no failure of its own."""
    scan = LogScan(failed=True)
    scan.feed(last_words)
    found = scan.matches()
    return bool(found) and found[0].kind is FailureText.ECHO


def _known(host: str, told: Set[str]) -> bool:
    return host in told or bool(told and not host)
