"""bench export, import: the history to other programs, and what others measured into it."""

import codecs
import contextlib
import os
import re
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import IO, Any

import click

from taco_launch.bench.history import exchange
from taco_launch.bench.history.exchange import HistoryEntry, read
from taco_launch.bench.history.external_logs import ExternalLog, of_logs
from taco_launch.bench.history.history import open_history
from taco_launch.cli.bench import ladder_output
from taco_launch.cli.bench.history import complete_ladder, named_ladder, opened
from taco_launch.cli.bench.workload_option import FORM, read_log, workload_of, workload_option
from taco_launch.cli.options.common import add_option, settings_of, verb
from taco_launch.cli.output import render
from taco_launch.core.command import shell
from taco_launch.core.errors import TacoLaunchError, UsageError
from taco_launch.hosts.inventory.ranges import expand

_FORMATS = ("json", "csv")


@verb("export")
@ladder_output.db_option
@add_option(
    "-o",
    "--output",
    "form",
    type=click.Choice(_FORMATS),
    help="Format. Default: the extension of FILE, else json.",
)
@add_option(
    "--to", "target", type=click.Path(path_type=Path), metavar="FILE", help="Write to FILE. Default: standard output."
)
@add_option("--force", is_flag=True, help="Replace FILE if it exists.")
@add_option("--matrix", metavar="NAME", help="Only sweeps of this matrix.")
@add_option("--last", type=click.IntRange(min=1), metavar="N", help="Only the newest N sweeps.")
@click.argument("ladders", metavar="[SWEEP]...", nargs=-1, shell_complete=complete_ladder)
def export(
    ctx: click.Context,
    /,
    ladders: tuple[str, ...],
    *,
    db: Path | None,
    form: str | None,
    target: Path | None,
    force: bool,
    matrix: str | None,
    last: int | None,
) -> int:
    """Write the history, or the given SWEEPs, as JSON or CSV.

    CSV has one row per measured value, with its run, its sweep, and the software versions of the run. `bench import`
    reads both, on any machine. Verdicts are not exported; they are in the summaries of their nightly runs.

    \b
    Examples:
      taco-launch bench export --to history.csv
      taco-launch bench export --matrix taco --last 30 --to taco.csv
      taco-launch bench export last -o csv | head
    """
    target = None if target == Path("-") else target
    ending = target.suffix.removeprefix(".") if target is not None else ""
    if form is None and ending and ending not in _FORMATS:
        raise UsageError(
            f"--to {target}: .{ending} is not a format of this command",
            hint=f"use .json or .csv, or add -o json for the file {target}",
        )
    form = form or ending or "json"
    if target is not None and target.exists() and not force:
        raise UsageError(f"{target} exists", hint="choose another name, or replace it: --force")
    with opened(db) as history:
        chosen = [named_ladder(history, name) for name in ladders] or [*reversed(history.ladders(None, matrix, last))]
        if not chosen:
            what = "the history is empty" if matrix is None else f"no sweep of matrix {matrix}"
            raise UsageError(f"nothing to export: {what}", hint="taco-launch bench history")
        with _written(target, force=force) as file:
            _write(form, (HistoryEntry(one, history.runs(one.id)) for one in chosen), file)
    if target is not None:
        settings_of(ctx).talk(f"{len(chosen)} sweep{'' if len(chosen) == 1 else 's'} written to {target}")
    return 0


def _write(form: str, entries: Iterable[HistoryEntry], file: IO[bytes]) -> None:
    # A TextIOWrapper would close standard output when its reader is gone.
    text = codecs.getwriter("utf-8")(file)
    (exchange.write_csv if form == "csv" else exchange.write_json)(entries, text)


@contextlib.contextmanager
def _written(target: Path | None, *, force: bool) -> Iterator[IO[bytes]]:
    """Return what to write to; a file is there whole at the end of the block, or not at all.

    Raises:
        TacoLaunchError: it cannot be written, or has come up meanwhile.
    """
    if target is None:
        yield sys.stdout.buffer
        sys.stdout.buffer.flush()
        return
    part = ""
    try:
        descriptor, part = tempfile.mkstemp(prefix=f".{target.name[:100]}.", dir=target.parent)
        with os.fdopen(descriptor, "wb") as file:
            yield file
        if force:
            Path(part).replace(target)
        else:
            os.link(part, target)  # unlike a rename it takes nobody's place
    except OSError as error:
        raise TacoLaunchError(f"{target}: {error.strerror or error}") from None
    finally:
        if part:
            Path(part).unlink(missing_ok=True)


