"""What a found text is: a failure, a warning, or an error that its program handled or survived; and which error of no known cause came first; pure."""

import re
from dataclasses import replace
from typing import Dict, Iterable, List, Mapping, NamedTuple, Sequence, Set, Tuple

from taco_launch.core.model.jobs import Finding
from taco_launch.core.signatures.filling import MOST_SHOWN, filled, shortened
from taco_launch.core.signatures.known import FailureText, Signature
from taco_launch.core.signatures.known.containers import DOCKER
from taco_launch.core.signatures.known.mpirun import LAUNCHER, RANKS
from taco_launch.core.signatures.known.nccl import NCCL, NCCL_DEVICES
from taco_launch.core.signatures.known.slurm import SLURM
from taco_launch.core.signatures.known.ssh import SSH
from taco_launch.core.signatures.known.system import SYSTEM
from taco_launch.core.signatures.lines import ended, label, rank_of
from taco_launch.core.signatures.qualifiers import ADVICE, STATED, qualified
from taco_launch.core.signatures.table import TABLE

# What ends a program, whatever it says.
RAISED = re.compile(r"(?:[\w.]*(?:Error|Exception): |[^\r\n]*error while loading shared libraries)")
# What says that a program continues.
GOES_ON = re.compile(r"(?i)warning\b|\b(?:re)?trying\b|\bwaiting\b|\bgoing to \S+ instead\b")
ENTRIES = {entry.name: entry for entry in TABLE}
OF_RANKS_ENDS = {entry.name for entry in (*RANKS, *SLURM)} | {"pdsh-command-failed"}
OF_NCCL = {entry.name for entry in (*NCCL, *NCCL_DEVICES)}
OF_MPIRUN_AND_SSH = {entry.name for entry in (*LAUNCHER, *SSH)}
SPEAK_LATE = {
    entry.name for entry in (*NCCL, *NCCL_DEVICES, *DOCKER, *SYSTEM, *SLURM) if "CANCELLED" not in entry.pattern
}
SPEAK_LATE.add("ucx-cuda-context")  # said by the threads that a crash has not ended yet
# What says that a rank failed, and not why.
_SAY_NO_REASON = (
    "rank-exited",
    "rank-exited-255",
    "rank-failed",
    "slurm-task-exited",
    "slurm-task-signal",
    "slurm-cancelled",
    "pdsh-command-failed",
    "torchrun-child-failed",
    "torchrun-rank-failed",
    "torch-spawn-ended",
    "command-failed",
)

# Errors are of one failure if no more than so many lines lie between them, or so many that their rank says.
_NEAR, _NEAR_OF_RANK = 20, 5
# So many lines may follow the last one.
_LAST_LINES = 2
# So many ranks are watched.
_MOST_RANKS = 4096

_TRACEBACK = re.compile(r'Traceback \(most recent call last\)|  File "')
_SOURCE = re.compile(r"[ \t]+(?:[^\n]*\s)?raise [\w.]+\(")
_TIME = re.compile(r"(?:(?P<date>\d{4}-\d\d-\d\d)[T ])?(?P<time>\d\d:\d\d:\d\d(?:[.,]\d+)?)")
(_ENTRY,) = (entry for entry in TABLE if entry.unknown)
_PATTERN = re.compile(_ENTRY.pattern)
# What shows more where a log has the lines of NCCL_DEBUG=INFO already.
_SHOWN_BY_DEBUG = re.compile(r" \((?:-x )?NCCL_DEBUG=INFO shows (?:them|it)\)")
_DEBUG = re.compile(r"(?:-x )?NCCL_DEBUG=INFO")
_ADVICE = re.compile(f"(?i){ADVICE}")
_STATED = re.compile(f"(?i){STATED}")


class SignatureMatch(NamedTuple):
    """A finding, what kind of text it is, the line it was found in without the prefixes, and what labels its rank."""

    finding: Finding
    kind: FailureText
    text: str
    label: str = ""


def noted(
    entry: Signature, match: "re.Match[str]", values: Dict[str, str], host: str, rank: str, number: int, near: str
) -> SignatureMatch:
    """Return what a text says with the words of its entry, or with those for what stands near it; `number` is the line of its key."""
    text = match.string
    words = qualified(entry, near, values)
    cause = filled(words.cause, values, "That host" if words.cause.startswith("{host}") else "that host")
    # What was raised stands below the place in the source, with which the text of a traceback begins.
    start = match.start("error" if match.groupdict().get("error") else 0)
    down = text.count("\n", 0, start)
    finding = Finding(entry.name, cause, filled(words.next, values, "HOST"), host, number + down)
    return SignatureMatch(finding, words.kind, text.split("\n")[down].strip()[: 2 * MOST_SHOWN], rank)


