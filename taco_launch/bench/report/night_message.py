"""What people are sent about a nightly run, and when; pure."""

from collections.abc import Sequence
from typing import Any

from taco_launch.bench.nightly.summary import NightlyOutcome, Summary, by_importance, change, sentences, value

_RED = (NightlyOutcome.REGRESSION, NightlyOutcome.NOT_FIT, NightlyOutcome.FAILED)
# A chat service takes some 2,000 bytes.
_MOST_ROWS = 12


def occasions(outcome: NightlyOutcome, before: str) -> tuple[str, ...]:
    """Return the occasions (core/messages/occasions.py) that a nightly run is, `before` being the outcome of the one before it, "" for none."""
    changed = ("night-change",) if outcome.value != before else ()
    red = ("night-red",) if outcome in _RED else ()
    return ("night", *changed, *red)


def message(summary: Summary, files: Sequence[str]) -> dict[str, Any]:
    """Return the message (core/messages/words.py) about a nightly run, the cells that matter most first."""
    judged = by_importance(summary.judged)
    rows = [
        [one.name, one.verdict.kind.value, value(one.tonight, one.unit), value(one.baseline, one.unit), change(one)]
        for one in judged[:_MOST_ROWS]
    ]
    more = [[f"and {len(judged) - len(rows)} more", "", "", "", ""]] if len(judged) > len(rows) else []
    return {
        "name": f"nightly {summary.name}",
        "event": summary.outcome.value,
        "reason": "\n".join(sentences(summary)),
        "hosts": [],
        "table": [["cell", "verdict", "this run", "baseline", "change"], *rows, *more] if rows else [],
        "next": [f"{summary.typed} nightly report {summary.name}"],
        "files": list(files),
    }
