"""Tell people about a nightly run: its page, the page of all nightly runs, and messages to those whom the inventory and the matrix name."""

from collections.abc import Callable, Iterable
from pathlib import Path

from taco_launch.agent.messages.deliver import deliver
from taco_launch.agent.store.folders import write_private
from taco_launch.bench.history.history import open_history
from taco_launch.bench.nightly.recorded_run import NightlyResult
from taco_launch.bench.nightly.summary import to_json
from taco_launch.bench.report import extra, read_history
from taco_launch.bench.report.night_message import message, occasions
from taco_launch.core.errors import TacoLaunchError
from taco_launch.core.messages.address import shown
from taco_launch.core.model.host.hosts import Notice


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
        write_private(path, night_page.html(to_json(summary), measured, "en"))
        write_private(path.parent / night_page.INDEX, night_page.index(path.parent, summary.name, "en"))
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