def goes_with(match: SignatureMatch, hosts: Mapping[str, Set[str]]) -> bool:
    """Return whether a text is to be told beside what else is found; `hosts` has the hosts of each name, or an empty one."""
    entry, host = ENTRIES[match.finding.signature], match.finding.host
    # A reason that NCCL gives on one host does not make up for a failure on another without one.
    own = host and entry.kind is FailureText.FALLBACK and entry.name in OF_NCCL
    if any(not own or hosts[name] & {host, ""} for name in entry.unless if name in hosts):
        return False
    return not entry.only_with or any(name in hosts for name in entry.only_with)


def is_evidence(entry: Signature, text: str) -> bool:
    """Return whether a text says that something failed: not a line of a program in a traceback, and not where the program continues."""
    continues = entry.survived and GOES_ON.search(text) and not RAISED.match(text)
    return not continues and _SOURCE.match(text) is None


def is_warning(match: SignatureMatch) -> bool:
    """Return whether a program only ends with this text: elsewhere it is a warning."""
    return bool(ENTRIES[match.finding.signature].at_end)


def is_handled(match: SignatureMatch) -> bool:
    """Return whether programs may handle this error and continue."""
    entry = ENTRIES[match.finding.signature]
    return entry.handled and not entry.survived


def is_cause(entry: Signature, text: str) -> bool:
    """Return whether a text is the cause that an entry knows."""
    return (
        entry.kind is FailureText.CAUSE
        and any(key in text for key in entry.keys)
        and bool(re.search(entry.pattern, text))
    )


def is_reason(match: SignatureMatch) -> bool:
    """Return whether a text says why something failed."""
    return match.kind < FailureText.NOTE and match.finding.signature not in _SAY_NO_REASON


def reasons_at(matches: Iterable[Tuple[int, SignatureMatch]]) -> Dict[Tuple[int, int], SignatureMatch]:
    """Return the texts that say why something failed, by log and line; of several in a line the one that is told first."""
    by_rank = sorted(matches, key=lambda entry: entry[1].kind, reverse=True)
    return {(log, match.finding.line): match for log, match in by_rank if is_reason(match) and not is_handled(match)}


def is_failure(match: SignatureMatch) -> bool:
    """Return whether a text says that something failed for good."""
    return match.kind < FailureText.NOTE and not is_warning(match) and not is_survived(match)


def is_survived(match: SignatureMatch) -> bool:
    """Return whether programs survive this error, unless it is what they raised and did not handle."""
    entry = ENTRIES[match.finding.signature]
    return entry.survived and (entry.handled or not RAISED.match(match.text))


def counts_more(first: SignatureMatch, match: SignatureMatch, shortly: int) -> bool:
    """Return whether an earlier text counts more than a later one of its kind: it was raised, or is said by two ranks within so many lines."""
    if not ENTRIES[match.finding.signature].survived:
        return False
    near = match.finding.line - first.finding.line <= shortly
    return not is_survived(first) or (is_survived(match) and near and match.text == first.text)


def _came_first(match: SignatureMatch, log: int, others: Sequence[Tuple[int, SignatureMatch]]) -> bool:
    """Return whether a host failed before all others, which only say that they lost another rank."""
    return bool(match.finding.host) and all(
        one.kind is FailureText.ECHO
        and place == log
        and one.finding.line > match.finding.line
        and one.finding.host not in ("", match.finding.host)
        for place, one in others
    )


def without_fallbacks(matches: Sequence[Tuple[int, SignatureMatch]]) -> List[Tuple[int, SignatureMatch]]:
    """Return the matches with their logs, without those that are told only where nothing better is; any that stay count as much as the best."""
    better = [(log, match) for log, match in matches if match.kind < FailureText.FALLBACK]
    kind = min((match.kind for _log, match in better), default=FailureText.FALLBACK)
    given = any(
        is_reason(match) for _log, match in better
    )  # beside outcomes that give no reason a text of lower rank may
    return [
        (log, match._replace(kind=min(match.kind, kind)) if match.kind is FailureText.FALLBACK else match)
        for log, match in matches
        if match.kind is not FailureText.FALLBACK
        or not better
        or (is_reason(match) and (not given or _came_first(match, log, better)))
    ]


class _Errors(NamedTuple):
    """The first of a rank's last errors: when it was said, whether a program raised it; the last one's line, and how many lines the rank said since."""

    first: SignatureMatch
    date: str
    time: str
    is_raised: bool
    last: int
    values: Dict[str, str]
    since: int = 0

    def first_of(self, kind: FailureText, more: Mapping[str, str]) -> SignatureMatch:
        """Return the first one as a text of that kind, with the next step for its values and for `more` of the log."""
        advice = filled(_ENTRY.next, {**self.values, **more}, "")
        return self.first._replace(kind=kind, finding=replace(self.first.finding, next=advice))


