"""Print results: tables, JSON, YAML. Only this file imports rich."""

import itertools
import json
import os
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NoReturn

import click

from taco_launch.cli.options.common import Settings, colour_wanted, settings_of
from taco_launch.core.command import as_typed

if TYPE_CHECKING:
    from rich.live import Live
    from rich.status import Status

    from taco_launch.core.model.job_view import WaitReasons
    from taco_launch.core.model.jobs import JobRecord

# Of a job that waits for many hosts, the line on stderr tells why of the first.
_MOST_HOSTS_TOLD = 4


def data(value: Any, output: str) -> None:
    """Print a value as JSON or YAML: at the command's end, so that an error can be part of it."""
    context = click.get_current_context(silent=True)
    if context is None or _DOCUMENT not in context.meta:
        _print(value, output)
        return
    documents: list[tuple[Any, str]] = context.meta[_DOCUMENT]
    if documents and isinstance(documents[-1][0], dict) and isinstance(value, dict) and set(value) == {"error"}:
        documents[-1][0].update(value)
    else:
        documents.append((value, output))


@contextmanager
def one_document(context: click.Context) -> Iterator[None]:
    """Print what commands gave to `data` in the block, at its end."""
    documents: list[tuple[Any, str]] = context.meta.setdefault(_DOCUMENT, [])
    try:
        yield
    finally:
        for value, output in documents:
            _print(value, output)
        documents.clear()


def _print(value: Any, output: str) -> None:
    if output == "yaml":
        import yaml

        click.echo(yaml.safe_dump(value, sort_keys=False, allow_unicode=False), nl=False)
    else:
        click.echo(json.dumps(value, indent=2))


def error(message: str, hint: str | None) -> None:
    """Print an error and what to type next on stderr, with the inventory that is in use."""
    message, hint = with_inventory_option(message), with_inventory_option(hint or "")
    text = "\n".join(printable(line) for line in message.splitlines())
    colour = None if colour_wanted() else False
    click.echo(f"{click.style('error:', fg='red', bold=True)} {text}", err=True, color=colour)
    if hint:
        click.echo(f"{click.style('hint:', fg='cyan')} {printable(hint)}", err=True, color=colour)


def with_inventory_option(text: str) -> str:
    """Return a message in which what is to be typed has the inventory that is in use."""
    context = click.get_current_context(silent=True)
    return as_typed(text, settings_of(context).typed) if context is not None else text


def table(header: Sequence[str], rows: Sequence[Sequence[str]], *, numbers: Sequence[str] = ()) -> None:
    """Print a table; the columns in `numbers` are flush right."""
    click.echo(columns(header, rows, numbers=numbers))


def paged(text: str) -> None:
    """Print a text; on a terminal by way of a pager, which shows one that fits on the screen at once."""
    if not sys.stdout.isatty():
        click.echo(text, nl=False)
        return
    os.environ.setdefault("LESS", "-FRX")  # as git sets it: end if it fits, keep colours, leave the text on the screen
    click.echo_via_pager(text.removesuffix("\n"))  # which adds one


# One long cell leaves the others as they are: a host may answer with names of any length.
_MOST_PADDED = 200


def columns(header: Sequence[str], rows: Sequence[Sequence[str]], *, numbers: Sequence[str] = ()) -> str:
    """Return a table as text, its header in bold type for a terminal; the columns in `numbers` are flush right.

    Nothing is cut or broken to fit: a name can be copied, and a terminal wraps by itself.
    """
    cells = [list(header), *([printable(cell) for cell in row] for row in rows)]
    widths = [min(max(map(_width, column)), _MOST_PADDED) for column in zip(*cells, strict=True)]
    right = [name in numbers for name in header]
    lines = []
    for row in cells:
        padded = [
            " " * (width - _width(cell)) + cell if flush else cell + " " * (width - _width(cell))
            for cell, width, flush in zip(row, widths, right, strict=True)
        ]
        lines.append("  ".join(padded).rstrip())
    if colour_wanted():
        lines[0] = click.style(lines[0], bold=True)
    return "\n".join(lines)


def _width(text: str) -> int:
    """Return how many columns of a terminal a text takes."""
    if text.isascii():
        return len(text)
    from rich.cells import cell_len

    return cell_len(text)


# Terminals that rich shows nothing on that changes.
_DUMB = ("dumb", "unknown")


def watch(draw: Callable[[], str], seconds: float = 2.0) -> NoReturn:
    """Show what `draw` returns, refreshed in place on a terminal that can do so; elsewhere one after the other.

    Nothing is cut: a line that is wider than the terminal wraps.
    """
    if not sys.stdout.isatty() or os.environ.get("TERM") in _DUMB:
        while True:
            click.echo(draw() + "\n")
            sys.stdout.flush()
            time.sleep(seconds)
    shown = ""
    with _live(lambda: shown, wraps=True, auto_refresh=False) as live:  # which draws once more at its end
        while True:
            shown = draw()
            live.refresh()
            time.sleep(seconds)


