"""Compare what torch's watchdogs report of several ranks: who waits in which collective, and who did not get there; pure."""

import re
from typing import Dict, Iterator, List, NamedTuple, Optional, Sequence, Tuple

from taco_launch.core.model.jobs import Finding
from taco_launch.core.signatures.filling import MOST_SHOWN, filled, shortened
from taco_launch.core.signatures.known import Signature
from taco_launch.core.signatures.lines import rank_of
from taco_launch.core.signatures.match import ENTRIES, SignatureMatch

# Reports of one log are of one failure if no more than so many lines lie between them: stack traces do.
_NEAR = 2000
# So many ranks of groups are compared.
_MOST_REPORTS = 1 << 14
# Where a rank need not wait for all others, as the root of a broadcast, it may be so many collectives ahead.
_FAR = 1000
# A rank may be one collective ahead of another that the network keeps in it; two are more than one can be.
_AHEAD = 2
# No rank leaves these before all have come.
_TOGETHER = re.compile(r"_?ALL|_?REDUCE_SCATTER|BARRIER")
# Ranks without a report are named if they are no more than so many.
_MOST_MISSING = 8


class _Report(NamedTuple):
    """The collective that a rank waits in, and the last one of its group that it started; 0 and -1 if unknown."""

    rank: int
    number: int
    operation: str
    started: int
    log: int
    line: int
    host: str
    text: str


class Watchdogs:
    """Collects the reports of torch's watchdogs."""

    def __init__(self) -> None:
        """Start with no report."""
        self._of: Dict[Tuple[str, int], _Report] = {}  # the first of a group and a rank

    def look(self, entry: Signature, log: int, line: int, host: str, full: str, text: str) -> None:
        """Note the report in a line, if there is one; `text` is what the line `full` says without its prefixes."""
        match = re.search(entry.pattern, text)
        if match is None or len(self._of) >= _MOST_REPORTS:
            return
        group = match["group"] or match["group2"] or ""
        rank = int(rank_of(full) or match["rank"] or match["rank2"])
        number = int(match["number"] or match["at"] or 0)
        shown = text.strip()[: 2 * MOST_SHOWN]
        new = _Report(rank, number, match["operation"] or "", int(match["started"] or -1), log, line, host, shown)
        # The line with the operation may not name the group; the one with the group does not name the operation.
        other = self._of.get(("", rank))
        if group and other and other.number == number:
            new = other._replace(started=new.started)
            del self._of["", rank]
        before = self._of.get((group, rank))
        if before is None or not before.number:
            self._of[group, rank] = new

    def compared(self) -> Iterator[Tuple[int, SignatureMatch]]:
        """Yield the log and the match of what the reports of one group say together, if they do."""
        for group in sorted({group for group, _rank in self._of}, reverse=True):
            reports = sorted(report for (one, _rank), report in self._of.items() if one == group)
            match = _differ(reports) or _apart(reports, group) or _behind(reports, group) or _waiting(reports, group)
            if match:
                yield match
                return


def _match(name: str, report: _Report, values: Dict[str, str]) -> Tuple[int, SignatureMatch]:
    entry = ENTRIES[name]
    cause, advice = filled(entry.cause, values, "that host"), filled(entry.next, values, "HOST")
    finding = Finding(name, cause, advice, report.host, report.line)
    return report.log, SignatureMatch(finding, entry.kind, report.text)


def _pairs(reports: Sequence[_Report]) -> Iterator[Tuple[_Report, _Report]]:
    """Yield the first of the reports that wait in something with each of the others that are of the same failure."""
    waiting = [report for report in reports if report.number]
    for other in waiting[1:]:
        if other.log != waiting[0].log or abs(other.line - waiting[0].line) <= _NEAR:
            yield waiting[0], other


def _of_pair(one: _Report, other: _Report) -> Dict[str, str]:
    return {
        "rank": str(one.rank),
        "one": one.operation,
        "number": str(one.number),
        "peer": str(other.rank),
        "other": other.operation,
        "theirs": str(other.number),
    }


def _differ(reports: Sequence[_Report]) -> Optional[Tuple[int, SignatureMatch]]:
    for one, other in _pairs(reports):
        if one.number == other.number and one.operation and other.operation and one.operation != other.operation:
            first = min(one, other, key=lambda report: (report.log, report.line))
            return _match("torch-collectives-differ", first, _of_pair(one, other))
    return None


def _apart(reports: Sequence[_Report], group: str) -> Optional[Tuple[int, SignatureMatch]]:
    for one, other in _pairs(reports):
        behind = min(one, other, key=lambda report: report.number)
        least = _AHEAD if _TOGETHER.match(behind.operation) else _FAR
        if (
            group and abs(one.number - other.number) >= least
        ):  # numbers of a group without a name may be those of two groups
            first = min(one, other, key=lambda report: (report.log, report.line))
            values = {name: value for name, value in _of_pair(one, other).items() if value}
            return _match("torch-ranks-apart", first, values)
    return None


def _behind(reports: Sequence[_Report], group: str) -> Optional[Tuple[int, SignatureMatch]]:
    """Tell which rank has not started the collective that another one waits in."""
    waiting = [report for report in reports if report.number]
    late = [report for report in reports if not report.number and report.started >= 0]
    for report in late if group and waiting else ():
        one = waiting[0]
        if report.started < one.number and (report.log != one.log or abs(report.line - one.line) <= _NEAR):
            values = {"missing": str(report.rank), "last": str(report.started), "number": str(one.number)}
            values.update({"rank": str(one.rank)}, **({"one": one.operation} if one.operation else {}))
            return _match("torch-rank-behind", one, values)
    return None


def _waiting(reports: Sequence[_Report], group: str) -> Optional[Tuple[int, SignatureMatch]]:
    """Tell which ranks of the job's own group wait in one collective, and which ones below them report none."""
    waiting: List[_Report] = [report for report in reports if report.number]
    ranks = sorted({report.rank for report in waiting})
    if len({report.number for report in waiting}) != 1 or len(ranks) < 2 or (group and "default" not in group):
        return None
    first = min(waiting, key=lambda report: (report.log, report.line))
    if first.number == 1:  # what keeps the first collective has other reasons
        return None
    absent = ranks[-1] + 1 - len(ranks)  # a log may name any number of ranks: they are only listed if they are few
    values = {"ranks": shortened(", ".join(map(str, ranks))), "number": str(first.number)}
    if 0 < absent <= min(_MOST_MISSING, len(ranks) - 1):
        values["missing"] = ", ".join(map(str, sorted(set(range(ranks[-1])).difference(ranks))))
    values.update({"one": first.operation} if first.operation else {})
    return _match("torch-ranks-wait", first, values)