class FirstError:
    """Watches the errors of logs and of ranks in them."""

    def __init__(self) -> None:
        """Start with no error."""
        self._errors: Dict[Tuple[int, str], _Errors] = {}
        self._ignored: Dict[Tuple[int, str], int] = {}
        self._communicates = False  # whether the logs have a line of torch or NCCL
        self._has_debug = False  # whether NCCL says more than its warnings

    def hear(self, text: str) -> None:
        """Note whose lines a text has."""
        self._communicates |= "NCCL" in text or "torch" in text
        self._has_debug |= " NCCL INFO " in text

    def advised(self, found: Iterable[Tuple[int, SignatureMatch]]) -> Tuple[SignatureMatch, ...]:
        """Return what is told, without their logs; where NCCL_DEBUG=INFO is on, a next step asks for more than that."""
        return tuple(self._without_debug(match) if self._has_debug else match for _log, match in found)

    @staticmethod
    def _without_debug(match: SignatureMatch) -> SignatureMatch:
        advice = _DEBUG.sub("-x NCCL_DEBUG_SUBSYS=ALL", _SHOWN_BY_DEBUG.sub("", match.finding.next))
        return match._replace(finding=replace(match.finding, next=advice))

    def look(self, log: int, number: int, host: str, line: str, text: str) -> None:
        """Note the error that a line tells of, if it does; `text` is what it says without prefixes."""
        match = _PATTERN.search(text)
        of = (log, label(line))
        known = self._errors.get(of)
        if _TRACEBACK.match(text):
            # One error led to the next: the first is still what ended the rank.
            if known and known.is_raised and number - known.last <= _NEAR_OF_RANK:
                self._errors[of] = known._replace(last=number, since=0)
            return
        if match is None or (GOES_ON.search(text) and not match["raised"]):
            return
        if match["ignored"]:
            if len(self._ignored) < _MOST_RANKS:
                self._ignored[of] = number
        elif number - self._ignored.get(of, -_NEAR - 1) <= _NEAR:
            pass
        elif known and (known.since <= _NEAR_OF_RANK if of[1] else number - known.last <= _NEAR):
            self._errors[of] = known._replace(last=number, since=0)
        elif known or len(self._errors) < _MOST_RANKS:
            rank, time = rank_of(line), _TIME.search(line)
            values = {"what": shortened(match["raised"] or match["what"])}
            advice = _ADVICE.search(match["raised"] or "")
            values.update({"advice": advice["advice"]} if advice else {})
            values.update({"stated": "yes"} if _STATED.search(match["raised"] or "") else {})
            values.update({"rank": rank} if rank else {})
            values.update({"host": host} if host else {})
            finding = Finding(_ENTRY.name, filled(_ENTRY.cause, values, ""), _ENTRY.next, host, number)
            first = SignatureMatch(finding, _ENTRY.kind, text.strip()[: 2 * MOST_SHOWN], of[1])
            date, clock = (time["date"] or "", time["time"]) if time else ("", "")
            self._errors[of] = _Errors(first, date, clock, bool(match["raised"]), number, values)

    def watches(self, log: int) -> bool:
        """Return whether there is an error in that log."""
        return any(one == log for one, _label in self._errors)

    def said(self, log: int, rank: str, number: int) -> None:
        """Count a line that a rank says."""
        known = self._errors.get((log, rank))
        if known and number > known.last:
            self._errors[log, rank] = known._replace(since=known.since + 1)

    def told(
        self, found: Sequence[Tuple[int, SignatureMatch]], lengths: Mapping[int, int]
    ) -> Tuple[Tuple[int, SignatureMatch], ...]:
        """Return the first error that ended a rank, with its log, if nothing of what is found says why: by time where all have one, else by line.

        `lengths` has the last line of each log. Beside words that a rank failed, only what a program raised is told.
        """
        if any(is_reason(match) for _log, match in found):
            return ()
        failures = [(log, match) for log, match in found if match.kind < FailureText.NOTE]
        lines = {(log, match.finding.line) for log, match in found}
        errors: List[Tuple[int, _Errors]] = []
        for (log, of), error in self._errors.items():
            above = any(log == one and 0 < match.finding.line - error.last <= _NEAR for one, match in failures)
            left = error.since if of else lengths.get(log, 0) - error.last
            counts = (error.is_raised or not failures) and (log, error.first.finding.line) not in lines
            if counts and (above or ended(of) or left <= _LAST_LINES):
                errors.append((log, error))
        timed = all(error.time for _log, error in errors) and len({bool(error.date) for _log, error in errors}) == 1
        errors.sort(key=lambda one: ((one[1].date, one[1].time) if timed else (), one[0], one[1].first.finding.line))
        kind = min((match.kind for _log, match in failures), default=_ENTRY.kind)
        more = {"communicates": "yes"} if self._communicates else {}
        return tuple((log, error.first_of(kind, more)) for log, error in errors[:1])