@verb("import")
@ladder_output.db_option
@workload_option
@add_option(
    "--name", metavar="NAME", help="With --workload: the workload's name. Default: its kind, or its name in the matrix."
)
@add_option("--variant", metavar="NAME", help="With --workload: name of the variant that was measured, such as tcp.")
@add_option("--np", "ranks", type=click.IntRange(min=1), metavar="N", help="With --workload: the number of ranks.")
@add_option("-H", "--host", "hosts", metavar="HOSTS", help="With --workload: where it ran, such as gpu[1-4].")
@add_option(
    "--baseline",
    is_flag=True,
    help="Add imported nightly runs to the baseline here if they were part of the baseline in the other history.",
)
@click.argument("logs", metavar="FILE...", nargs=-1, required=True, type=click.Path(allow_dash=True))
def import_(
    ctx: click.Context,
    /,
    logs: tuple[str, ...],
    *,
    db: Path | None,
    workload: str | None,
    baseline: bool,
    **of: Any,
) -> int:
    """Add exports or logs from elsewhere to the history.

    Exports (JSON or CSV) are merged by sweep id: existing entries are unchanged, and importing a file twice adds nothing.
    Imported nightly runs do not count in a baseline, because hosts of the same names may be other machines; --baseline
    overrides this for runs that are new here. With --workload each FILE is the log of one run (- is standard input), and all of them are repeats of
    one cell. If a log has no complete result, nothing is added and the error names the log.

    \b
    Examples:
      taco-launch bench import history.csv
      taco-launch bench import night1.log night2.log --workload horovod --variant rdma -H 'gpu[1-2]'
      taco-launch bench import all_reduce.log --workload nccl-tests --variant tcp --np 16
    """
    of_logs = {"--name": of["name"], "--variant": of["variant"], "--np": of["ranks"], "--host": of["hosts"]}
    if workload is None:
        given = [option for option, value in of_logs.items() if value is not None]
        if given:
            raise UsageError(f"{given[0]} needs --workload", hint=f"name the workload of the logs: --workload {FORM}")
        entries = [entry for log in logs for entry in read(Path(log))]
    elif of["variant"] is None:
        raise UsageError(
            "--workload needs --variant", hint="name the variant that was measured: --variant NAME, such as tcp"
        )
    else:
        entries = [_of_logs(logs, workload, **of)]
    new, waiting = 0, []
    with open_history(ladder_output.history_path(db)) as history:
        for ladder, runs in entries:
            if workload is None or history.ladder(ladder.id) is None:  # a log that came by standard input has no time
                new += history.merge(replace(ladder, accepted=ladder.accepted and baseline), runs)
            kept = history.ladder(ladder.id)
            if baseline and ladder.accepted and kept is not None and not kept.accepted:
                waiting.append(ladder.id)
    here = sum(len(entry.runs) for entry in entries) - new
    ids = render.shortened([entry.ladder.id for entry in entries])
    settings = settings_of(ctx)
    settings.talk(
        f"{new} run{'' if new == 1 else 's'} added, {here} were already in the history; sweeps: {ids or 'none'}"
    )
    if waiting:
        words = ("nightly", "baseline", "accept", *waiting, *(() if db is None else ("--db", str(db))))
        here_before = f"{render.counted(len(waiting), 'nightly run')} already in the history, but not in the baseline"
        render.warning(settings, f"{here_before}; to add them: {settings.typed} {shell(words)}")
    return 0


def _of_logs(
    logs: Sequence[str], workload: str, name: str | None, variant: str, ranks: int | None, hosts: str | None
) -> HistoryEntry:
    try:
        where = tuple(host for word in _words(hosts or "") for host in expand(word))
    except ValueError as error:
        raise UsageError(f"--host {hosts}: {error}") from None
    of = workload_of(workload)
    found = []
    for log in logs:
        text = read_log(log)
        path, at = ("standard input", time.time()) if log == "-" else (os.path.realpath(log), Path(log).stat().st_mtime)
        found.append(ExternalLog(path, text, at))
    try:
        return of_logs(found, replace(of, name=name or of.name), variant, ranks, where)
    except ValueError as error:
        raise TacoLaunchError(str(error)) from None


def _words(text: str) -> list[str]:
    """Split a list of hosts at the commas that stand outside brackets."""
    return [word for word in re.split(r",(?![^\[]*\])", text) if word]


VERBS = (export, import_)
