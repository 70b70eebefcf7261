"""Run a nightly run once at a time, record how it ends however that is, and write its summary."""

import contextlib
import fcntl
import json
import os
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

from taco_launch.agent.store.folders import make_private, private, write_private
from taco_launch.bench.nightly import record
from taco_launch.bench.nightly.junit import junit as junit_xml
from taco_launch.bench.nightly.record import LOCK, LastRun
from taco_launch.bench.nightly.summary import NightlyOutcome, Summary, line, markdown, to_json
from taco_launch.core.command import shell
from taco_launch.core.errors import FAILED, TacoLaunchError, UsageError
from taco_launch.core.frozen import dataclass


@dataclass(frozen=True)
class NightlyResult:
    """Result of a nightly run: its summary, the summary in one line, and the path of the summary as Markdown."""

    summary: Summary
    line: str
    path: Path


def check_junit(path: Path) -> None:
    """Check before anything is measured that the file can be written.

    Raises:
        UsageError: it cannot be written.
    """
    folder = path.absolute().parent
    if not folder.is_dir():
        raise UsageError(f"--junit {path}: there is no folder {folder}", hint=shell(("mkdir", "-p", str(folder))))
    if not os.access(path if path.exists() else folder, os.W_OK):
        raise UsageError(f"--junit: {path if path.exists() else folder} is not writable")


def record_run(
    run_folder: Path,
    name: str,
    junit: Path | None,
    measure: Callable[[float], Summary],
    publish: Callable[[NightlyResult], None] = lambda _result: None,
) -> NightlyResult:
    """Measure while no other process does, and record that: `measure` is given the start, in seconds since 1970.

    `publish` gets the result, also that of a run that an error ended, before this raises it.

    Raises:
        TacoLaunchError: this nightly run is already running, it failed, or the record or the summary cannot be written.
    """
    with _exclusive_lock(run_folder, name):
        begun = LastRun(time.time(), os.getpid(), before=record.usual_seconds(run_folder))
        with _recorded(run_folder, begun, name, junit, publish) as set_end:
            summary = measure(begun.started)
            path = _write(run_folder, summary, junit)
            result = NightlyResult(summary, line(summary, str(path)), path)
            ended = replace(begun, exit_code=summary.exit_code, outcome=summary.outcome.value)
            set_end(replace(ended, line=result.line, summary=str(path)))
        publish(result)
    return result


@contextlib.contextmanager
def _exclusive_lock(run_folder: Path, name: str) -> Iterator[None]:
    """Hold the lock of a nightly run.

    Raises:
        TacoLaunchError: another process holds it.
    """
    make_private(run_folder)
    with open(run_folder / LOCK, "a", encoding="ascii", opener=private) as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise TacoLaunchError(
                f"nightly run {name} is already running{_describe_holder(run_folder)}",
                hint="what it has measured so far: taco-launch bench show",
            ) from None
        yield


def _describe_holder(run_folder: Path) -> str:
    """Name the process that runs a nightly run and its start, "" where it has not written them yet."""
    with contextlib.suppress(TacoLaunchError):
        last = record.read(run_folder, LastRun)
        if last is not None and last.ended is None:
            began = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(last.started))
            return f": process {last.pid}, since {began}"
    return ""


@contextlib.contextmanager
def _recorded(
    run_folder: Path, begun: LastRun, name: str, junit: Path | None, publish: Callable[[NightlyResult], None]
) -> Iterator[Callable[[LastRun], None]]:
    """Record that a nightly run runs, and its end; yield the function that sets the end of a run without errors."""
    record.write(run_folder, begun)
    ended = replace(
        begun,
        exit_code=FAILED,
        outcome=NightlyOutcome.FAILED.value,
        line=f"nightly {name}: FAILED: an error in taco-launch itself",
    )

    def set_end(last: LastRun) -> None:
        nonlocal ended
        ended = last

    try:
        yield set_end
    except TacoLaunchError as error:
        words = f"nightly {name}: FAILED: {'; '.join(map(str.strip, error.message.splitlines()))}"
        set_end(replace(ended, exit_code=error.exit_code, line=words))
        # What a CI system or a person looks at must not be of another nightly run.
        broken = Summary(name, name, "", "not-begun", begun.started, time.time(), broken=error.message)
        with contextlib.suppress(TacoLaunchError):
            path = _write(run_folder, broken, junit)
            set_end(replace(ended, summary=str(path)))
            publish(NightlyResult(broken, words, path))
        raise
    finally:
        record.write(run_folder, replace(ended, ended=time.time()))


def _write(run_folder: Path, summary: Summary, junit: Path | None) -> Path:
    """Write a summary in its three forms, and return the path of the one for people.

    Raises:
        TacoLaunchError: a file cannot be written.
    """
    stem = f"{time.strftime('%Y-%m-%d', time.localtime(summary.started))}-{summary.ladder}"
    texts = {
        ".md": markdown(summary),
        ".json": json.dumps(to_json(summary), indent=2) + "\n",
        ".xml": junit_xml(summary),
    }
    try:
        for suffix, text in texts.items():
            write_private(run_folder / f"{stem}{suffix}", text)
        if junit is not None:
            junit.write_text(texts[".xml"], encoding="utf-8")
    except OSError as error:
        raise TacoLaunchError(f"the summary cannot be written: {error.filename}: {error.strerror}") from None
    return run_folder / f"{stem}.md"