def printable(text: str) -> str:
    """Make control characters and broken encodings visible, so that no data can move a terminal's cursor."""
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() else repr(char)[1:-1] for char in text)


def one_line(text: str) -> str:
    """Put the lines of a text behind one another."""
    return "; ".join(line.strip() for line in text.splitlines())


def file_line(line: str) -> str:
    """Make a line of a file printable, whose tabs are its own."""
    return "\t".join(map(printable, line.split("\t")))


# In a context's `meta`: the values that are printed at the end.
_DOCUMENT = "taco_launch.document"
# In a context's `meta`: the lines of why a job waits that were printed.
_WAITS = "taco_launch.waits"


def warning(settings: Settings, message: str) -> None:
    """Print on stderr what a user should know."""
    told = printable(as_typed(message, settings.typed))
    settings.talk(f"{click.style('warning:', fg='yellow', bold=True)} {told}")


def waits(settings: Settings, name: str, words: "WaitReasons") -> None:
    """Print on stderr in one line why a job waits, if that was not printed already."""
    if not words:
        return
    told = [f"{host}: {why}" if host else why for host, why in words[:_MOST_HOSTS_TOLD]]
    if len(words) > len(told):
        told.append(more_hosts(len(words) - len(told)))
    line = f"job {name}: waiting: {'; '.join(told)}"
    context = click.get_current_context(silent=True)
    known: set[str] = set() if context is None else context.meta.setdefault(_WAITS, set())
    if line not in known:
        known.add(line)
        settings.talk(printable(as_typed(line, settings.typed)))
        if drained := [host for host, why in words if host and why.startswith("drained by ")]:
            settings.talk(f"  a drained host takes no job before {settings.typed} host resume {' '.join(drained)}")
        if gone := [host for host, why in words if host and why.startswith("ssh: ")]:
            settings.talk(
                f"  start {shortened(gone)} again, or stop the job and submit it smaller: --exclude {','.join(gone)} --np N"
            )


def more_hosts(count: int) -> str:
    """End a list of hosts, cut short, of which `count` are left."""
    return f"and {counted(count, 'more host')}"


def shortened(words: Sequence[str], most: int = 5) -> str:
    """Return a list for a message, cut short: `a, b and 2 more`."""
    more = f" and {len(words) - most} more" if len(words) > most else ""
    return f"{', '.join(words[:most])}{more}"


def counted(count: int, noun: str) -> str:
    """Return a number and its noun: `1 cell`, `2 cells`."""
    return f"{count} {noun}{'' if count == 1 else 's'}"


def job_fields(record: "JobRecord", name: str) -> list[tuple[str, str]]:
    """Return cause and next step of the first failure that the logs of the job `name` tell of; a cause that is the reason only once.

    The next step is written for one who reads the log, which is not shown here.
    """
    if not record.findings:
        return []
    first = record.findings[0]
    cause = [] if first.cause in record.reason else [("Cause", first.cause)]
    rank = "" if record.first_failure is None else f"--rank {record.first_failure.rank} "
    log = with_inventory_option(f"in the log (taco-launch logs {rank}{name})")
    return [*cause, ("Next", first.next.replace("above this line", log))]


@contextmanager
def progress(settings: Settings, doing: str, total: int) -> Iterator[Callable[[], None]]:
    """Show on a terminal how many of `total` hosts have answered; what is given is called at each answer."""
    if settings.quiet or not sys.stderr.isatty():
        yield lambda: None
        return
    answered = itertools.count(1)
    with status_line(f"{doing}: 0 of {total} hosts") as status:
        yield lambda: status.update(f"{doing}: {next(answered)} of {total} hosts")


def status_line(text: str) -> "Status":
    """Return a line on stderr for a terminal, which can change."""
    from rich import console

    return console.Console(stderr=True).status(text)


@contextmanager
def host_lines(settings: Settings, lines: Callable[[], Sequence[str]]) -> Iterator[bool]:
    """Show `lines` on a terminal while the block runs, refreshed all the time; yield False where there is no terminal."""
    if settings.quiet or not sys.stderr.isatty():
        yield False
        return
    with _live(lambda: "\n".join(map(printable, lines())), stderr=True, transient=True, refresh_per_second=4):
        yield True


def _live(draw: Callable[[], str], *, stderr: bool = False, wraps: bool = False, **settings: Any) -> "Live":
    """Return what shows on a terminal what `draw` gives; a line that is too wide is cut, or wrapped where it is counted as several."""
    from rich import console, live, text

    def drawn() -> text.Text:
        return text.Text.from_ansi(draw(), no_wrap=not wraps, overflow="fold" if wraps else "ellipsis")

    return live.Live(console=console.Console(stderr=stderr), get_renderable=drawn, **settings)
