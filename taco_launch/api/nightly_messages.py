"""Tell people about a nightly run: its page, the page of all nightly runs, and messages to those whom the inventory and the matrix name."""

import socket
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

from taco_launch.agent.messages.deliver import deliver
from taco_launch.agent.store.folders import write_private
from taco_launch.bench.history.history import open_history
from taco_launch.bench.nightly.recorded_run import NightlyResult
from taco_launch.bench.nightly.summary import (
    NightlyOutcome,
    Summary,
    by_importance,
    change,
    sentences,
    to_json,
    value,
)
from taco_launch.bench.report import extra, read_history
from taco_launch.bench.report.night_summaries import INDEX
from taco_launch.core.errors import TacoLaunchError
from taco_launch.core.messages.address import shown
from taco_launch.core.model.host.hosts import Notice

_RED = (NightlyOutcome.REGRESSION, NightlyOutcome.NOT_FIT, NightlyOutcome.FAILED)
# A chat service takes some 2,000 bytes.
_MOST_ROWS = 12


def occasions(outcome: NightlyOutcome, before: str) -> tuple[str, ...]:
    """Return the occasions (core/messages/occasions.py) that a nightly run is, `before` being the outcome of the one before it, "" for none."""
    changed = ("night-change",) if before and outcome.value != before else ()
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
        "hosts": sorted({host for one in summary.judged for host in one.verdict.key.hosts}),
        "cluster": summary.cluster,
        "from": socket.gethostname(),
        "table": [["cell", "verdict", "this run", "baseline", "change"], *rows, *more] if rows else [],
        "next": [f"{summary.typed} nightly report {summary.name}"],
        "files": list(files),
    }


def write_pages(result: NightlyResult, history: Path, warn: Callable[[str], None]) -> Path | None:
    """Write the page of a nightly run beside its summary, and the page of all; return the first one's path, None where that failed."""
    summary, path = result.summary, result.path.with_suffix(".html")
    try:
        night_page = extra.load("night_page")
        measured = None
        if summary.judged or summary.failed:
            with open_history(history, create=False) as opened:
                ladder = opened.ladder(summary.ladder)
                measured = None if ladder is None else read_history.read(opened, ladder, nights=True)
        write_private(path, night_page.html(to_json(summary), measured, "en", is_beside_index=True))
        write_private(path.parent / INDEX, night_page.index(path.parent, summary.name, "en"))
    except (TacoLaunchError, OSError) as error:
        warn(f"no page was written: {error.message if isinstance(error, TacoLaunchError) else error}")
        return None
    return path


def send(
    result: NightlyResult, before: str, notices: Iterable[Notice], files: Iterable[Path], warn: Callable[[str], None]
) -> None:
    """Send messages about a nightly run, `before` being the outcome of the one before it; a failure is a warning."""
    wanted = occasions(result.summary.outcome, before)
    sent = message(result.summary, [str(file) for file in files])
    for to in dict.fromkeys(notice.to for notice in notices if notice.wants(wanted)):
        problem = deliver(to, sent)
        if problem:
            warn(f"{shown(to)}: the message was not delivered: {problem}")
