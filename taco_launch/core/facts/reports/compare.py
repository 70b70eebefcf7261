"""Facts of several hosts side by side: equal ones folded, the odd host out named."""

from collections import Counter
from typing import Callable, Dict, Iterator, List, Sequence, Tuple

from taco_launch.core.facts import SUBJECTS
from taco_launch.core.facts.reports.summary import SummaryRow, is_asked
from taco_launch.core.frozen import dataclass

# So many values of one fact are told one by one; with more of them hosts do not differ, they are all alike in differing.
_MOST_VALUES = 4
# So much of a value names it; the table and JSON have all of it.
_WIDTH = 100


@dataclass(frozen=True)
class FoldedFact:
    """One fact over hosts: `values` holds (text, hosts that say so), the most frequent first.

    `same` says that the hosts should agree; a host that has no such fact is counted under the text `none`.
    """

    subject: str
    name: str
    values: Tuple[Tuple[str, Tuple[str, ...]], ...]
    same: bool
    wide: bool

    @property
    def differs(self) -> bool:
        """Return whether hosts that should agree do not."""
        return self.same and len(self.values) > 1


def fold(hosts: Sequence[Tuple[str, Sequence[SummaryRow]]]) -> Tuple[FoldedFact, ...]:
    """Fold the rows of hosts, given in inventory order as (host, rows), into one entry per fact.

    Facts stand in the order in which they first come up within their subject. Equal counts keep inventory order. Where
    a whole subject is unknown or absent on one host, those that have it are told as `present` beside it. Whoever was
    not asked for a fact is left out of it.
    """
    kinds: Dict[Tuple[str, str], List[SummaryRow]] = {}
    for _host, rows in hosts:
        for row in rows:
            kinds.setdefault((row.subject, row.name), []).append(row)
    told = {host: {(row.subject, row.name): row.text for row in rows} for host, rows in hosts}
    # One host's clock may not be known; the others' are compared all the same.
    compared = {(row.subject, row.name) for _host, rows in hosts for row in rows if row.same}
    unasked = {
        (host, row.subject, row.name)
        for host, rows in hosts
        for row in rows
        if not is_asked(row) or (not row.same and (row.subject, row.name) in compared)
    }
    # A host whose whole subject is unknown or absent says so once, not again for each fact of it.
    silent = {(host, row.subject) for host, rows in hosts for row in rows if row.name == row.subject}
    folded = []
    for subject, name in sorted(kinds, key=lambda kind: SUBJECTS.index(kind[0])):
        values: Dict[str, List[str]] = {}
        for host, _rows in hosts:
            text = told[host].get((subject, name))
            if (host, subject, name) in unasked:
                continue
            if text is None and (host, subject) in silent:
                continue
            if text is None and name == subject:
                text = "present"  # its facts stand in rows of their own
            values.setdefault("none" if text is None else text, []).append(host)
        if not set(values) - {"present"}:
            continue
        ranked = sorted(values.items(), key=lambda entry: -len(entry[1]))
        rows_of = kinds[subject, name]
        folded.append(
            FoldedFact(
                subject,
                name,
                tuple((text, tuple(names)) for text, names in ranked),
                (subject, name) in compared,
                all(row.wide for row in rows_of),
            )
        )
    return tuple(folded)


def outliers(rows: Sequence[FoldedFact], short: Callable[[Sequence[str]], str]) -> Iterator[str]:
    """Name the hosts that differ from most: `gpu3: driver 535.86.10, 3 others 535.104.05`; `short` folds hosts' names.

    Where no value has more hosts than each other one, all of them are told: `gpu1: driver A, gpu2: B`.
    """
    counts = Counter(row.name for row in rows)  # memory is the system's and the GPUs'
    for row in rows:
        if not row.differs:
            continue
        name = row.name if counts[row.name] == 1 else f"{row.subject} {row.name}"
        (most, many), *others = ((_cut(text), hosts) for text, hosts in row.values)
        told, more = others[: _MOST_VALUES - 1], others[_MOST_VALUES - 1 :]
        if len(many) > len(others[0][1]):
            rest = f"{len(many)} other{'s' if len(many) > 1 else ''} {most}"
            for text, hosts in told:
                yield f"{short(hosts)}: {name} {text}, {rest}"
        else:
            yield f"{short(many)}: {name} {most}, " + ", ".join(f"{short(hosts)}: {text}" for text, hosts in told)
        if more:
            left = [host for _, names in more for host in names]
            yield f"{short(left)}: {name} has {len(more)} other values"


def _cut(text: str) -> str:
    return text if len(text) <= _WIDTH else f"{text[: _WIDTH - 3]}..."
