"""Facts of several hosts side by side: equal ones folded, the odd host out named."""

from dataclasses import dataclass
from typing import Dict, List, Sequence, Tuple

from taco_launch.facts import SUBJECTS
from taco_launch.facts.summary import Row, is_asked


@dataclass(frozen=True)
class Folded:
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
        """Say whether hosts that should agree do not."""
        return self.same and len(self.values) > 1


def fold(hosts: Sequence[Tuple[str, Sequence[Row]]]) -> Tuple[Folded, ...]:
    """Fold the rows of hosts, given in inventory order as (host, rows), into one entry per fact.

    Facts stand in the order in which they first come up within their subject. Equal counts keep inventory order. Where
    a whole subject is unknown or absent on one host, those that have it are told as `present` beside it. Whoever was
    not asked for a fact is left out of it.
    """
    kinds: Dict[Tuple[str, str], List[Row]] = {}
    for _host, rows in hosts:
        for row in rows:
            kinds.setdefault((row.subject, row.name), []).append(row)
    told = {host: {(row.subject, row.name): row.text for row in rows} for host, rows in hosts}
    unasked = {(host, row.subject, row.name) for host, rows in hosts for row in rows if not is_asked(row)}
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
            Folded(
                subject,
                name,
                tuple((text, tuple(names)) for text, names in ranked),
                all(row.same for row in rows_of),
                all(row.wide for row in rows_of),
            )
        )
    return tuple(folded)
